//! Recovery of a cluster whose voters are lost.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, NodeId, Placement, ReplicationInfo, Spec};
use ddss_testkit::{
    Daemon, DaemonOptions, PrivateMounts, Process, TEST_KEY, TempNode, binary, free_tcp_port, run_ddss, skipped,
    write_key, write_program,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// Exit code of a start that is refused.
const SETTINGS: i32 = 2;

fn client(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder).timeout(PATIENCE)).unwrap()
}

fn json(folder: &Path, words: &[&str]) -> Value {
    let said = run_ddss(folder, &[&["--json"], words].concat(), "").unwrap();
    assert_eq!(said.code, 0, "{words:?}: {}{}", said.out, said.err);
    serde_json::from_str(&said.out).unwrap()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts three nodes that vote.
fn three_voters() -> [Daemon; 3] {
    let first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let join = || DaemonOptions::new(2).unwrap().joins(first.listen()).start().unwrap();
    let (second, third) = (join(), join());
    wait_until("three nodes vote", || {
        let nodes = json(first.folder(), &["nodes"]);
        nodes.as_array().unwrap().iter().filter(|node| node["voter"] == true && node["alive"] == true).count() == 3
    });
    [first, second, third]
}

/// Makes a segment whose value is its name.
fn make(client: &Client, name: &str, home: u16, copies: u8) {
    let spec = Spec::new(64).placement(Placement::Node(NodeId(home))).copies(copies);
    let segment = client.segment(name).allocate(spec).unwrap();
    segment.put(0, name.as_bytes()).unwrap();
    wait_until("the replica is in sync", || {
        copies == 1 || segment.stat().unwrap().replication == ReplicationInfo::InSync
    });
}

fn holds_its_name(client: &Client, name: &str) -> bool {
    let value = client.segment(name).open().and_then(|segment| segment.get(0..name.len() as u64));
    value.is_ok_and(|value| &value[..] == name.as_bytes())
}

fn names(report: &Value, group: &str) -> Vec<String> {
    let names = report["report"][group].as_array().unwrap().iter();
    names.map(|found| found["name"].as_str().unwrap().to_owned()).collect()
}

/// Starts a daemon that has to end by itself, and returns its last words.
fn refusal(daemon: &mut Daemon) -> String {
    // It may be ready for a moment, before it has asked anybody.
    let _ = daemon.restart();
    let status = daemon.process().wait(PATIENCE).unwrap().expect("it ends");
    assert_eq!(status.code(), Some(SETTINGS), "{}", daemon.process().stderr());
    daemon.process().stderr()
}

// If this failed, the death of two machines of three would cost every segment, or two clusters would serve one name.
#[test]
fn survivors_go_on_as_a_new_cluster() {
    let [mut one, mut two, mut three] = three_voters();
    let values = client(one.folder());
    make(&values, "own", 1, 1);
    make(&values, "lost", 2, 1);
    make(&values, "other survivor", 3, 1);
    // The replica of each is on either of the other two nodes.
    let copied: Vec<String> = (0..8).map(|number| format!("copied {number}")).collect();
    for name in &copied {
        make(&values, name, 2, 2);
    }
    let has_replica_here =
        |name: &String| values.segment(name).open().unwrap().stat().unwrap().replica == Some(NodeId(1));
    let (here, there): (Vec<String>, Vec<String>) = copied.iter().cloned().partition(has_replica_here);
    drop(values);

    // A daemon that runs is not recovered.
    let running = run_ddss(two.folder(), &["cluster", "recover", "--yes"], "").unwrap();
    assert!(running.code != 0 && running.err.contains("another ddssd works in"), "{}", running.err);
    // All at once: a home that loses its replica first goes on alone, and the replica is not in sync any more.
    two.kill().unwrap();
    three.kill().unwrap();
    one.kill().unwrap();

    let before = std::fs::read(one.folder().join("state/raft.log")).unwrap();
    let report = json(one.folder(), &["cluster", "recover"]);
    assert_eq!(report["done"], false);
    assert_eq!(std::fs::read(one.folder().join("state/raft.log")).unwrap(), before, "a list changes nothing");
    assert_eq!(names(&report, "here"), ["own"]);
    assert_eq!(names(&report, "taken_over"), here);
    let mut elsewhere = [vec!["lost".to_owned(), "other survivor".to_owned()], there.clone()].concat();
    elsewhere.sort();
    assert_eq!(names(&report, "elsewhere"), elsewhere);

    assert_eq!(json(one.folder(), &["cluster", "recover", "--yes"])["done"], true);
    one.restart().unwrap();
    let values = client(one.folder());
    // It decides alone.
    make(&values, "new", 1, 1);
    assert!(holds_its_name(&values, "own"));
    wait_until("the replicas take over", || here.iter().all(|name| holds_its_name(&values, name)));

    // A node of the former cluster, with all that it had.
    let why = refusal(&mut two);
    assert!(why.contains("cluster recover --join"), "{why}");
    // Another survivor comes with its segments, under its number.
    let address = one.listen().to_string();
    assert_eq!(json(three.folder(), &["cluster", "recover", "--join", &address, "--yes"])["done"], true);
    three.restart().unwrap();
    wait_until("the other survivor is a member", || {
        let nodes = json(one.folder(), &["nodes"]);
        nodes.as_array().unwrap().iter().any(|node| node["node"] == 3 && node["alive"] == true)
    });
    for values in [&values, &client(three.folder())] {
        wait_until("its segments are there", || {
            holds_its_name(values, "other survivor") && holds_its_name(values, "own")
        });
        wait_until("its replicas take over", || there.iter().all(|name| holds_its_name(values, name)));
    }
    // The lost machine is given up, with what only it had.
    assert_eq!(run_ddss(one.folder(), &["cluster", "remove", "2"], "").unwrap().code, 0);
    wait_until("its name is free", || values.segment("lost").allocate(64).is_ok());
    // A new machine gets a new number.
    let four = DaemonOptions::new(9).unwrap().joins(one.listen()).start().unwrap();
    let seen = json(four.folder(), &["cluster", "status"]);
    assert_eq!(seen["node"], 4, "{seen}");
    assert!(holds_its_name(&client(four.folder()), "own"));
    // A restart keeps all that.
    one.kill().unwrap();
    one.restart().unwrap();
    wait_until("it serves again", || holds_its_name(&client(one.folder()), "own"));
}

// If this failed, an operator who recovers too early would make a second cluster beside the first.
#[test]
fn cluster_with_a_majority_is_not_recovered() {
    let [one, two, mut three] = three_voters();
    three.kill().unwrap();
    let refused = run_ddss(three.folder(), &["cluster", "recover", "--yes"], "").unwrap();
    assert_eq!(refused.code, SETTINGS, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("3 of 3 voters work with this one"), "{}", refused.err);
    three.restart().unwrap();
    wait_until("it is a member as before", || json(one.folder(), &["cluster", "status"])["nodes"][2]["alive"] == true);
    drop(two);
}

// If this failed, a kill in the middle of a recovery would end the last survivor too.
#[test]
fn recovery_that_was_killed_is_repeated() {
    let [mut one, two, three] = three_voters();
    let values = client(one.folder());
    make(&values, "own", 1, 1);
    drop((values, two, three));
    one.kill().unwrap();
    let state = one.folder().join("state");
    let (directory, identity) = (state.join("directory.json"), state.join("node.json"));
    let (old_directory, old_identity) = (std::fs::read(&directory).ok(), std::fs::read(&identity).unwrap());
    json(one.folder(), &["cluster", "recover", "--yes"]);
    let new_directory = std::fs::read(&directory).unwrap();
    let new_identity = std::fs::read(&identity).unwrap();
    let put_back = || match &old_directory {
        Some(bytes) => std::fs::write(&directory, bytes).unwrap(),
        None => std::fs::remove_file(&directory).unwrap(),
    };
    // As if the process had died before the identity was written: nothing is decided.
    put_back();
    std::fs::write(&identity, &old_identity).unwrap();
    let report = json(one.folder(), &["cluster", "recover", "--yes"]);
    assert_eq!(names(&report, "here"), ["own"]);
    // As if it had died after that, and before the directory was put in its place: the start goes on.
    let id = serde_json::from_slice::<Value>(&new_identity).unwrap()["cluster"].as_u64().unwrap();
    put_back();
    std::fs::write(&identity, &new_identity).unwrap();
    std::fs::write(state.join(format!("directory-{id:016x}.json")), &new_directory).unwrap();
    one.restart().unwrap();
    let values = client(one.folder());
    make(&values, "new", 1, 1);
    assert!(holds_its_name(&values, "own"));
}

/// Ends all, at once: a home that loses its replica first goes on alone, and the replica is not in sync any more.
fn kill_all(daemons: &mut [Daemon; 3]) {
    daemons.iter_mut().for_each(|daemon| daemon.kill().unwrap());
}

fn is_member(seen_by: &Daemon, node: u16) -> bool {
    let nodes = json(seen_by.folder(), &["nodes"]);
    nodes.as_array().unwrap().iter().any(|found| found["node"] == node && found["alive"] == true)
}

// If this failed, a mistyped address would cost a survivor its segments.
#[test]
fn wrong_address_to_join_is_corrected() {
    let mut all = three_voters();
    let values = client(all[0].folder());
    make(&values, "own", 1, 1);
    make(&values, "other survivor", 2, 1);
    drop(values);
    kill_all(&mut all);
    let [mut one, mut two, _three] = all;
    json(one.folder(), &["cluster", "recover", "--yes"]);
    one.restart().unwrap();
    // Nothing listens there.
    let nowhere = format!("127.0.0.1:{}", free_tcp_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap());
    let state = std::fs::read(two.folder().join("state/raft.log")).unwrap();
    assert_eq!(json(two.folder(), &["cluster", "recover", "--join", &nowhere, "--yes"])["done"], true);
    assert!(two.restart().is_err(), "it has joined nothing");
    assert!(!two.process().wait(PATIENCE).unwrap().expect("it ends").success());
    let why = two.process().stderr();
    assert!(why.contains(&format!("cannot join the cluster at {nowhere}")), "{why}");
    assert_eq!(std::fs::read(two.folder().join("state/raft.log")).unwrap(), state, "it has given up what it knew");
    let report = json(two.folder(), &["cluster", "recover"]);
    assert_eq!(names(&report, "here"), ["other survivor"]);

    let address = one.listen().to_string();
    json(two.folder(), &["cluster", "recover", "--join", &address, "--yes"]);
    two.restart().unwrap();
    wait_until("it is a member", || is_member(&one, 2));
    let values = client(one.folder());
    wait_until("its segment is there", || holds_its_name(&values, "other survivor"));
}

// If this failed, a survivor that had missed the end of the log would give up segments of those that had not.
#[test]
fn lagging_survivor_begins_and_the_other_brings_what_it_lacks() {
    let mut all = three_voters();
    let values = client(all[0].folder());
    make(&values, "early", 3, 1);
    drop(values);
    all[2].kill().unwrap();
    let values = client(all[0].folder());
    make(&values, "late", 2, 1);
    make(&values, "lost", 1, 1);
    drop(values);
    kill_all(&mut all);
    let [_one, mut two, mut three] = all;
    let end = |daemon: &Daemon| {
        let report = json(daemon.folder(), &["cluster", "recover"]);
        (report["report"]["term"].as_u64().unwrap(), report["report"]["index"].as_u64().unwrap())
    };
    assert!(end(&three) < end(&two), "the operator cannot see which log ends last");
    let report = json(three.folder(), &["cluster", "recover", "--yes"]);
    assert_eq!((names(&report, "here"), names(&report, "elsewhere")), (vec!["early".to_owned()], vec![]));
    three.restart().unwrap();
    let values = client(three.folder());
    wait_until("its own segment is there", || holds_its_name(&values, "early"));
    let address = three.listen().to_string();
    json(two.folder(), &["cluster", "recover", "--join", &address, "--yes"]);
    two.restart().unwrap();
    wait_until("the other survivor is a member", || is_member(&three, 2));
    wait_until("it brings the segment that the log lacked", || holds_its_name(&values, "late"));
    wait_until("a name that nobody has is free", || values.segment("lost").allocate(64).is_ok());
}

// If this failed, a full disk would leave half a recovery.
#[test]
fn recovery_on_a_full_disk_changes_nothing() {
    let test = "recovery_on_a_full_disk_changes_nothing";
    let Some(place) = PrivateMounts::new(test, &[("state", "size=1m")]) else { return };
    let mut all = three_voters();
    let values = client(all[0].folder());
    make(&values, "own", 1, 1);
    drop(values);
    kill_all(&mut all);
    let [one, ..] = &all;
    let (through, state, memory) = (place.command_prefix(), place.mount_path("state"), one.folder().join("memory"));
    let inside = |program: &Path| {
        let mut command = Command::new(&through[0]);
        command.args(&through[1..]).arg(program);
        command
    };
    let copied = inside(Path::new("cp")).arg("-a").arg(one.folder().join("state/.")).arg(&state).status().unwrap();
    assert!(copied.success());
    let recover = |word: &str| {
        let mut command = inside(&binary("ddss").unwrap());
        command.args(["cluster", "recover", word, "--json", "--dir"]).arg(one.folder());
        command.arg("--state-dir").arg(&state).arg("--memory-dir").arg(&memory).output().unwrap()
    };
    let files =
        || inside(Path::new("sh")).args(["-c", "cd $0 && sha256sum *.json *.log"]).arg(&state).output().unwrap().stdout;
    let before = files();
    place.fill(&state, None);
    let refused = recover("--yes");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("No space left"), "{why}");
    assert_eq!(files(), before, "it has changed something");
    place.empty(&state);
    let done = recover("--yes");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut daemon = inside(&binary("ddssd").unwrap());
    daemon.arg("--dir").arg(one.folder()).arg("--state-dir").arg(&state).arg("--memory-dir").arg(&memory);
    let mut daemon = Process::start(daemon, one.folder(), "recovered").unwrap();
    daemon.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
    let values = client(one.folder());
    make(&values, "new", 1, 1);
    assert!(holds_its_name(&values, "own"));
}

