//! One state directory for each node number: copies, outdated originals, and voters without their directory are
//! refused.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, Process, TEST_KEY, TempNode, binary, free_tcp_port, write_key};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn client(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder).timeout(Duration::from_secs(20))).unwrap()
}

/// Repeats a check until it holds.
fn until<T>(what: &str, mut good: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match good() {
            Ok(found) => return found,
            Err(said) => assert!(Instant::now() < end, "{what}: {said}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn nodes(daemon: &Daemon) -> Value {
    let mut command = Command::new(binary("ddss").unwrap());
    let output = command.args(["nodes", "--json", "--dir"]).arg(daemon.folder()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

fn until_all_vote(daemon: &Daemon) {
    until("all three are alive and vote", || {
        let nodes = nodes(daemon);
        let good = |node: &Value| node["alive"] == true && node["voter"] == true;
        let count = nodes.as_array().map_or(0, |nodes| nodes.iter().filter(|node| good(node)).count());
        if count == 3 { Ok(()) } else { Err(nodes.to_string()) }
    });
}

/// Starts three voters; the second one is the home of a segment.
fn three() -> Vec<Daemon> {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    daemons.iter().for_each(until_all_vote);
    client(daemons[1].folder()).segment("of-two").allocate(Spec::new(64)).unwrap().put(0, b"kept").unwrap();
    daemons
}

/// Starts a daemon in this directory, at a port of its own.
fn daemon_in(folder: &TempNode, more: &[&str]) -> Process {
    let ip = "127.0.0.2".parse().unwrap();
    let listen = format!("{ip}:{}", free_tcp_port(ip).unwrap());
    let mut command = Command::new(binary("ddssd").unwrap());
    command.arg("--dir").arg(folder.path()).args(["--pool-bytes", "1000000", "--listen", &listen]).args(more);
    Process::start(command, folder.path(), "ddssd").unwrap()
}

fn copy_state(from: &Path, to: &TempNode) {
    let copied = Command::new("cp").arg("-a").arg(from.join("state")).arg(to.path()).status().unwrap();
    assert!(copied.success());
}

fn is_refused(process: Process, why: &str) {
    is_refused_with(process, 2, why);
}

fn is_refused_with(mut process: Process, code: i32, why: &str) {
    let ended = process.wait(PATIENCE).unwrap();
    let said = process.stderr();
    assert_eq!(ended.unwrap_or_else(|| panic!("it runs: {said}")).code(), Some(code), "{said}");
    assert!(said.contains(why), "{said}");
}

fn is_ready(process: &mut Process) {
    process.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
}

fn has_its_names(daemons: &[Daemon]) {
    for daemon in daemons {
        let mut bytes = [0; 4];
        until("of-two", || {
            let segment = client(daemon.folder()).segment("of-two").open().map_err(|error| error.to_string())?;
            segment.get_into(0, &mut bytes).map_err(|error| error.to_string())
        });
        assert_eq!(&bytes, b"kept");
    }
}

// If this failed, a copy of a state directory would remove the names of living segments.
#[test]
fn copied_state_directory_is_refused_while_its_node_runs() {
    let daemons = three();
    let copy = TempNode::new().unwrap();
    copy_state(daemons[1].folder(), &copy);
    is_refused(daemon_in(&copy, &[]), "runs at");
    is_refused(daemon_in(&copy, &["--node", "2"]), "runs at");
    has_its_names(&daemons);
}

// If this failed, two copies of one state directory would run as the same node, with different records of its promises.
#[test]
fn original_state_directory_is_refused_after_its_copy_ran() {
    let mut daemons = three();
    let copy = TempNode::new().unwrap();
    daemons[1].kill().unwrap();
    copy_state(daemons[1].folder(), &copy);
    let mut moved = daemon_in(&copy, &[]);
    is_ready(&mut moved);
    let listen = moved.stdout().split_whitespace().last().unwrap().to_owned();
    until("the cluster knows where it is", || {
        let nodes = nodes(&daemons[0]);
        if nodes.to_string().contains(&listen) { Ok(()) } else { Err(nodes.to_string()) }
    });
    client(copy.path()).segment("of-the-copy").allocate(Spec::new(64)).unwrap();
    moved.kill().unwrap();
    let old = TempNode::new().unwrap();
    copy_state(daemons[1].folder(), &old);
    is_refused(daemon_in(&old, &[]), "a copy of this state folder is node 2 now");
    let mut again = daemon_in(&copy, &[]);
    is_ready(&mut again);
    until("it goes on", || client(copy.path()).segment("of-the-copy").open().map_err(|error| error.to_string()));
}

// If this failed, a voter that has lost its vote would vote again, and two leaders could make conflicting decisions.
#[test]
fn voter_without_its_state_directory_is_refused_under_its_old_number() {
    let mut daemons = three();
    daemons[1].kill().unwrap();
    let [first, second] = [daemons[0].listen().to_string(), daemons[1].listen().to_string()];
    let empty = || {
        let folder = TempNode::new().unwrap();
        write_key(folder.path(), TEST_KEY).unwrap();
        folder
    };
    let (joins, founds) = (empty(), empty());
    is_refused_with(daemon_in(&joins, &["--node", "2", "--join", &first]), 6, "has another state folder");
    let peer = format!("1={first}");
    is_refused(daemon_in(&founds, &["--node", "2", "--peer", &peer]), "has another state folder");
    // In its old directory, where it needs no node id on the command line. It keeps none, so that a removal lets it join.
    let place = empty();
    let mut command = Command::new(binary("ddssd").unwrap());
    command.arg("--dir").arg(place.path()).args(["--listen", &second, "--join", &first]);
    is_refused_with(Process::start(command, place.path(), "ddssd").unwrap(), 6, "has another state folder");
    // Only its log is lost.
    let half = TempNode::new().unwrap();
    copy_state(daemons[1].folder(), &half);
    for name in ["raft.log", "directory.json"] {
        let _ = std::fs::remove_file(half.join("state").join(name));
    }
    is_refused(daemon_in(&half, &["--peer", &peer]), "the log of the cluster is lost");
    // With its own directory it is accepted again.
    daemons[1].restart().unwrap();
    until_all_vote(&daemons[1]);
    has_its_names(&daemons);
}

// If this failed, a partitioned node would continue beside the copy that has taken its place.
#[test]
fn stopped_node_exits_when_its_copy_has_taken_its_place() {
    let mut daemons = three();
    daemons[1].pause().unwrap();
    let copy = TempNode::new().unwrap();
    copy_state(daemons[1].folder(), &copy);
    let mut moved = daemon_in(&copy, &[]);
    is_ready(&mut moved);
    until("made at the copy", || {
        client(copy.path()).segment("of-the-copy").allocate(Spec::new(64)).map_err(|error| error.to_string())
    });
    let listen = moved.stdout().split_whitespace().last().unwrap().to_owned();
    until("the cluster knows where it is", || {
        let nodes = nodes(&daemons[0]);
        if nodes.to_string().contains(&listen) { Ok(()) } else { Err(nodes.to_string()) }
    });
    daemons[1].resume().unwrap();
    let ended = daemons[1].process().wait(PATIENCE).unwrap();
    let said = daemons[1].process().stderr();
    assert_eq!(ended.unwrap_or_else(|| panic!("it runs: {said}")).code(), Some(2), "{said}");
    assert!(said.contains("ddssd: node 2 runs with a copy of this state folder"), "{said}");
    for daemon in [&daemons[0], &daemons[2]] {
        until("open", || client(daemon.folder()).segment("of-the-copy").open().map_err(|error| error.to_string()));
    }
}

// If this failed, a node that is killed while it starts would be locked out of its own cluster.
#[test]
fn node_killed_repeatedly_during_start_recovers() {
    let mut daemons = three();
    for _ in 0..5 {
        daemons[1].kill().unwrap();
        daemons[1].restart().unwrap();
    }
    std::fs::write(daemons[1].folder().join("state/incarnation.json.new"), b"{\"folder\":").unwrap();
    daemons[1].kill().unwrap();
    daemons[1].restart().unwrap();
    until_all_vote(&daemons[0]);
    has_its_names(&daemons);
}
