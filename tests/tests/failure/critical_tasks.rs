//! A critical task of the daemon that ends, as after a panic: the daemon reports it and exits, the next one has all
//! acknowledged data, and clients reconnect.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, Process, TempNode, binary};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
}

/// Starts a daemon with a task that ends when this file requests it.
fn daemon(order: &Path) -> Daemon {
    let order = format!("DDSS_TEST_FAULT={}", order.display());
    DaemonOptions::new(1).unwrap().argument("--log-json").command_prefix(vec!["env".to_owned(), order]).start().unwrap()
}

fn ends_badly(daemon: &mut Daemon, part: &str) {
    let ended = daemon.process().wait(PATIENCE).unwrap();
    let said = daemon.process().stderr();
    assert_eq!(ended.expect("it does not hang").code(), Some(1), "{said}");
    assert!(said.contains(&format!("ddssd: {part} ended by itself")), "{said}");
    let log: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let fields = |message: &str| log.iter().map(|line| &line["fields"]).find(|fields| fields["message"] == message);
    let panic = fields("a thread panicked").unwrap_or_else(|| panic!("{said}"));
    assert!(panic["at"].as_str().unwrap().contains("supervisor.rs:"), "{panic}");
    assert!(panic["why"].as_str().unwrap().contains(part), "{panic}");
    assert!(
        fields("a critical task of the daemon failed: stopping").is_some_and(|fields| fields["part"] == part),
        "{said}"
    );
}

// If this failed, a daemon with a dead progress thread would stay: clients would wait until their deadlines, and
// service manager and cluster would believe it alive.
#[test]
fn daemon_exits_when_progress_thread_dies_and_next_one_recovers() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: only a debug build of the daemon has a part end");
    }
    let folder = TempNode::new().unwrap();
    let order = folder.join("order");
    let mut daemon = daemon(&order);
    let client = client(&daemon);
    let segment = client.segment("kept").allocate(Spec::new(64)).unwrap();
    let put = segment.put(0, b"acknowledged").unwrap();
    std::fs::write(&order, "a progress thread panics").unwrap();
    ends_badly(&mut daemon, "a progress thread");
    std::fs::remove_file(&order).unwrap();
    daemon.restart().unwrap();
    let mut bytes = [0; 12];
    let got = segment.get_into(0, &mut bytes).unwrap();
    assert_eq!((&bytes, got.version), (b"acknowledged", put.version), "the same handle, and nothing of it is lost");
}

// If this failed, no client could attach to a running daemon, and departed clients would not be noticed.
#[test]
fn daemon_exits_when_acceptor_dies() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: only a debug build of the daemon has a part end");
    }
    let folder = TempNode::new().unwrap();
    let order = folder.join("order");
    let mut daemon = daemon(&order);
    let first = client(&daemon);
    let segment = first.segment("kept").allocate(Spec::new(64)).unwrap();
    std::fs::write(&order, "the acceptor panics").unwrap();
    let second =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_millis(500)));
    assert!(second.is_err(), "somebody was let in");
    ends_badly(&mut daemon, "the acceptor");
    std::fs::remove_file(&order).unwrap();
    daemon.restart().unwrap();
    segment.put(0, b"goes on").unwrap();
}

// If this failed, systemd would end a healthy daemon, or keep a hanging one.
#[test]
fn watchdog_is_notified_until_the_daemon_hangs() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: only a debug build of the daemon has a part hang");
    }
    let node = TempNode::new().unwrap();
    let (path, order) = (node.join("notify"), node.join("order"));
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut command = Command::new(binary("ddssd").unwrap());
    command.arg("--dir").arg(node.path()).args(["--pool-bytes", "1000000"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").env("DDSS_TEST_FAULT", &order);
    let mut daemon = Process::start(command, node.path(), "ddssd").unwrap();
    let next = |patience| {
        let mut words = [0; 64];
        manager.set_read_timeout(Some(patience)).unwrap();
        let length = manager.recv(&mut words).ok()?;
        Some(String::from_utf8_lossy(&words[..length]).into_owned())
    };
    assert_eq!(next(PATIENCE).as_deref(), Some("READY=1"));
    for _ in 0..5 {
        assert_eq!(next(PATIENCE).as_deref(), Some("WATCHDOG=1"));
    }
    std::fs::write(&order, "a progress thread hangs").unwrap();
    let began = Instant::now();
    // The daemon notifies until it is sure that a thread hangs; then a full interval passes without a notification.
    while next(Duration::from_secs(3)).is_some() {
        assert!(began.elapsed() < PATIENCE, "it says that it lives");
    }
    daemon.kill().unwrap();
}
