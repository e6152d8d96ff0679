//! Two daemons over RDMA adapters, with real clients.
//!
//! Without adapters every test is skipped; `scripts/vm` runs them on the kernel's own adapters. `DDSS_RDMA_A` and
//! `DDSS_RDMA_B` are the addresses of the adapters, `DDSS_RDMA_NETNS` their network namespaces if they have their own.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Spec, Storage};
use ddss_testkit::{Daemon, DaemonOptions, ScriptedClient, pattern, skipped};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts nodes 1 and 2 with one adapter each, as `fabric` says, each with the other as its peer.
fn pair(test: &str, fabric: &str) -> Option<[Daemon; 2]> {
    pair_with(test, fabric, &[])
}

/// Starts the pair like `pair`, with more arguments.
fn pair_with(test: &str, fabric: &str, more: &[&str]) -> Option<[Daemon; 2]> {
    Some(on_adapters(test, fabric, more)?.map(|options| options.start().unwrap()))
}

/// Returns the start options of both nodes.
fn on_adapters(test: &str, fabric: &str, more: &[&str]) -> Option<[DaemonOptions; 2]> {
    let find = |name| std::env::var(name).ok().map(|address| address.parse::<IpAddr>().unwrap());
    let Some((a, b)) = find("DDSS_RDMA_A").zip(find("DDSS_RDMA_B")) else {
        skipped(test, "no rdma adapter (DDSS_RDMA_A, DDSS_RDMA_B); scripts/vm has some");
        return None;
    };
    let namespaces = std::env::var("DDSS_RDMA_NETNS").ok();
    let options = |node: u16, at| {
        let options = match namespaces.as_deref().and_then(|both| both.split(',').nth(usize::from(node) - 1)) {
            // Free ports of another namespace cannot be found from outside.
            Some(namespace) => DaemonOptions::listening(node, SocketAddr::new(at, 7400)).inside(namespace),
            None => DaemonOptions::on(node, at).unwrap(),
        };
        let options = options.argument("--fabric").argument(fabric);
        more.iter().fold(options, |options, argument| options.argument(argument))
    };
    let (a, b) = (options(1, a).pool_bytes(16 << 20), options(2, b).pool_bytes(16 << 20));
    let a = a.peer(&b);
    let b = b.peer(&a);
    Some([a, b])
}

fn client(daemon: &Daemon) -> ScriptedClient {
    let beside = std::env::var("DDSS_BIN_DIR").map(|folder| format!("{folder}/client"));
    let program = beside.unwrap_or_else(|_| env!("CARGO_BIN_EXE_client").to_owned());
    ScriptedClient::start(&program, daemon.folder(), "auto").unwrap()
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
        std::thread::sleep(Duration::from_millis(20));
    }
}

// If this failed, nodes with adapters could not form a cluster.
#[test]
fn values_read_over_rdma_adapters_are_whole() {
    let Some([mut a, b]) = pair("values_read_over_rdma_adapters_are_whole", "auto") else { return };
    let log = a.process().stderr();
    let taken: Vec<&str> = log.lines().filter(|line| line.contains("fabric selected")).collect();
    assert!(matches!(taken[..], [line] if line.contains("rdma") && line.contains("it has the address")), "{log}");
    let (mut on_a, mut on_b) = (client(&a), client(&b));
    assert_eq!(reply(&mut on_a, "allocate x 500000"), "ok 500000 bytes");
    assert_eq!(reply(&mut on_a, "put 0 500000 7"), "ok version 1");
    assert_eq!(soon(&mut on_b, "open x"), "ok 500000 bytes at node 1");
    assert_eq!(reply(&mut on_b, "get 0 500000 7"), "ok version 1 equal");
    for (version, length) in [(2, 0), (3, 8), (4, 16), (5, 17), (6, 448), (7, 449), (8, 4096), (9, 500_000)] {
        assert_eq!(reply(&mut on_b, &format!("put 0 {length} {version}")), format!("ok version {version}"));
        let get = format!("get 0 {length} {version}");
        assert_eq!(reply(&mut on_a, &get), format!("ok version {version} equal"), "{length} bytes");
        assert_eq!(reply(&mut on_b, &get), format!("ok version {version} equal"), "{length} bytes");
    }
    // Gets beside puts that never stop see whole values only.
    let mut writer = client(&a);
    assert_eq!(soon(&mut writer, "open x"), "ok 500000 bytes at node 1");
    reply(&mut writer, "put 0 65536 0");
    assert_eq!(reply(&mut writer, "put-for-ever 65536"), "ok writing");
    let answer = reply(&mut on_b, "whole 65536");
    assert!(answer.starts_with("ok whole "), "{answer}");
    writer.kill().unwrap();
}

