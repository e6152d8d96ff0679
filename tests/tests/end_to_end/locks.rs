//! Atomics, versions and locks between nodes, with real processes, and what becomes of a lock whose holder dies.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, ScriptedClient};

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
const PATIENCE: Duration = Duration::from_secs(20);

fn client(daemon: &Daemon) -> ScriptedClient {
    ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap()
}

fn said(client: &mut ScriptedClient, line: &str) -> String {
    client.ask(line).unwrap()
}

/// Asks again until it works; the last answer.
fn soon(client: &mut ScriptedClient, line: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = said(client, line);
        if answer.starts_with("ok") || Instant::now() > end {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

// If this failed, two services on two nodes could both win an election, or count one thing twice.
#[test]
fn words_and_versions_are_one_for_all_nodes() {
    let [a, b] = Daemon::pair().unwrap();
    let (mut on_a, mut on_b) = (client(&a), client(&b));
    said(&mut on_a, "allocate words 4096");
    assert!(soon(&mut on_b, "open words").starts_with("ok"));
    assert_eq!(said(&mut on_b, "add 8 5"), "ok before 0 version 1");
    assert_eq!(said(&mut on_a, "add 8 5"), "ok before 5 version 2");
    assert_eq!(said(&mut on_b, "cas 8 10 77"), "ok before 10");
    assert_eq!(said(&mut on_b, "cas 8 10 78"), "ok before 77");
    assert_eq!(said(&mut on_b, "put-if 3 4096 1"), "ok version 4");
    assert!(said(&mut on_b, "put-if 3 4096 2").contains("another version"));
    assert!(said(&mut on_b, "put-if 3 100 2").contains("another version"));
    assert_eq!(said(&mut on_a, "get 0 4096 1"), "ok version 4 equal");
    assert_eq!(said(&mut on_b, "newer 3"), "ok version 4");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| said(&mut on_b, "newer 4"));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(said(&mut on_a, "put 0 8 9"), "ok version 5");
        assert_eq!(waits.join().unwrap(), "ok version 5");
    });
    said(&mut on_a, "allocate counter 8");
    assert!(soon(&mut on_b, "open counter").starts_with("ok"));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(said(&mut on_a, "add-many 0 500"), "ok"));
        scope.spawn(|| assert_eq!(said(&mut on_b, "add-many 0 500"), "ok"));
    });
    assert_eq!(said(&mut on_b, "add 0 0"), "ok before 1000 version 1001");
}

// If this failed, a crash would leave everybody waiting for a lock that nobody holds.
#[test]
fn a_lock_ends_with_its_holder_or_with_its_holders_node() {
    let [a, mut b] = Daemon::pair().unwrap();
    let (mut on_a, mut on_b) = (client(&a), client(&b));
    said(&mut on_a, "allocate locked 64");
    assert!(soon(&mut on_b, "open locked").starts_with("ok"));
    // A holder far away excludes puts and strict gets here, until it lets go.
    assert_eq!(said(&mut on_b, "lock"), "ok version 0");
    assert_eq!(said(&mut on_b, "put-held 64 1"), "ok version 1");
    assert!(said(&mut on_a, "put 0 8 1").contains("deadline passed"));
    assert_eq!(said(&mut on_b, "get 0 64 1"), "ok version 1 equal");
    assert_eq!(said(&mut on_b, "unlock"), "ok");
    assert_eq!(said(&mut on_a, "put 0 64 2"), "ok version 2");
    // A holder here excludes strict gets far away.
    assert_eq!(said(&mut on_a, "lock"), "ok version 2");
    assert!(said(&mut on_b, "get 0 64 2").contains("deadline passed"));
    assert_eq!(said(&mut on_a, "unlock"), "ok");
    assert_eq!(said(&mut on_b, "get 0 64 2"), "ok version 2 equal");
    // The holder dies.
    assert_eq!(said(&mut on_b, "lock"), "ok version 2");
    on_b.kill().unwrap();
    assert_eq!(said(&mut on_a, "lock"), "ok version 2");
    assert_eq!(said(&mut on_a, "unlock"), "ok");
    // The holder's node dies.
    let mut on_b = client(&b);
    assert!(soon(&mut on_b, "open locked").starts_with("ok"));
    assert_eq!(said(&mut on_b, "lock"), "ok version 2");
    b.kill().unwrap();
    assert_eq!(said(&mut on_a, "lock"), "ok version 2");
    assert_eq!(said(&mut on_a, "put-held 64 3"), "ok version 3");
}
