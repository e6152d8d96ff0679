//! Atomics, versions and locks between nodes, with real processes, and the locks of dead holders.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, LockOptions, Segment};
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

/// Waits until the remaining lease of the holder has grown: its client has renewed it.
fn wait_for_renewal(segment: &Segment) {
    let end = Instant::now() + 3 * PATIENCE;
    let left = || segment.stat().unwrap().lock.holder.map_or(0, |holder| holder.lease_left_us);
    let mut last = left();
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = left();
        if now > last {
            return;
        }
        assert!(Instant::now() < end, "the lease is not renewed");
        last = now;
    }
}

// If this failed, a leader that was killed would stay leader, or renewals of a dead process would keep others out.
#[test]
fn lock_kept_alive_is_free_when_holder_is_killed_between_renewals() {
    const LEASE_MS: u64 = 4000;
    let [a, b] = Daemon::pair().unwrap();
    let own = Client::connect_with(ConnectOptions::new().directory(a.folder()).timeout(3 * PATIENCE)).unwrap();
    let segment = own.segment("led").allocate(ddss::Spec::new(64)).unwrap();
    let mut last = 0;
    for daemon in [&a, &b] {
        let mut leader = client(daemon);
        assert!(soon(&mut leader, "open led").starts_with("ok"));
        let reply = reply(&mut leader, &format!("lock-alive {LEASE_MS}"));
        let token: u64 = reply.strip_prefix("ok token ").expect(&reply).parse().unwrap();
        assert!(token > last, "{token} came after {last}");
        // A live leader leads longer than one lease: no other client gets the lock.
        for _ in 0..4 {
            wait_for_renewal(&segment);
        }
        let refused = segment.lock_with(LockOptions::new().timeout(Duration::ZERO)).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ddss::ErrorKind::Locked);
        leader.kill().unwrap();
        let next = segment.lock().unwrap();
        assert!(next.token().0 > token);
        last = next.token().0;
        next.put(0, b"the next leader").unwrap();
        next.unlock().unwrap();
        let listing = segment.stat().unwrap();
        assert_eq!((listing.lock.holders, listing.lock.holder), (0, None), "a dead process renewed its lease");
    }
}

// If this failed, a lock would belong to nobody for as long as ten minutes, because its home was stopped for a moment.
#[test]
fn lock_that_its_blocking_caller_has_given_up_is_released_without_another_call() {
    let [a, b] = Daemon::pair().unwrap();
    let connect = |daemon: &Daemon| {
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
    };
    let (own, other) = (connect(&a), connect(&b));
    let (mine, far) =
        (own.segment("given up").allocate(ddss::Spec::new(64)).unwrap(), other.segment("given up").wait().unwrap());
    let long = LockOptions::new().lease(Duration::from_secs(600));
    for (segment, next) in [(&mine, &far), (&far, &mine)] {
        let asks = if std::ptr::eq(segment, &mine) { &a } else { &b };
        asks.pause().unwrap();
        let late = segment.lock_with(long.timeout(Duration::from_millis(50))).map(drop).unwrap_err();
        assert_eq!(late.kind(), ddss::ErrorKind::TimedOut);
        asks.resume().unwrap();
        let held = next.lock_with(long).unwrap();
        held.put(0, b"next").unwrap();
        held.unlock().unwrap();
    }
}