// If this failed, a second shard would have no connection to other nodes, or segments in files could not be read
// remotely.
#[test]
fn shards_and_file_segments_work_over_rdma_adapters() {
    let name = "shards_and_file_segments_work_over_rdma_adapters";
    let Some([a, b]) = pair_with(name, "rdma", &["--progress-threads", "2"]) else { return };
    let [on_a, on_b] = [&a, &b].map(|daemon| {
        let options = ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false);
        Client::connect_with(options).unwrap()
    });
    let mut shards = BTreeSet::new();
    for (number, storage) in (0..12_u64).zip([Storage::Memory, Storage::File].into_iter().cycle()) {
        let spec = Spec::new(100_000).storage(storage);
        let name = format!("both/{number}");
        let made = on_a.segment(&name).allocate(spec).unwrap();
        shards.insert((made.id().shard(), storage == Storage::File));
        made.put(0, &pattern(number, 100_000)).unwrap();
        let end = Instant::now() + PATIENCE;
        let opened = loop {
            match on_b.segment(&name).open() {
                Ok(segment) => break segment,
                Err(error) => assert!(Instant::now() < end, "the nodes do not find each other: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(opened.get(..).unwrap()[..], pattern(number, 100_000)[..], "{name} in {storage:?}");
        opened.put(0, &pattern(number + 100, 100_000)).unwrap();
        assert_eq!(made.get(..).unwrap()[..], pattern(number + 100, 100_000)[..], "{name} in {storage:?}");
    }
    assert_eq!(shards.len(), 4, "memory and files of both planes: {shards:?}");
}

// If this failed, two services could hold one lock, or a counter would lose what one of them added.
#[test]
fn locks_and_atomics_agree_on_both_nodes() {
    let Some([a, b]) = pair("locks_and_atomics_agree_on_both_nodes", "rdma") else { return };
    let (mut on_a, mut on_b) = (client(&a), client(&b));
    reply(&mut on_a, "allocate words 64");
    assert!(soon(&mut on_b, "open words").starts_with("ok"));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(reply(&mut on_a, "add-many 0 100"), "ok"));
        scope.spawn(|| assert_eq!(reply(&mut on_b, "add-many 0 100"), "ok"));
    });
    assert_eq!(reply(&mut on_b, "add 0 0"), "ok before 200 version 201");
    assert!(reply(&mut on_b, "lock").starts_with("ok"));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| reply(&mut on_a, "lock"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished(), "two have one lock");
        assert!(reply(&mut on_b, "unlock").starts_with("ok"));
        assert!(waits.join().unwrap().starts_with("ok"));
    });
    assert!(reply(&mut on_a, "unlock").starts_with("ok"));
}

// If this failed, gets of some model would need the home's processor, and a busy home would slow its readers down.
#[test]
fn stopped_home_is_read_under_models_with_one_sided_gets() {
    let name = "stopped_home_is_read_under_models_with_one_sided_gets";
    let Some([a, b]) = pair(name, "rdma") else { return };
    let mut on_a = client(&a);
    let models = ["null", "write", "version", "delta", "temporal", "strict"];
    let mut readers = models.map(|model| {
        assert_eq!(reply(&mut on_a, &format!("allocate-as {model} still-{model} 4096")), "ok 4096 bytes");
        assert_eq!(reply(&mut on_a, "put-if 0 4096 3"), "ok version 1");
        let mut reader = client(&b);
        let opened = soon(&mut reader, &format!("open still-{model}"));
        assert!(opened.starts_with("ok"), "{model}: {opened}");
        assert_eq!(reply(&mut reader, "get 0 4096 3"), "ok version 1 equal", "{model}");
        reader
    });
    a.pause().unwrap();
    for _ in 0..20 {
        for (reader, model) in readers.iter_mut().zip(models) {
            for bytes in [8, 4096] {
                let answer = reply(reader, &format!("get 0 {bytes} 3"));
                assert_eq!(answer, "ok version 1 equal", "{model}, {bytes} bytes, while the home stands still");
            }
        }
    }
    a.resume().unwrap();
}

