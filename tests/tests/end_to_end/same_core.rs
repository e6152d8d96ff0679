//! Clients that share their daemon's core, and one that stops there.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::Duration;

use ddss_testkit::{Daemon, DaemonOptions, ScriptedClient};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const CLIENT: &str = env!("CARGO_BIN_EXE_client");

/// A daemon and its core.
fn daemon() -> (Daemon, usize) {
    let allowed = sched_getaffinity(None).unwrap();
    let core = (0..CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)).unwrap();
    (DaemonOptions::new(1).unwrap().core(core).start().unwrap(), core)
}

/// A client that may run on that core only, with a segment of 8 bytes.
fn beside(daemon: &Daemon, core: usize, strategy: &str) -> ScriptedClient {
    let usual = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).unwrap();
    let client = ScriptedClient::start(CLIENT, daemon.folder(), strategy);
    sched_setaffinity(None, &usual).unwrap();
    let mut client = client.unwrap();
    assert_eq!(client.ask("open word").unwrap()[..2], *"ok");
    client
}

fn first(daemon: &Daemon) -> ScriptedClient {
    let mut first = ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap();
    assert_eq!(first.ask("allocate word 8").unwrap(), "ok 8 bytes");
    assert_eq!(first.ask("put 0 8 0").unwrap(), "ok version 1");
    first
}

// If this failed, a client that dies or stops on the daemon's core would block all calls.
#[test]
fn client_stopped_on_daemon_core_delays_no_other_client() {
    let (daemon, core) = daemon();
    let mut other = first(&daemon);
    for strategy in ["rcq", "auto"] {
        for millis in [1, 2, 5, 11] {
            let mut stopped = beside(&daemon, core, strategy);
            assert_eq!(stopped.ask("put-for-ever 8").unwrap(), "ok writing");
            std::thread::sleep(Duration::from_millis(millis));
            stopped.pause().unwrap();
            assert!(other.ask("whole 8").unwrap().starts_with("ok whole"), "one is stopped");
            stopped.resume().unwrap();
            assert!(other.ask("whole 8").unwrap().starts_with("ok whole"), "it goes on");
            stopped.kill().unwrap();
            assert!(other.ask("whole 8").unwrap().starts_with("ok whole"), "it is dead");
            let mut next = beside(&daemon, core, strategy);
            assert!(next.ask("whole 8").unwrap().starts_with("ok whole"), "another one is in its place");
        }
    }
}

// If this failed, a client on the core of a daemon that is dead would wait until its deadline.
#[test]
fn client_on_core_of_killed_daemon_gets_an_error() {
    for strategy in ["rcq", "auto"] {
        let (mut daemon, core) = daemon();
        let _first = first(&daemon);
        let mut writer = beside(&daemon, core, strategy);
        assert_eq!(writer.ask("put-for-ever 8").unwrap(), "ok writing");
        std::thread::sleep(Duration::from_millis(3));
        daemon.kill().unwrap();
        let said = writer.ask("that is answered by the end of the writing").unwrap();
        assert!(said.starts_with("error "), "{said}");
    }
}