/// Writes a program that runs `ddssd` and kills it as it puts a new identity in its place.
fn killed_at_identity(folder: &Path, state: &Path) -> PathBuf {
    let program = folder.join("killed");
    let script = format!(
        "#!/bin/sh\nexec strace -I waiting -f -qq -o /dev/null -e trace=/rename -e inject=/rename:signal=KILL -P {} {} \"$@\"\n",
        state.join("node.json.new").display(),
        binary("ddssd").unwrap().display()
    );
    write_program(&program, &script).unwrap();
    program
}

// If this failed, a node that dies as it joins would be a member twice, or could not join again.
#[test]
fn node_killed_between_its_admission_and_its_identity_joins_again() {
    let test = "node_killed_between_its_admission_and_its_identity_joins_again";
    if !Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status().is_ok_and(|ended| ended.success()) {
        return skipped(test, "strace cannot run here");
    }
    let mut all = three_voters();
    let values = client(all[0].folder());
    make(&values, "other survivor", 2, 1);
    drop(values);
    kill_all(&mut all);
    let [mut one, mut two, _three] = all;
    json(one.folder(), &["cluster", "recover", "--yes"]);
    one.restart().unwrap();
    // A survivor.
    let address = one.listen().to_string();
    json(two.folder(), &["cluster", "recover", "--join", &address, "--yes"]);
    let state = two.folder().join("state");
    let before = std::fs::read(state.join("node.json")).unwrap();
    two.set_program(&killed_at_identity(two.folder(), &state));
    assert!(matches!(two.restart(), Err(ddss_testkit::Error::Ended { .. })), "it was not killed");
    assert_eq!(std::fs::read(state.join("node.json")).unwrap(), before);
    let members = || json(one.folder(), &["nodes"]).as_array().unwrap().len();
    assert_eq!(members(), 2, "it was killed before the cluster had admitted it");
    two.set_program(&binary("ddssd").unwrap());
    two.restart().unwrap();
    wait_until("the survivor is a member", || is_member(&one, 2));
    let values = client(one.folder());
    wait_until("it has kept its segment", || holds_its_name(&values, "other survivor"));

    // A new node.
    let node = TempNode::new().unwrap();
    write_key(node.path(), TEST_KEY).unwrap();
    let listen = SocketAddr::new(one.listen().ip(), free_tcp_port(one.listen().ip()).unwrap()).to_string();
    let start = |program: &Path| {
        let mut daemon = Command::new(program);
        daemon.arg("--dir").arg(node.path()).args(["--pool-bytes", "4M", "--join", &address, "--listen", &listen]);
        Process::start(daemon, node.path(), "ddssd").unwrap()
    };
    let mut killed = start(&killed_at_identity(node.path(), &node.path().join("state")));
    killed.wait(PATIENCE).unwrap().expect("it was not killed");
    assert!(!node.path().join("state/node.json").exists());
    assert_eq!(members(), 3, "it was killed before the cluster had admitted it");
    let mut daemon = start(&binary("ddssd").unwrap());
    daemon.wait_until(PATIENCE, |process| process.stdout().contains("ready node 4 ")).unwrap();
    wait_until("the new node is a member", || is_member(&one, 4));
    assert_eq!(members(), 3);
}
