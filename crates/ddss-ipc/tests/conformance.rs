//! One suite for every strategy: the same calls have the same results, whichever way they travel.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ddss_ipc::{Attachment, Channel, Strategy, WaitClass, WaitOutcome};
use rustix::event::{PollFd, PollFlags};
use support::{Echo, INVERT, LATER, NEVER, NOW, PATIENCE, REVERSE, attach, call, role, spawn};

const CALLS: u64 = 5_000;

macro_rules! suite {
    ($($name:ident: $strategy:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn another_process_calls_and_leaves() {
                super::another_process_calls_and_leaves($strategy);
            }

            #[test]
            fn a_full_window_is_refused_and_drains() {
                super::a_full_window_is_refused_and_drains($strategy);
            }

            #[test]
            fn all_lanes_full_at_once_lose_nothing() {
                super::all_lanes_full_at_once_lose_nothing($strategy);
            }

            #[test]
            fn replies_in_any_order_find_their_lane() {
                super::replies_in_any_order_find_their_lane($strategy);
            }

            #[test]
            fn payloads_travel_in_the_arena() {
                super::payloads_travel_in_the_arena($strategy);
            }

            #[test]
            fn lanes_are_given_once_and_can_be_given_back() {
                super::lanes_are_given_once_and_can_be_given_back($strategy);
            }

            #[test]
            fn a_wait_ends_at_its_deadline() {
                super::a_wait_ends_at_its_deadline($strategy);
            }

            #[test]
            fn a_wait_ends_when_the_daemon_is_killed() {
                super::a_wait_ends_when_the_daemon_is_killed($strategy);
            }

            #[test]
            fn a_task_is_told_through_the_descriptor() {
                super::a_task_is_told_through_the_descriptor($strategy);
            }

            #[test]
            fn a_service_that_rests_is_woken() {
                super::a_service_that_rests_is_woken($strategy);
            }
        }
    )* };
}

suite! {
    mq: Strategy::Mq;
    rmq: Strategy::Rmq;
    rcq: Strategy::Rcq;
    auto: Strategy::Auto;
}

/// The child that calls.
#[test]
fn child_client() {
    // A child that did nothing would make its parent's test pass for nothing: the parent counts the answers.
    let Some(argument) = role() else { return };
    let (strategy, path) = argument.split_once(' ').unwrap();
    let attachment = attach(path.as_ref(), |options| options.strategy = strategy.parse().unwrap());
    let mut lane = attachment.take_lane().unwrap();
    for value in 0..CALLS {
        let class = match value % 64 {
            0 => WaitClass::Sleeping,
            1 => WaitClass::InLine,
            _ => WaitClass::Polling,
        };
        call(&mut lane, class, value);
    }
}

