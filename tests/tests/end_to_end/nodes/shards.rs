//! Daemons with several progress threads. Each name belongs to one shard on every node, and clients see all shards as
//! one node.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Placement, Segment, Spec, Storage};
use ddss_core::status::Kind;
use ddss_core::{Name, Shard};
use ddss_testkit::{Daemon, DaemonOptions, Process, TempNode, binary, pattern, write_key};
use serde_json::Value;

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn two_shards(options: DaemonOptions) -> DaemonOptions {
    options.argument("--progress-threads").argument("2")
}

fn pair() -> [Daemon; 2] {
    let (a, b) = (DaemonOptions::new(1).unwrap(), DaemonOptions::new(2).unwrap());
    let a = a.peer(&b);
    let b = b.peer(&a);
    [two_shards(a), two_shards(b)].map(|options| options.start().unwrap())
}

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false)).unwrap()
}

fn ddss(daemon: &Daemon, words: &[&str]) -> Value {
    let mut command = Command::new(binary("ddss").unwrap());
    let output = command.args(words).args(["--json", "--dir"]).arg(daemon.folder()).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {why}"))
}

/// Starts a daemon that must refuse to start, in an existing directory; returns its exit code and output.
fn refused(folder: &Path, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(binary("ddssd").unwrap());
    command.args(words).arg("--dir").arg(folder);
    let mut process = Process::start(command, folder, "refused").unwrap();
    let ended = process.wait(PATIENCE).unwrap();
    let ended = ended.unwrap_or_else(|| panic!("it runs: {} {}", process.stdout(), process.stderr()));
    (ended.code().unwrap_or(-1), process.stderr())
}

fn shards_of(segments: &[Segment]) -> BTreeSet<u8> {
    segments.iter().map(|segment| segment.id().shard()).collect()
}

