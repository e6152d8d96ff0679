//! The handshake: who may attach, who is told what, and who stands in whose way.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says what it skips")]

mod support;

use std::time::Duration;

use ddss_ipc::{Acceptor, AcceptorConfig, AttachError, AttachOptions, Attachment, IpcServer, Strategy, WaitClass};
use support::{Echo, attach, call, role};

#[test]
fn who_cannot_attach_is_told_why() {
    // If this broke, people would search for the daemon's fault in their own program.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut options = AttachOptions::default();
    options.timeout = Duration::from_millis(200);
    let nobody = Attachment::connect(&path, &options).unwrap_err();
    assert!(matches!(nobody, AttachError::NoDaemon { .. }), "{nobody}");

    options.lanes = 65;
    assert!(matches!(Attachment::connect(&path, &options), Err(AttachError::Options { lanes: 65, .. })));

    let echo = Echo::with(|config| config.clients_max = 1);
    let _first = attach(&echo.path, |_| {});
    let refused = Attachment::connect(&echo.path, &AttachOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("all 1 client slots are taken"), "{refused}");
}

#[test]
fn a_second_daemon_is_turned_away_and_the_first_goes_on() {
    // If this broke, a daemon started by mistake would cut off every client of the one that runs.
    let echo = Echo::start();
    let station = IpcServer::open(ddss_core::NodeId(8)).unwrap();
    let second = Acceptor::start(&echo.path, AcceptorConfig::new(&station), station.inbox().sink()).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
    call(&mut attach(&echo.path, |_| {}).take_lane().unwrap(), WaitClass::Polling, 1);
}

/// Runs in a namespace of its own, where message queues are scarce.
#[test]
fn child_scarce() {
    // A child that did nothing would make its parent's test pass for nothing: the parent looks for its last word.
    if role().is_none() {
        return;
    }
    let limit = |name, value: u32| std::fs::write(format!("/proc/sys/kernel/{name}"), value.to_string()).unwrap();
    let echo = Echo::start();
    let refused = |strategy| {
        let mut options = AttachOptions::default();
        options.strategy = strategy;
        Attachment::connect(&echo.path, &options).unwrap_err().to_string()
    };
    limit("msgmni", 1);
    let first = attach(&echo.path, |options| options.strategy = Strategy::Rmq);
    call(&mut first.take_lane().unwrap(), WaitClass::Polling, 1);
    for strategy in [Strategy::Mq, Strategy::Rmq] {
        let text = refused(strategy);
        assert!(text.contains("kernel.msgmni") && text.contains("strategy auto"), "{text}");
    }
    limit("msgmni", 100);
    limit("msgmnb", 64 * 3);
    let text = refused(Strategy::Mq);
    assert!(text.contains("holds 3 entries") && text.contains("kernel.msgmnb"), "{text}");
    for strategy in Strategy::ALL {
        // Few lanes fit, and the others need no queue.
        let lanes = if strategy == Strategy::Auto { 64 } else { 2 };
        let client = attach(&echo.path, |options| (options.strategy, options.lanes) = (strategy, lanes));
        let mut lane = client.take_lane().unwrap();
        (0..200).for_each(|value| call(&mut lane, WaitClass::Polling, value));
    }
    println!("\nall of it");
}

#[test]
fn scarce_message_queues_are_named_in_the_refusal() {
    // If this broke, the hundredth client under Mq would fail with a number that nobody understands.
    let output = std::process::Command::new("unshare")
        .args(["--ipc", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_scarce", "--nocapture", "--test-threads=1"])
        .env("DDSS_TEST_ROLE", "scarce")
        .output();
    match output {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            if said.contains("unshare failed") {
                println!("skipped: no right to make a namespace ({})", said.trim());
                return;
            }
            assert!(said.contains("all of it"), "{said}");
        }
        Err(error) => println!("skipped: cannot run unshare ({error})"),
    }
}