// If this failed, a strict get would take three round trips on an adapter that serializes reads, or other gets would
// need the home's processor there.
#[test]
fn home_serves_only_strict_gets_when_reads_serialize() {
    let name = "home_serves_only_strict_gets_when_reads_serialize";
    let Some([a, b]) = on_adapters(name, "rdma", &["--fence-reads"]) else { return };
    let mut a = match a.start() {
        Ok(daemon) => daemon,
        // With Soft-iWARP the daemon refuses to start, because otherwise each get would fail.
        Err(error) => return assert!(error.to_string().contains("rejects fences on reads"), "{error}"),
    };
    let log = a.process().stderr();
    assert!(log.lines().any(|line| line.contains("fabric selected") && line.contains("one after the other")), "{log}");
    let b = b.start().unwrap();
    let mut on_a = client(&a);
    let mut readers = ["write", "strict"].map(|model| {
        assert_eq!(reply(&mut on_a, &format!("allocate-as {model} fenced-{model} 100000")), "ok 100000 bytes");
        assert_eq!(reply(&mut on_a, "put 0 100000 3"), "ok version 1");
        let mut reader = client(&b);
        let opened = soon(&mut reader, &format!("open fenced-{model}"));
        assert!(opened.starts_with("ok"), "{model}: {opened}");
        for bytes in [8, 408, 409, 100_000] {
            assert_eq!(reply(&mut reader, &format!("get 0 {bytes} 3")), "ok version 1 equal", "{model}, {bytes} bytes");
        }
        reader
    });
    a.pause().unwrap();
    let [write, strict] = readers.each_mut().map(|reader| reply(reader, "get 0 8 3"));
    a.resume().unwrap();
    assert_eq!(write, "ok version 1 equal", "this needs nothing of a home that stands still");
    assert!(strict.starts_with("error"), "and this is the home's to answer: {strict}");
    assert_eq!(soon(&mut readers[1], "get 0 8 3"), "ok version 1 equal");
}

// If this failed, a starved daemon would block access to its data, or a dead home would hang its readers.
#[test]
fn stopped_home_is_read_and_dead_home_is_an_error() {
    let name = "stopped_home_is_read_and_dead_home_is_an_error";
    let Some([mut a, b]) = pair(name, "rdma") else { return };
    let (mut on_a, mut on_b) = (client(&a), client(&b));
    reply(&mut on_a, "allocate still 4096");
    reply(&mut on_a, "put 0 4096 3");
    assert!(soon(&mut on_b, "open still").starts_with("ok"));
    assert_eq!(reply(&mut on_b, "get 0 4096 3"), "ok version 1 equal");
    a.pause().unwrap();
    for _ in 0..50 {
        assert_eq!(reply(&mut on_b, "get 0 4096 3"), "ok version 1 equal");
    }
    let put = reply(&mut on_b, "put 0 4096 4");
    assert!(put.starts_with("error"), "nobody commits while the home stands still: {put}");
    a.resume().unwrap();
    assert!(soon(&mut on_b, "put 0 4096 5").starts_with("ok"));
    a.kill().unwrap();
    let answer = reply(&mut on_b, "get 0 4096 5");
    assert!(answer.starts_with("error"), "{answer}");
    assert_eq!(reply(&mut on_b, "ping"), "ok there");
    a.restart().unwrap();
    let mut again = client(&a);
    assert!(soon(&mut again, "allocate after 64").starts_with("ok"));
    assert!(soon(&mut on_b, "open after").starts_with("ok"), "the nodes find each other again");
}