/// The child that serves, until it is killed or its standard input ends.
#[test]
fn child_daemon() {
    // A daemon that never came up would leave its parent waiting, which fails there.
    if role().is_none() {
        return;
    }
    let echo = Echo::start();
    println!("\nat {}", echo.path.display());
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn with(strategy: Strategy, lanes: usize) -> (Echo, Attachment) {
    let echo = Echo::start();
    let attachment = attach(&echo.path, |options| {
        options.strategy = strategy;
        options.lanes = lanes;
    });
    assert_eq!(attachment.strategy(), strategy);
    (echo, attachment)
}

fn wait(lane: &mut Channel) -> u64 {
    assert_eq!(lane.wait(WaitClass::Polling, Instant::now() + PATIENCE), WaitOutcome::Ready);
    lane.reap().unwrap()[1]
}

fn another_process_calls_and_leaves(strategy: Strategy) {
    // If this broke, no client could talk to the daemon at all.
    let echo = Echo::start();
    let child = spawn("child_client", &format!("{strategy} {}", echo.path.display()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    echo.until("all answers", |seen| seen.answered.load(Ordering::Acquire) == CALLS);
    echo.until("the child's end", |seen| seen.left.load(Ordering::Acquire) == 1);
}

fn a_full_window_is_refused_and_drains(strategy: Strategy) {
    // If this broke, a client with many calls under way would overwrite its own requests.
    let (_echo, attachment) = with(strategy, 1);
    let mut lane = attachment.take_lane().unwrap();
    for round in 0..50_u64 {
        for slot in 0..64_u64 {
            lane.submit([0, round << 8 | slot, 0, NOW, 0, 0, 0, 0]).unwrap();
        }
        assert!(lane.submit([0; 8]).is_err());
        lane.ring();
        for slot in 0..64_u64 {
            assert_eq!(wait(&mut lane), !(round << 8 | slot));
        }
        assert_eq!((lane.reap(), lane.outstanding()), (None, 0));
    }
}

fn all_lanes_full_at_once_lose_nothing(strategy: Strategy) {
    // If this broke, requests or replies would vanish when a message queue (256 entries as shipped) is full.
    let (_echo, attachment) = with(strategy, 16);
    let mut lanes: Vec<Channel> = std::iter::from_fn(|| attachment.take_lane()).collect();
    assert_eq!(lanes.len(), 16);
    for round in 0..4_u64 {
        for lane in &mut lanes {
            let index = u64::from(lane.index());
            for slot in 0..64_u64 {
                lane.submit([0, round << 16 | index << 8 | slot, 0, NOW, 0, 0, 0, 0]).unwrap();
            }
            lane.ring();
        }
        for lane in &mut lanes {
            let index = u64::from(lane.index());
            for slot in 0..64_u64 {
                assert_eq!(wait(lane), !(round << 16 | index << 8 | slot));
            }
        }
    }
}

fn replies_in_any_order_find_their_lane(strategy: Strategy) {
    // If this broke, a fast operation could not overtake a slow one, or its answer would go to another thread.
    let (echo, attachment) = with(strategy, 2);
    let (mut first, mut second) = (attachment.take_lane().unwrap(), attachment.take_lane().unwrap());
    for value in 0..40 {
        first.submit([0, value, 0, LATER, 0, 0, 0, 0]).unwrap();
        second.submit([0, 100 + value, 0, LATER, 0, 0, 0, 0]).unwrap();
    }
    first.ring();
    second.ring();
    // All of them must be with the service before it is asked to turn them round.
    echo.until("all requests", |seen| seen.answered.load(Ordering::Acquire) == 80);
    second.submit([0, 7, 0, REVERSE, 0, 0, 0, 0]).unwrap();
    second.ring();
    for value in (0..40).rev() {
        assert_eq!(wait(&mut first), !value);
        assert_eq!(wait(&mut second), !(100 + value));
    }
    assert_eq!(wait(&mut second), !7);
}

fn payloads_travel_in_the_arena(strategy: Strategy) {
    // If this broke, anything longer than an entry would arrive damaged, or as somebody else's.
    let (_echo, attachment) = with(strategy, 1);
    let mut lane = attachment.take_lane().unwrap();
    for (offset, bytes) in [(0, 1), (4096, 4096), (100, 8192), (0, 1 << 16)] {
        let sent: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        attachment.arena().write(offset, &sent).unwrap();
        lane.submit([0, 1, 0, INVERT, offset as u64, bytes as u64, 0, 0]).unwrap();
        lane.ring();
        assert_eq!(wait(&mut lane), !1);
        let mut back = vec![0; bytes];
        attachment.arena().read(offset, &mut back).unwrap();
        assert!(back.iter().zip(&sent).all(|(back, sent)| *back == !*sent), "{bytes} bytes at {offset}");
    }
}

fn lanes_are_given_once_and_can_be_given_back(strategy: Strategy) {
    // If this broke, two threads would write one ring, or a new holder would get an old holder's answer.
    let (_echo, attachment) = with(strategy, 2);
    let (mut first, second) = (attachment.take_lane().unwrap(), attachment.take_lane().unwrap());
    assert_ne!(first.index(), second.index());
    assert!(attachment.take_lane().is_none());
    for value in 0..10 {
        first.submit([0, value, 0, NOW, 0, 0, 0, 0]).unwrap();
    }
    first.ring();
    drop(first);
    let deadline = Instant::now() + PATIENCE;
    let mut again = loop {
        if let Some(lane) = attachment.take_lane() {
            break lane;
        }
        assert!(Instant::now() < deadline, "the lane never came back");
    };
    assert_eq!(again.outstanding(), 0);
    call(&mut again, WaitClass::Polling, 99);
    // A lane may outlive its attachment.
    drop(attachment);
    call(&mut again, WaitClass::Polling, 100);
}

fn a_wait_ends_at_its_deadline(strategy: Strategy) {
    // If this broke, a call would hang for ever on an operation that hangs.
    let (_echo, attachment) = with(strategy, 1);
    let mut lane = attachment.take_lane().unwrap();
    lane.submit([0, 1, 0, NEVER, 0, 0, 0, 0]).unwrap();
    lane.ring();
    for class in [WaitClass::Polling, WaitClass::InLine, WaitClass::Sleeping, WaitClass::Polling] {
        let deadline = Instant::now() + Duration::from_millis(30);
        assert_eq!(lane.wait(class, deadline), WaitOutcome::TimedOut);
        assert!(Instant::now() >= deadline);
    }
    // What comes after it is still found.
    lane.submit([0, 2, 0, NOW, 0, 0, 0, 0]).unwrap();
    lane.ring();
    assert_eq!(wait(&mut lane), !2);
    assert_eq!(lane.outstanding(), 1);
}

fn a_wait_ends_when_the_daemon_is_killed(strategy: Strategy) {
    // If this broke, every client of a crashed daemon would hang until its deadline, or for ever.
    let mut daemon = spawn("child_daemon", "serve");
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let path = loop {
        let line = lines.next().expect("the daemon came up").unwrap();
        if let Some(path) = line.strip_prefix("at ") {
            break path.to_owned();
        }
    };
    let attachment = attach(path.as_ref(), |options| options.strategy = strategy);
    let mut lanes: Vec<Channel> = std::iter::from_fn(|| attachment.take_lane()).collect();
    call(&mut lanes[0], WaitClass::Polling, 1);
    assert!(attachment.is_alive());
    // One lane waits while it happens, the other only afterwards.
    lanes[0].submit([0, 1, 0, NEVER, 0, 0, 0, 0]).unwrap();
    lanes[0].ring();
    let mut waiting = lanes.remove(0);
    let waiter = std::thread::spawn(move || waiting.wait(WaitClass::Polling, Instant::now() + PATIENCE));
    std::thread::sleep(Duration::from_millis(30));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(waiter.join().unwrap(), WaitOutcome::Gone);
    lanes[0].submit([0, 1, 0, NOW, 0, 0, 0, 0]).unwrap();
    lanes[0].ring();
    assert_eq!(lanes[0].wait(WaitClass::Sleeping, Instant::now() + PATIENCE), WaitOutcome::Gone);
    assert!(!attachment.is_alive());
    support::clean_after_a_dead_daemon(path.as_ref());
}

fn a_task_is_told_through_the_descriptor(strategy: Strategy) {
    // If this broke, a future would never resolve, or an executor would spin.
    let (echo, attachment) = with(strategy, 2);
    let mut lanes: Vec<Channel> = std::iter::from_fn(|| attachment.take_lane()).collect();
    let deadline = Instant::now() + PATIENCE;
    for round in 0..200 {
        let mut waiting = BTreeSet::new();
        for (index, lane) in lanes.iter_mut().enumerate() {
            lane.submit([0, round, 0, NOW, 0, 0, 0, 0]).unwrap();
            lane.ring();
            waiting.insert(index);
        }
        while !waiting.is_empty() {
            assert!(Instant::now() < deadline);
            let all_armed = waiting.iter().all(|index| lanes[*index].arm_async());
            if all_armed {
                let limit = rustix::time::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
                let descriptor = attachment.async_descriptor();
                let mut asked = [PollFd::new(&descriptor, PollFlags::IN)];
                assert_eq!(rustix::event::poll(&mut asked, Some(&limit)).unwrap(), 1, "nobody told the task");
            }
            assert!(attachment.clear_async());
            waiting.retain(|index| {
                lanes[*index].disarm_async();
                let reaped = lanes[*index].reap();
                assert!(reaped.is_none_or(|entry| entry[1] == !round));
                reaped.is_none()
            });
        }
    }
    drop(echo);
    assert!(!attachment.clear_async(), "the end of the daemon shows there as well");
}

fn a_service_that_rests_is_woken(strategy: Strategy) {
    // If this broke, the first call after a quiet minute would wait for its deadline.
    let (echo, attachment) = with(strategy, 1);
    let mut lane = attachment.take_lane().unwrap();
    for value in 0..20 {
        echo.until("a rest", |seen| seen.resting.load(Ordering::Acquire));
        call(&mut lane, WaitClass::Polling, value);
    }
}
