//! The handshake: which clients may attach, and the errors of those that may not.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says what it skips")]

mod support;

use std::time::Duration;

use ddss_ipc::{Acceptor, AcceptorConfig, AttachError, AttachOptions, Attachment, IpcServer, Strategy, WaitClass};
use support::{Echo, attach, call, role};

#[test]
fn attach_error_states_the_reason() {
    // If this failed, users would search for the daemon's fault in their own program.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut options = AttachOptions::default();
    options.timeout = Duration::from_millis(200);
    let nobody = Attachment::connect(&path, &options).unwrap_err();
    assert!(matches!(nobody, AttachError::NoDaemon { .. }), "{nobody}");

    options.channels = 65;
    assert!(matches!(Attachment::connect(&path, &options), Err(AttachError::Options { channels: 65, .. })));

    let echo = Echo::with(|config| config.clients_max = 1);
    let _first = attach(&echo.path, |_| {});
    let refused = Attachment::connect(&echo.path, &AttachOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("all 1 client slots are taken"), "{refused}");
}

#[test]
fn root_attaches_when_others_have_all_slots() {
    // If this failed, an operator could not see whose clients have filled a node, nor end them.
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it needs root, to be another user");
        return;
    }
    let echo = Echo::with(|config| (config.clients_max, config.socket_mode) = (3, 0o666));
    let folder = echo.path.parent().unwrap();
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let attach_as_other = || {
        std::thread::scope(|scope| {
            let attached = scope.spawn(|| {
                // Sets the user of this thread only; it ends with the thread.
                let uid = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                Attachment::connect(&echo.path, &AttachOptions::default())
            });
            attached.join().unwrap()
        })
    };
    let others = [attach_as_other().unwrap(), attach_as_other().unwrap()];
    let refused = attach_as_other().unwrap_err();
    assert!(refused.to_string().contains("all 2 client slots are taken"), "{refused}");
    let root = attach(&echo.path, |_| {});
    call(&mut root.take_channel().unwrap(), WaitClass::Polling, 1);
    let refused = Attachment::connect(&echo.path, &AttachOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("slots are taken"), "{refused}");
    drop(others);
}

#[test]
fn second_daemon_is_refused_while_first_serves() {
    // If this failed, a daemon started by mistake would disconnect every client of the running one.
    let echo = Echo::start();
    let server = IpcServer::open(ddss_core::NodeId(8)).unwrap();
    let second = Acceptor::start(&echo.path, AcceptorConfig::new(&server), server.inbox().sink()).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
    call(&mut attach(&echo.path, |_| {}).take_channel().unwrap(), WaitClass::Polling, 1);
}

/// Runs in its own IPC namespace, where message queues are scarce.
#[test]
fn child_scarce() {
    // A child that did nothing would pass its parent's test: the parent checks the child's last line.
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
    call(&mut first.take_channel().unwrap(), WaitClass::Polling, 1);
    for strategy in [Strategy::Mq, Strategy::Rmq] {
        let text = refused(strategy);
        assert!(text.contains("kernel.msgmni") && text.contains("strategy auto"), "{text}");
    }
    limit("msgmni", 100);
    limit("msgmnb", 64 * 3);
    let text = refused(Strategy::Mq);
    assert!(text.contains("holds 3 entries") && text.contains("kernel.msgmnb"), "{text}");
    for strategy in Strategy::ALL {
        // Few channels fit, and the others need no queue.
        let channels = if strategy == Strategy::Auto { 64 } else { 2 };
        let client = attach(&echo.path, |options| (options.strategy, options.channels) = (strategy, channels));
        let mut channel = client.take_channel().unwrap();
        (0..200).for_each(|value| call(&mut channel, WaitClass::Polling, value));
    }
    println!("\nall of it");
}

#[test]
fn refusal_names_exhausted_queue_limit() {
    // If this failed, the hundredth client under Mq would fail with an unexplained error number.
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
                println!("skipped: no permission to create a namespace ({})", said.trim());
                return;
            }
            assert!(said.contains("all of it"), "{said}");
        }
        Err(error) => println!("skipped: cannot run unshare ({error})"),
    }
}
