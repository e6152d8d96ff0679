//! Every interleaving of the ring and of the parking, and the proof that each ordering is needed.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-ipc --release --test loom
//! ```

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use ddss_ipc::loom_model as model;

#[test]
fn entries_arrive_whole_and_in_order() {
    // If this broke, a request would be read half written, or a slot overwritten before it was read.
    model::entries_arrive_whole_and_in_order();
}

#[test]
fn a_sleeping_client_is_seen() {
    // If this broke, a call would now and then take until its time-out.
    model::a_sleeping_client_is_seen();
}

#[test]
fn a_resting_service_is_rung() {
    // If this broke, a request would now and then lie there until the next one comes.
    model::a_resting_service_is_rung();
}

#[test]
fn a_client_that_has_rung_is_swept() {
    // If this broke, a client that saves itself a second ring would wait for somebody else's.
    model::a_client_that_has_rung_is_swept();
}

#[test]
fn a_held_reply_is_asked_for() {
    // If this broke, a reply beyond a queue's share would never come.
    model::a_held_reply_is_asked_for();
}

#[test]
fn a_dozing_watch_is_kicked() {
    // If this broke, a wait under Mq and Rmq would not end at its deadline.
    model::a_dozing_watch_is_kicked();
}

#[test]
fn replies_by_queue_come_or_are_asked_for() {
    // If this broke, a call under Rmq would now and then never get its answer.
    model::replies_by_queue_come_or_are_asked_for();
}

#[test]
fn a_place_is_one_threads_at_a_time() {
    // If this broke, two threads would write into one lane, or all calls would end for want of one.
    model::a_place_is_one_threads_at_a_time();
}

#[test]
fn a_slot_is_in_one_run_at_a_time() {
    // If this broke, the bytes of two calls would lie in the same memory.
    model::a_slot_is_in_one_run_at_a_time();
}

#[test]
fn whatever_is_left_is_done() {
    // If this broke, a task's request would never go out, or two threads would write into one lane.
    model::whatever_is_left_is_done();
}

#[test]
fn a_call_ends_once() {
    // If this broke, a task would read half an answer, or its memory would be two calls' at once.
    model::a_call_ends_once();
}

#[test]
fn each_ordering_weakened_alone_turns_a_model_red() {
    // If this broke, the models would prove nothing, or the code would pay for a fence that it does not need.
    const RED: [(&str, &str); 24] = [
        ("publish", "entries_arrive_whole_and_in_order"),
        ("take", "entries_arrive_whole_and_in_order"),
        ("before_sleep", "a_sleeping_client_is_seen"),
        ("before_wake", "a_sleeping_client_is_seen"),
        ("before_ring", "a_resting_service_is_rung"),
        ("before_rest", "a_resting_service_is_rung"),
        ("after_rest", "a_client_that_has_rung_is_swept"),
        ("before_hold", "a_held_reply_is_asked_for"),
        ("after_take", "a_held_reply_is_asked_for"),
        ("before_hold", "replies_by_queue_come_or_are_asked_for"),
        ("after_take", "replies_by_queue_come_or_are_asked_for"),
        ("claim", "a_place_is_one_threads_at_a_time"),
        ("give_back", "a_place_is_one_threads_at_a_time"),
        ("enter_desk", "whatever_is_left_is_done"),
        ("leave_desk", "whatever_is_left_is_done"),
        ("leave_word", "whatever_is_left_is_done"),
        ("take_word", "whatever_is_left_is_done"),
        ("end_call", "a_call_ends_once"),
        ("doze", "a_call_ends_once"),
        ("see_call", "a_call_ends_once"),
        ("take_slot", "a_slot_is_in_one_run_at_a_time"),
        ("give_slot", "a_slot_is_in_one_run_at_a_time"),
        ("before_doze", "a_dozing_watch_is_kicked"),
        ("before_block", "a_dozing_watch_is_kicked"),
    ];
    for (weakened, model) in RED {
        let run = |name: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", model]).env("DDSS_WEAKEN", name).output().unwrap()
        };
        assert!(run("nothing").status.success(), "{model} must hold as it is");
        let output = run(weakened);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success(), "weakening {weakened} goes unnoticed by {model}");
        assert!(text.contains("panicked at"), "{model} must fail by an assertion: {text}");
        println!("{weakened}: {model} goes red");
    }
}
