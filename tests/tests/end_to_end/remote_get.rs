//! One remote get with real processes: two daemons, a client on each, one segment.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, DaemonOptions, ScriptedClient};

const CLIENT: &str = env!("CARGO_BIN_EXE_client");

fn client(daemon: &Daemon, strategy: &str) -> ScriptedClient {
    ScriptedClient::start(CLIENT, daemon.folder(), strategy).unwrap()
}

/// Retries the open, because nodes connect a moment after they are ready.
fn open_soon(client: &mut ScriptedClient, name: &str) -> String {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let said = client.ask(&format!("open {name}")).unwrap();
        if said.starts_with("ok") || Instant::now() > end {
            return said;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

// If this failed, DDSS would not provide its basic function.
#[test]
fn put_on_one_node_is_read_on_the_other() {
    let [a, b] = Daemon::pair().unwrap();
    for strategy in ["rcq", "auto"] {
        let name = format!("x-{strategy}");
        let (mut on_a, mut on_b) = (client(&a, strategy), client(&b, strategy));
        assert_eq!(on_a.ask(&format!("allocate {name} 4096")).unwrap(), "ok 4096 bytes");
        assert_eq!(on_a.ask("put 0 4096 7").unwrap(), "ok version 1");
        assert_eq!(open_soon(&mut on_b, &name), "ok 4096 bytes at node 1");
        assert_eq!(on_b.ask("get 0 4096 7").unwrap(), "ok version 1 equal");
        // In the other direction, small puts travel in the request and in a message, large ones through the staging
        // memory.
        for (version, length) in [(2, 0), (3, 8), (4, 16), (5, 17), (6, 448), (7, 449), (8, 4096)] {
            assert_eq!(on_b.ask(&format!("put 0 {length} {version}")).unwrap(), format!("ok version {version}"));
            let get = format!("get 0 {length} {version}");
            assert_eq!(on_a.ask(&get).unwrap(), format!("ok version {version} equal"), "{length} bytes");
            assert_eq!(on_b.ask(&get).unwrap(), format!("ok version {version} equal"), "{length} bytes");
        }
    }
}

// If this failed, a crash of one application would affect all others.
#[test]
fn remote_put_is_atomic_when_writer_is_killed() {
    let [a, b] = Daemon::pair().unwrap();
    for (turn, length) in [8, 4096, 200_000].into_iter().enumerate() {
        let name = format!("torn-{turn}");
        let mut writer = client(&a, "rcq");
        writer.ask(&format!("allocate {name} {length}")).unwrap();
        writer.ask(&format!("put 0 {length} 0")).unwrap();
        let mut reader = client(&b, "rcq");
        assert!(open_soon(&mut reader, &name).starts_with("ok"));
        let mut far_writer = client(&b, "auto");
        assert!(open_soon(&mut far_writer, &name).starts_with("ok"));
        assert_eq!(writer.ask(&format!("put-for-ever {length}")).unwrap(), "ok writing");
        assert_eq!(far_writer.ask(&format!("put-for-ever {length}")).unwrap(), "ok writing");
        let said = reader.ask(&format!("whole {length}")).unwrap();
        assert!(said.starts_with("ok whole "), "{said}");
        writer.kill().unwrap();
        far_writer.kill().unwrap();
        let said = reader.ask(&format!("whole {length}")).unwrap();
        assert!(said.starts_with("ok whole "), "{said}");
        let mut fresh = client(&a, "rcq");
        assert!(open_soon(&mut fresh, &name).starts_with("ok"));
        assert_eq!(fresh.ask(&format!("put 0 {length} 9")).unwrap()[..10], *"ok version");
        assert!(reader.ask(&format!("get 0 {length} 9")).unwrap().ends_with("equal"));
    }
}

// If this failed, a client in a debugger on one node would delay all calls to its node.
#[test]
fn stopped_clients_of_the_home_delay_no_remote_call() {
    let [a, b] = Daemon::pair().unwrap();
    for strategy in ["rcq", "auto", "rmq", "mq"] {
        let name = format!("still-{strategy}");
        let (mut owner, mut writer) = (client(&a, strategy), client(&a, strategy));
        assert_eq!(owner.ask(&format!("allocate {name} 65536")).unwrap(), "ok 65536 bytes");
        assert_eq!(owner.ask("put 0 65536 0").unwrap(), "ok version 1");
        assert!(open_soon(&mut writer, &name).starts_with("ok"));
        let mut far = client(&b, strategy);
        assert!(open_soon(&mut far, &name).starts_with("ok"));
        assert_eq!(writer.ask("put-for-ever 65536").unwrap(), "ok writing");
        std::thread::sleep(Duration::from_millis(20));
        // One client sleeps in a call, and one is stopped somewhere in a put.
        [&owner, &writer].into_iter().for_each(|client| client.pause().unwrap());
        for _ in 0..3 {
            let said = far.ask("whole 65536").unwrap();
            assert!(said.starts_with("ok whole"), "{strategy}: {said}");
        }
        let said = far.ask("put 0 65536 1").unwrap();
        assert!(said.starts_with("ok version"), "{strategy}: {said}");
        assert!(far.ask("get 0 65536 1").unwrap().ends_with("equal"), "{strategy}");
        assert!(far.ask("add 0 0").unwrap().starts_with("ok"), "{strategy}");
        assert!(far.ask("lock").unwrap().starts_with("ok"), "{strategy}");
        assert!(far.ask("unlock").unwrap().starts_with("ok"), "{strategy}");
        [&owner, &writer].into_iter().for_each(|client| client.resume().unwrap());
        let said = owner.ask("whole 65536").unwrap();
        assert!(said.starts_with("ok whole"), "{strategy}: {said}");
    }
}

// If this failed, error messages would point to the wrong cause.
#[test]
fn invalid_calls_return_errors_with_a_remedy() {
    let [a, b] = Daemon::pair().unwrap();
    let (mut on_a, mut on_b) = (client(&a, "rcq"), client(&b, "rcq"));
    on_a.ask("allocate here 4096").unwrap();
    open_soon(&mut on_b, "here");
    let said = |client: &mut ScriptedClient, line: &str| client.ask(line).unwrap();
    assert!(said(&mut on_a, "open nothing").contains("there is no such segment"));
    assert!(said(&mut on_b, "open nothing").contains("there is no such segment"));
    assert!(said(&mut on_a, "allocate here 8").contains("a segment of that name exists"));
    assert!(said(&mut on_b, "allocate here 8").contains("a segment of that name exists"));
    assert!(said(&mut on_a, "allocate huge 999999999999").contains("no memory left"));
    assert!(said(&mut on_a, "allocate none 0").contains("bytes is 0"));
    for client in [&mut on_a, &mut on_b] {
        for range in ["4096 1", "4090 8", "18446744073709551615 8", "18446744073709551608 16"] {
            let get = said(client, &format!("get {range} 0"));
            assert!(get.starts_with("error cannot get here: bytes"), "{get}");
            let put = said(client, &format!("put {range} 0"));
            assert!(put.starts_with("error cannot put here: bytes"), "{put}");
        }
        assert_eq!(said(client, "ping"), "ok there");
    }
    let nobody = ScriptedClient::start(CLIENT, std::path::Path::new("/nowhere"), "rcq").unwrap_err().to_string();
    assert!(nobody.contains("no daemon is running") && nobody.contains("ddssd --dir /nowhere"), "{nobody}");
}

// If this failed, a released segment's memory would be read through an old handle, or never be reused.
#[test]
fn released_segment_is_gone_on_all_nodes_and_its_memory_is_freed() {
    let options = [DaemonOptions::new(1).unwrap(), DaemonOptions::new(2).unwrap()];
    let [first, second] = options;
    let first = first.peer(&second).pool_bytes(1 << 20);
    let second = second.peer(&first).pool_bytes(1 << 20);
    let (a, b) = (first.start().unwrap(), second.start().unwrap());
    let (mut on_a, mut on_b) = (client(&a, "rcq"), client(&b, "rcq"));
    // Each segment takes most of the pool, so the next one fits only after the memory of the previous one is free.
    for turn in 0..20 {
        let end = Instant::now() + Duration::from_secs(10);
        while !on_a.ask("allocate big 800000").unwrap().starts_with("ok") {
            assert!(Instant::now() < end, "the memory of the segment before never came back");
        }
        on_a.ask(&format!("put 0 800000 {turn}")).unwrap();
        assert!(open_soon(&mut on_b, "big").starts_with("ok"));
        assert!(on_b.ask(&format!("get 0 800000 {turn}")).unwrap().ends_with("equal"));
        assert_eq!(on_a.ask("release").unwrap(), "ok");
        let stale = on_b.ask("get 0 8 0").unwrap();
        assert!(stale.contains("there is no such segment"), "{stale}");
    }
}

// If this failed, calls to a dead node would hang, or would disturb calls between live nodes.
#[test]
fn dead_node_is_reported_within_deadline_and_recovers() {
    let [mut a, b] = Daemon::pair().unwrap();
    let (mut on_a, mut on_b) = (client(&a, "rcq"), client(&b, "rcq"));
    on_a.ask("allocate far 4096").unwrap();
    let said = open_soon(&mut on_b, "far");
    assert!(said.starts_with("ok"), "{said}");
    on_b.ask("allocate near 64").unwrap();
    assert!(on_b.ask("put 0 8 1").unwrap().starts_with("ok"));
    let mut other = client(&b, "rcq");
    assert!(open_soon(&mut other, "far").starts_with("ok"));
    a.kill().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let said = other.ask("get 0 8 0").unwrap();
        if said.contains("does not answer") {
            break;
        }
        assert!(said.contains("deadline passed"), "{said}");
        assert!(Instant::now() < end);
    }
    assert_eq!(on_b.ask("get 0 8 1").unwrap(), "ok version 1 equal");
    a.restart().unwrap();
    let mut fresh = client(&a, "rcq");
    assert!(fresh.ask("allocate again 64").unwrap().starts_with("ok"));
    assert!(open_soon(&mut other, "again").starts_with("ok"));
}