/// Waits until a client can allocate segments of both shards on a node.
fn until_they_meet(client: &Client, home: u16) {
    let spec = Spec::new(8).placement(Placement::Node(ddss::NodeId(home)));
    for (shard, name) in ["probe/b", "probe/a"].into_iter().enumerate() {
        assert_eq!(usize::from(Shard::index_of(&Name::new(name).unwrap(), 2)), shard);
        let begin = Instant::now();
        while let Err(error) = client.segment(name).allocate(spec).and_then(|segment| segment.release()) {
            assert!(begin.elapsed() < PATIENCE, "the nodes do not find each other: {error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Allocates segments whose names are in both shards.
fn allocate(client: &Client, prefix: &str, spec: Spec) -> Vec<Segment> {
    let made = (0..6).map(|number| client.segment(&format!("{prefix}{number}")).allocate(spec).unwrap());
    let made: Vec<_> = made.collect();
    assert_eq!(shards_of(&made), BTreeSet::from([0, 1]), "both planes are used");
    made
}

// If this failed, a second progress thread would idle, or an operator would see one half of the node.
#[test]
fn both_shards_serve_calls_and_are_shown_by_commands() {
    let daemon = two_shards(DaemonOptions::new(1).unwrap()).start().unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let names: BTreeSet<String> =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok()).collect();
    let names: BTreeSet<&str> = names.iter().map(|name| name.trim()).collect();
    assert!(names.contains("ddss-progres-0") && names.contains("ddss-progres-1"), "{names:?}");
    let client = client(&daemon);
    let segments = allocate(&client, "s", Spec::new(1000));
    for (number, segment) in segments.iter().enumerate() {
        segment.put(0, &pattern(number as u64, 1000)).unwrap();
        assert_eq!(segment.get(..).unwrap()[..], pattern(number as u64, 1000)[..]);
    }
    let lock = segments.iter().find(|segment| segment.id().shard() == 1).unwrap().lock().unwrap();
    let listed: Vec<Value> = ddss(&daemon, &["ls", "s*"]).as_array().unwrap().clone();
    let listed: Vec<&str> = listed.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(listed, ["s0", "s1", "s2", "s3", "s4", "s5"]);
    assert_eq!(ddss(&daemon, &["locks"]).as_array().unwrap().len(), 1);
    assert_eq!(ddss(&daemon, &["status"])["segments"]["count"], 6);
    assert_eq!(ddss(&daemon, &["status"])["shards"], 2);
    for segment in &segments {
        assert_eq!(ddss(&daemon, &["stat", segment.name()])["version"], 1);
    }
    drop(lock);
    // Each shard has its own counters; the daemon's counters are their sum.
    let begin = Instant::now();
    loop {
        let puts = &ddss(&daemon, &["counters"])["operations"]["put"]["done"];
        let each = ddss_ipc::read_all_statuses(daemon.folder()).unwrap();
        let each: Vec<u64> = each.iter().map(|status| status.operation(Kind::Put).done).collect();
        if *puts == 6 && each.len() == 2 && each.iter().all(|&puts| puts > 0) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{puts} of {each:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let clients = ddss(&daemon, &["clients"]);
    let shards: BTreeSet<u64> = clients
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["pid"] == std::process::id())
        .map(|row| row["shard"].as_u64().unwrap())
        .collect();
    assert_eq!(shards, BTreeSet::from([0, 1]));
}

// If this failed, nodes with several threads would lose each other's names, or connect to the wrong shard.
#[test]
fn two_nodes_connect_shard_by_shard() {
    let [a, b] = pair();
    let (one, other) = (client(&a), client(&b));
    until_they_meet(&one, 2);
    until_they_meet(&other, 1);
    // For remote allocations, too, the home uses the same shard.
    let there = Spec::new(100_000).placement(Placement::Node(ddss::NodeId(2)));
    let segments = [allocate(&one, "here", Spec::new(100_000)), allocate(&one, "there", there)].concat();
    for (number, segment) in (0..).zip(&segments) {
        let theirs = other.segment(segment.name()).open().unwrap();
        assert_eq!(theirs.id(), segment.id());
        let bytes = pattern(number, 100_000);
        segment.put(0, &bytes).unwrap();
        assert_eq!(theirs.get(..).unwrap()[..], bytes[..]);
        theirs.put(5, b"small").unwrap();
        assert_eq!(segment.get(5..10).unwrap()[..], *b"small");
        let held = theirs.lock().unwrap();
        assert_eq!(held.put(0, b"x").unwrap().version.0, 3);
        drop(held);
        assert_eq!(
            segment.word(16).fetch_add(1).unwrap().before,
            u64::from_le_bytes(bytes[16..24].try_into().unwrap())
        );
    }
    for client in [&one, &other] {
        let listed: BTreeSet<String> = client.list("").map(|found| found.unwrap().name.to_string()).collect();
        assert_eq!(listed, segments.iter().map(|segment| segment.name().to_owned()).collect());
        let taken = client.segment(segments[3].name()).allocate(Spec::new(8)).unwrap_err();
        assert_eq!(taken.kind(), ddss::ErrorKind::AlreadyExists);
    }
    let mut batch = ddss::Batch::new();
    let of = |segment: &Segment| other.segment(segment.name()).open().unwrap();
    let tickets: Vec<_> = segments.iter().map(|segment| batch.get(of(segment), 0..1).unwrap()).collect();
    let mut replies = other.run(batch).unwrap();
    assert!(tickets.into_iter().all(|ticket| replies.take(ticket).unwrap().value == b"x"));
    segments.into_iter().for_each(|segment| segment.release().unwrap());
    let begin = Instant::now();
    while other.list("").count() > 0 {
        assert!(begin.elapsed() < PATIENCE, "names stay");
    }
}

// If this failed, a crash of a daemon with several threads would lose what one of them had acknowledged.
#[test]
fn kill_loses_no_data_of_any_shard() {
    let mut daemon = two_shards(DaemonOptions::new(1).unwrap()).start().unwrap();
    let client = client(&daemon);
    let segments = allocate(&client, "kept", Spec::new(5000));
    for round in 1..=3u64 {
        for (number, segment) in (0..).zip(&segments) {
            assert_eq!(segment.put(0, &pattern(round * 10 + number, 5000)).unwrap().version.0, round);
        }
        daemon.kill().unwrap();
        daemon.restart().unwrap();
        // Old handles continue with their shard, and a new client finds the same segments.
        let again = self::client(&daemon);
        for (number, segment) in (0..).zip(&segments) {
            let found = [segment.clone(), again.segment(segment.name()).open().unwrap()]
                .map(|segment| segment.get(..).unwrap());
            for value in found {
                assert_eq!(value.version().0, round);
                assert_eq!(value[..], pattern(round * 10 + number, 5000)[..]);
            }
        }
        assert_eq!(again.list("kept").count(), segments.len());
    }
}

// If this failed, a changed number in a file would hide half of all segments, or delete them.
#[test]
fn shard_count_change_is_refused_while_segments_exist() {
    let mut daemon = two_shards(DaemonOptions::new(1).unwrap()).start().unwrap();
    let client = client(&daemon);
    let segments = allocate(&client, "stays", Spec::new(64));
    segments.iter().for_each(|segment| segment.put(0, b"still here").map(drop).unwrap());
    daemon.process().end().unwrap();
    for words in [&["--node", "1"][..], &["--node", "1", "--progress-threads", "3"]] {
        let (code, why) = refused(daemon.folder(), words);
        assert_eq!(code, 2, "{why}");
        assert!(why.contains("the 6 segments in") && why.contains("--progress-threads 2"), "{why}");
    }
    // Segments of a dead daemon are shown for all shards.
    let left = ddss(&daemon, &["ls"]);
    assert_eq!(left.as_array().unwrap().len(), 6, "{left}");
    daemon.restart().unwrap();
    for segment in segments {
        assert_eq!(segment.get(0..10).unwrap()[..], *b"still here");
        segment.release().unwrap();
    }
    daemon.process().end().unwrap();
    // Without segments the number may change, and a client with the old number gets an error.
    let mut command = Command::new(binary("ddssd").unwrap());
    command.args(["--node", "1", "--progress-threads", "3", "--dir"]).arg(daemon.folder());
    let mut third = Process::start(command, daemon.folder(), "third").unwrap();
    third.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
    let why = client.segment("new").allocate(Spec::new(8)).unwrap_err().to_string();
    assert!(why.contains("has 3 progress threads and had 2"), "{why}");
    assert_eq!(self::client(&daemon).shard_count(), 3);
    third.end().unwrap();
}

// If this failed, a reboot would lose the files of all threads but the first, or the daemon would refuse its own files.
#[test]
fn file_segments_spread_over_shards_and_survive_loss_of_memory() {
    let mut daemon = two_shards(DaemonOptions::new(1).unwrap()).start().unwrap();
    let segments = allocate(&client(&daemon), "file", Spec::new(5000).storage(Storage::File));
    for (number, segment) in (0..).zip(&segments) {
        segment.put(0, &pattern(number, 5000)).unwrap();
    }
    daemon.process().end().unwrap();
    // A reboot does the same.
    std::fs::remove_dir_all(daemon.folder().join("memory")).unwrap();
    let left = ddss(&daemon, &["ls"]);
    assert_eq!(left.as_array().unwrap().len(), 6, "{left}");
    let (code, why) = refused(daemon.folder(), &["--node", "1"]);
    assert_eq!(code, 2, "{why}");
    assert!(why.contains("--progress-threads 2"), "{why}");
    daemon.restart().unwrap();
    let again = client(&daemon);
    for (number, segment) in (0..).zip(&segments) {
        let value = again.segment(segment.name()).open().unwrap().get(..).unwrap();
        assert_eq!((value.version().0, &value[..]), (1, &pattern(number, 5000)[..]));
    }
}

// If this failed, a node with another shard count would join, and search for names in the wrong shard.
#[test]
fn nodes_with_different_shard_counts_refuse_to_connect_and_log_why() {
    let first = two_shards(DaemonOptions::new(1).unwrap().clustered()).start().unwrap();
    let second = TempNode::new().unwrap();
    write_key(second.path(), ddss_testkit::TEST_KEY).unwrap();
    let join = first.listen().to_string();
    let (code, why) = refused(second.path(), &["--join", &join, "--listen", "127.0.0.2:0"]);
    assert_eq!(code, 6, "{why}");
    assert!(why.contains("node 1 has 2 progress threads and this one 1"), "{why}");
    assert!(why.contains("progress-threads"), "{why}");
    let (code, why) = refused(second.path(), &["--progress-threads", "17"]);
    assert_eq!(code, 2, "{why}");
    assert!(why.contains("give 1 to 16"), "{why}");
    let (code, why) = refused(second.path(), &["--progress-threads", "2", "--core", "0"]);
    assert_eq!(code, 2, "{why}");
    assert!(why.contains("--core names 1"), "{why}");
}

// If this failed, a replica would get segments of another shard, and fail to take over.
#[test]
fn replicas_take_over_in_every_shard() {
    let [a, b, c] = [1, 2, 3].map(|node| DaemonOptions::new(node).unwrap());
    let all = [a.peer(&b).peer(&c), b, c];
    let [a, b, c] = all;
    let b = b.peer(&a).peer(&c);
    let c = c.peer(&a).peer(&b);
    let [mut a, b, _c] = [a, b, c].map(|options| two_shards(options).start().unwrap());
    let far = client(&b);
    let home = Spec::new(64).placement(Placement::Node(ddss::NodeId(1))).copies(2);
    until_they_meet(&far, 1);
    let segments = allocate(&far, "twice", home);
    let in_sync = |segment: &Segment| ddss(&b, &["stat", segment.name()])["replica"]["state"] == "in sync";
    let begin = Instant::now();
    while !segments.iter().all(in_sync) {
        assert!(begin.elapsed() < PATIENCE, "they are never in sync");
        std::thread::sleep(Duration::from_millis(50));
    }
    for (number, segment) in (0..).zip(&segments) {
        segment.put(0, &pattern(number, 64)).unwrap();
    }
    a.kill().unwrap();
    for (number, segment) in (0..).zip(&segments) {
        let begin = Instant::now();
        let value = loop {
            match segment.get(..) {
                Ok(value) => break value,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        assert_eq!(value[..], pattern(number, 64)[..]);
    }
}
