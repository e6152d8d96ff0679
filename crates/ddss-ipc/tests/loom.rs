//! Every interleaving of the ring and the parking protocol, and the proof that each ordering is needed.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-ipc --target-dir target/loom --test loom
//! ```

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use ddss_ipc::loom_model as model;

#[test]
fn entries_arrive_whole_and_in_order() {
    // If this failed, a request would be read half written, or a slot overwritten before it was read.
    model::entries_arrive_whole_and_in_order();
}

#[test]
fn sleeping_client_is_woken() {
    // If this failed, a call would now and then take until its time-out.
    model::sleeping_client_is_woken();
}

#[test]
fn sleeping_service_is_woken() {
    // If this failed, a request would now and then wait for the next one.
    model::sleeping_service_is_woken();
}

#[test]
fn request_after_doorbell_is_polled() {
    // If this failed, a client that omits a second doorbell would wait for that of another client.
    model::request_after_doorbell_is_polled();
}

#[test]
fn deferred_reply_is_requested() {
    // If this failed, a reply beyond a queue's share would never arrive.
    model::deferred_reply_is_requested();
}

#[test]
fn sleeping_timeout_thread_is_kicked() {
    // If this failed, a wait under Mq and Rmq would not end at its deadline.
    model::sleeping_timeout_thread_is_kicked();
}

#[test]
fn queued_replies_arrive_or_are_requested() {
    // If this failed, a call under Rmq would now and then never get its reply.
    model::queued_replies_arrive_or_are_requested();
}

#[test]
fn pool_slot_has_one_owner() {
    // If this failed, two threads would write into one channel, or all calls would fail for want of one.
    model::pool_slot_has_one_owner();
}

#[test]
fn slot_belongs_to_one_run() {
    // If this failed, two calls would use the same memory.
    model::slot_belongs_to_one_run();
}

#[test]
fn combiner_executes_every_request() {
    // If this failed, a task's request would never be sent, or two threads would write into one channel.
    model::combiner_executes_every_request();
}

#[test]
fn call_completes_once() {
    // If this failed, a task would read half a reply, or two calls would share its memory.
    model::call_completes_once();
}

#[test]
fn weakening_any_ordering_fails_a_model() {
    // If this failed, the models would prove nothing, or the code would pay for a fence that it does not need.
    const RED: [(&str, &str); 24] = [
        ("publish", "entries_arrive_whole_and_in_order"),
        ("take", "entries_arrive_whole_and_in_order"),
        ("before_client_sleep", "sleeping_client_is_woken"),
        ("before_wake", "sleeping_client_is_woken"),
        ("before_doorbell", "sleeping_service_is_woken"),
        ("before_service_sleep", "sleeping_service_is_woken"),
        ("after_service_sleep", "request_after_doorbell_is_polled"),
        ("before_deferred_check", "deferred_reply_is_requested"),
        ("after_receive", "deferred_reply_is_requested"),
        ("before_deferred_check", "queued_replies_arrive_or_are_requested"),
        ("after_receive", "queued_replies_arrive_or_are_requested"),
        ("pool_acquire", "pool_slot_has_one_owner"),
        ("pool_release", "pool_slot_has_one_owner"),
        ("combiner_acquire", "combiner_executes_every_request"),
        ("combiner_release", "combiner_executes_every_request"),
        ("combiner_request", "combiner_executes_every_request"),
        ("combiner_collect", "combiner_executes_every_request"),
        ("call_transition", "call_completes_once"),
        ("call_park", "call_completes_once"),
        ("call_observe", "call_completes_once"),
        ("slot_acquire", "slot_belongs_to_one_run"),
        ("slot_release", "slot_belongs_to_one_run"),
        ("before_timeout_sleep", "sleeping_timeout_thread_is_kicked"),
        ("before_block", "sleeping_timeout_thread_is_kicked"),
    ];
    for (weakened, model) in RED {
        let run = |name: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", model]).env("DDSS_WEAKEN", name).output().unwrap()
        };
        assert!(run("nothing").status.success(), "{model} must hold as it is");
        let output = run(weakened);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success(), "weakening {weakened} is not detected by {model}");
        assert!(text.contains("panicked at"), "{model} must fail by an assertion: {text}");
        println!("{weakened}: {model} fails");
    }
}
