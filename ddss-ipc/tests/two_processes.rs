//! A client in another process: attach, call under each way of waiting, move bytes through the arena, leave.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod support;

use std::time::{Duration, Instant};

use ddss_ipc::{AttachError, AttachOptions, Attachment, Strategy, WaitClass, Waited};
use support::{Echo, PATIENCE, attach, call, role, spawn};

const CALLS: u64 = 20_000;

/// The child of the tests below.
#[test]
fn child() {
    // A child that did nothing would make its parent's test pass for nothing: the parent counts the answers.
    let Some(argument) = role() else { return };
    let (strategy, path) = argument.split_once(' ').unwrap();
    let attachment = attach(path.as_ref(), |options| options.strategy = strategy.parse().unwrap());
    let mut lane = attachment.take_lane().unwrap();
    for value in 0..CALLS {
        let class = if value % 64 == 0 { WaitClass::Sleeping } else { WaitClass::Polling };
        call(&mut lane, class, value);
    }
}

fn run_child(strategy: Strategy) {
    let echo = Echo::start();
    let child = spawn("child", &format!("{strategy} {}", echo.path.display()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    echo.until("all answers", |seen| seen.answered.load(std::sync::atomic::Ordering::Acquire) == CALLS);
    echo.until("the child's end", |seen| seen.left.load(std::sync::atomic::Ordering::Acquire) == 1);
}

#[test]
fn another_process_calls_and_leaves_under_rcq() {
    // If this broke, no client could talk to the daemon at all.
    run_child(Strategy::Rcq);
}

#[test]
fn another_process_calls_and_leaves_under_auto() {
    // If this broke, the default would not work.
    run_child(Strategy::Auto);
}

#[test]
fn a_full_window_is_refused_and_drains() {
    // If this broke, a client with many calls under way would overwrite its own requests.
    let echo = Echo::start();
    let attachment = attach(&echo.path, |_| {});
    let mut lane = attachment.take_lane().unwrap();
    for round in 0..200_u64 {
        for slot in 0..64_u64 {
            lane.submit([0, round << 8 | slot, 0, 0, 0, 0, 0, 0]).unwrap();
        }
        assert!(lane.submit([0; 8]).is_err());
        lane.ring();
        for slot in 0..64_u64 {
            assert_eq!(lane.wait(WaitClass::Polling, Instant::now() + PATIENCE), Waited::Ready);
            assert_eq!(lane.reap().unwrap()[1], !(round << 8 | slot));
        }
        assert_eq!((lane.reap(), lane.outstanding()), (None, 0));
    }
}

#[test]
fn lanes_are_given_once_and_can_be_given_back() {
    // If this broke, two threads would write one ring.
    let echo = Echo::start();
    let attachment = attach(&echo.path, |options| options.lanes = 2);
    let (mut first, second) = (attachment.take_lane().unwrap(), attachment.take_lane().unwrap());
    assert_ne!(first.index(), second.index());
    assert!(attachment.take_lane().is_none());
    first.submit([0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    first.ring();
    drop(first);
    let deadline = Instant::now() + PATIENCE;
    let mut again = loop {
        if let Some(lane) = attachment.take_lane() {
            break lane;
        }
        assert!(Instant::now() < deadline);
    };
    assert_eq!(again.outstanding(), 0);
    call(&mut again, WaitClass::Polling, 9);
}

#[test]
fn a_wait_ends_at_its_deadline_and_when_the_daemon_goes() {
    // If this broke, a call would hang for ever on a daemon that is stuck, or dead.
    for strategy in [Strategy::Rcq, Strategy::Auto] {
        let echo = Echo::start();
        let attachment = attach(&echo.path, |options| options.strategy = strategy);
        let mut lane = attachment.take_lane().unwrap();
        // Nothing was asked, so nothing comes.
        for class in [WaitClass::Polling, WaitClass::Sleeping] {
            assert_eq!(lane.wait(class, Instant::now() + Duration::from_millis(30)), Waited::TimedOut);
        }
        call(&mut lane, WaitClass::Polling, 1);
        assert!(attachment.is_alive());
        drop(echo);
        for class in [WaitClass::Polling, WaitClass::Sleeping] {
            assert_eq!(lane.wait(class, Instant::now() + PATIENCE), Waited::Gone);
        }
        assert!(!attachment.is_alive());
    }
}

#[test]
fn who_cannot_attach_is_told_why() {
    // If this broke, people would search for the daemon's fault in their own program.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut options = AttachOptions::default();
    options.timeout = Duration::from_millis(200);
    let nobody = Attachment::connect(&path, &options).unwrap_err();
    assert!(matches!(nobody, AttachError::NoDaemon { .. }), "{nobody}");

    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let stranger = Attachment::connect(&path, &options).unwrap_err();
    assert!(matches!(stranger, AttachError::System { .. }), "{stranger}");
    drop(listener);
    let stale = Attachment::connect(&path, &options).unwrap_err();
    assert!(matches!(stale, AttachError::System { .. } | AttachError::NoDaemon { .. }), "{stale}");

    options.lanes = 65;
    assert!(matches!(Attachment::connect(&path, &options), Err(AttachError::Options { lanes: 65, .. })));

    let echo = Echo::with(|config| config.clients_max = 1);
    let _first = attach(&echo.path, |_| {});
    let refused = Attachment::connect(&echo.path, &AttachOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("all 1 client slots are taken"), "{refused}");
}
