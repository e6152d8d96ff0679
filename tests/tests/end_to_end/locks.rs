//! Atomics, versions and locks between nodes, with real processes, and the locks of dead holders.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, ScriptedClient};

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
const PATIENCE: Duration = Duration::from_secs(20);

fn client(daemon: &Daemon) -> ScriptedClient {
    ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap()
}

fn reply(client: &mut ScriptedClient, line: &str) -> String {
    client.ask(line).unwrap()
}

/// Repeats a call until it succeeds; returns its result.
fn soon(client: &mut ScriptedClient, line: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = reply(client, line);
        if answer.starts_with("ok") || Instant::now() > end {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

// If this failed, two services on two nodes could both win an election, or count one thing twice.
#[test]
fn atomics_and_versions_agree_on_all_nodes() {
    let [a, b] = Daemon::pair().unwrap();
    let (mut on_a, mut on_b) = (client(&a), client(&b));
    reply(&mut on_a, "allocate words 4096");
    assert!(soon(&mut on_b, "open words").starts_with("ok"));
    assert_eq!(reply(&mut on_b, "add 8 5"), "ok before 0 version 1");
    assert_eq!(reply(&mut on_a, "add 8 5"), "ok before 5 version 2");
    assert_eq!(reply(&mut on_b, "cas 8 10 77"), "ok before 10");
    assert_eq!(reply(&mut on_b, "cas 8 10 78"), "ok before 77");
    assert_eq!(reply(&mut on_b, "put-if 3 4096 1"), "ok version 4");
    assert!(reply(&mut on_b, "put-if 3 4096 2").contains("another version"));
    assert!(reply(&mut on_b, "put-if 3 100 2").contains("another version"));
    assert_eq!(reply(&mut on_a, "get 0 4096 1"), "ok version 4 equal");
    assert_eq!(reply(&mut on_b, "newer 3"), "ok version 4");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| reply(&mut on_b, "newer 4"));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(reply(&mut on_a, "put 0 8 9"), "ok version 5");
        assert_eq!(waits.join().unwrap(), "ok version 5");
    });
    reply(&mut on_a, "allocate counter 8");
    assert!(soon(&mut on_b, "open counter").starts_with("ok"));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(reply(&mut on_a, "add-many 0 500"), "ok"));
        scope.spawn(|| assert_eq!(reply(&mut on_b, "add-many 0 500"), "ok"));
    });
    assert_eq!(reply(&mut on_b, "add 0 0"), "ok before 1000 version 1001");
}

// If this failed, clients would wait forever for the lock of a dead holder.
#[test]
fn lock_is_released_when_holder_or_its_node_dies() {
    let [a, mut b] = Daemon::pair().unwrap();
    let (mut on_a, mut on_b) = (client(&a), client(&b));
    reply(&mut on_a, "allocate locked 64");
    assert!(soon(&mut on_b, "open locked").starts_with("ok"));
    // A remote holder excludes local puts and strict gets until it unlocks.
    assert_eq!(reply(&mut on_b, "lock"), "ok version 0");
    assert_eq!(reply(&mut on_b, "put-held 64 1"), "ok version 1");
    assert!(reply(&mut on_a, "put 0 8 1").contains("deadline passed"));
    assert_eq!(reply(&mut on_b, "get 0 64 1"), "ok version 1 equal");
    assert_eq!(reply(&mut on_b, "unlock"), "ok");
    assert_eq!(reply(&mut on_a, "put 0 64 2"), "ok version 2");
    // A local holder excludes remote strict gets.
    assert_eq!(reply(&mut on_a, "lock"), "ok version 2");
    assert!(reply(&mut on_b, "get 0 64 2").contains("deadline passed"));
    assert_eq!(reply(&mut on_a, "unlock"), "ok");
    assert_eq!(reply(&mut on_b, "get 0 64 2"), "ok version 2 equal");
    // The holder dies.
    assert_eq!(reply(&mut on_b, "lock"), "ok version 2");
    on_b.kill().unwrap();
    assert_eq!(reply(&mut on_a, "lock"), "ok version 2");
    assert_eq!(reply(&mut on_a, "unlock"), "ok");
    // The holder's node dies.
    let mut on_b = client(&b);
    assert!(soon(&mut on_b, "open locked").starts_with("ok"));
    assert_eq!(reply(&mut on_b, "lock"), "ok version 2");
    b.kill().unwrap();
    assert_eq!(reply(&mut on_a, "lock"), "ok version 2");
    assert_eq!(reply(&mut on_a, "put-held 64 3"), "ok version 3");
}
