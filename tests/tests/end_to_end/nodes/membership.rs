//! Nodes that leave a cluster or are removed from it: they stay out, learn of their removal, and change nothing any
//! more.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, DaemonOptions, Process, ScriptedClient, TempNode, binary, free_tcp_port, write_key};
use serde_json::Value;

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
const PATIENCE: Duration = Duration::from_secs(30);
/// The leader checks the members every 250 ms: it corrects a difference within this time.
const SEVERAL_ROUNDS: Duration = Duration::from_secs(2);
/// The exit code of a daemon that was removed from its cluster.
const REMOVED: Option<i32> = Some(8);

/// Runs `ddss` with `--json`. An error has the exit code and the message.
fn ask(daemon: &Daemon, words: &[&str]) -> Result<Value, (i32, String)> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut command = Command::new(binary("ddss").unwrap());
        let output = command.args(words).arg("--json").arg("--dir").arg(daemon.folder()).output().unwrap();
        let code = output.status.code();
        if code == Some(0) {
            return Ok(serde_json::from_slice(&output.stdout).unwrap());
        }
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // On a busy machine, or while its term begins.
        if !said.contains("leader does not answer: timed out") || Instant::now() > end {
            return Err((code.unwrap_or(-1), said));
        }
    }
}

/// Repeats a command until its answer is accepted.
fn until(daemon: &Daemon, words: &[&str], good: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let said = ask(daemon, words);
        match &said {
            Ok(value) if good(value) => return value.clone(),
            _ => assert!(Instant::now() < end, "{words:?}: {said:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn client(daemon: &Daemon) -> ScriptedClient {
    ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap()
}

/// Repeats a client command until the answer begins with `ok`.
fn insist(client: &mut ScriptedClient, words: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let said = client.ask(words).unwrap();
        if said.starts_with("ok") {
            return said;
        }
        assert!(Instant::now() < end, "{words}: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The numbers of the nodes that are members.
fn members(nodes: &Value) -> Vec<u64> {
    nodes.as_array().unwrap().iter().filter_map(|node| node["node"].as_u64()).collect()
}

fn are_alive(nodes: &Value, expected: &[u64]) -> bool {
    members(nodes) == expected && nodes.as_array().unwrap().iter().all(|node| node["alive"] == true)
}

/// Starts nodes that found a cluster with equal arguments; each is in its own list.
fn founders(count: u16) -> Vec<Daemon> {
    let options: Vec<_> = (1..=count).map(|node| DaemonOptions::new(node).unwrap()).collect();
    let listens: Vec<_> = options.iter().map(DaemonOptions::listen).collect();
    let start = |option: DaemonOptions| {
        let all = (1..=count).zip(&listens).map(|(node, listen)| DaemonOptions::listening(node, *listen));
        all.fold(option, |option, peer| option.peer(&peer)).start().unwrap()
    };
    let daemons: Vec<_> = options.into_iter().map(start).collect();
    let expected: Vec<u64> = (1..=count.into()).collect();
    for daemon in &daemons {
        until(daemon, &["nodes"], |nodes| are_alive(nodes, &expected));
    }
    daemons
}

/// Waits until exactly these nodes are members.
fn stay(daemon: &Daemon, expected: &[u64]) {
    let end = Instant::now() + SEVERAL_ROUNDS;
    while Instant::now() < end {
        let nodes = ask(daemon, &["nodes"]).unwrap();
        assert_eq!(members(&nodes), expected, "{nodes}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// If this failed, nodes could not be started with equal arguments, or a cluster of four would begin without one of
// them.
#[test]
fn peer_list_may_contain_self_and_learners() {
    let daemons = founders(4);
    let nodes = until(&daemons[3], &["nodes"], |nodes| are_alive(nodes, &[1, 2, 3, 4]));
    assert_eq!(nodes.as_array().unwrap().iter().filter(|node| node["voter"] == true).count(), 3);
}

// If this failed, a founder could never leave: its entry in the lists would bring it back, with a vote and replicas.
#[test]
fn decommissioned_founders_stay_out_and_hold_no_replicas() {
    let daemons = founders(5);
    // The leader is the hardest one to remove, because it is also the first voter.
    let status = until(&daemons[0], &["cluster", "status"], |status| status["leader"].is_u64());
    let leader = status["leader"].as_u64().unwrap();
    let other = leader % 5 + 1;
    let mut rest: Vec<u64> = (1..=5).collect();
    let place = |node: u64| usize::try_from(node).unwrap() - 1;
    for leaver in [leader, other] {
        ask(&daemons[place(leaver)], &["cluster", "leave"]).unwrap();
        rest.retain(|&node| node != leaver);
        until(&daemons[place(rest[0])], &["nodes"], |nodes| are_alive(nodes, &rest));
        stay(&daemons[place(rest[0])], &rest);
    }
    let mut home = client(&daemons[place(rest[0])]);
    for name in ["a", "b", "c", "d"] {
        insist(&mut home, &format!("allocate-mirrored {name} 64"));
        let stat = until(&daemons[place(rest[0])], &["stat", name], |stat| stat["replica"]["state"] == "in sync");
        assert!(rest.contains(&stat["replica"]["node"].as_u64().unwrap()), "{stat}");
    }
}

// If this failed, a node could be added to a running cluster by one node's configuration alone.
#[test]
fn peer_added_to_config_after_bootstrap_is_not_admitted() {
    let mut daemons = founders(3);
    let stranger = DaemonOptions::new(9).unwrap().listen();
    daemons[0].kill().unwrap();
    // All other arguments are unchanged.
    let mut again = Command::new(binary("ddssd").unwrap());
    again.args(["--node", "1", "--listen", &daemons[0].listen().to_string(), "--core", "none", "--dir"]);
    again.arg(daemons[0].folder()).args(["--peer", &format!("9={stranger}")]);
    let mut again = Process::start(again, daemons[0].folder(), "again").unwrap();
    again.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
    until(&daemons[0], &["nodes"], |nodes| are_alive(nodes, &[1, 2, 3]));
    // Node 1 becomes the leader before this ends, because the others lose their votes.
    for node in [1, 2] {
        ask(&daemons[node], &["cluster", "leave"]).unwrap();
    }
    until(&daemons[0], &["cluster", "status"], |status| status["leader"] == 1);
    stay(&daemons[0], &[1]);
}

// If this failed, a removed node would keep serving clients whose writes no member reads.
#[test]
fn removed_live_node_exits_and_reports_why() {
    let mut daemons = founders(3);
    insist(&mut client(&daemons[2]), "allocate of-three 64");
    ask(&daemons[0], &["cluster", "remove", "3", "--force"]).unwrap();
    let status = daemons[2].process().wait(PATIENCE).unwrap().expect("it ends by itself");
    let said = daemons[2].process().stderr();
    assert_eq!(status.code(), REMOVED, "{said}");
    assert!(said.lines().last().unwrap().contains("node 3 was removed from its cluster"), "{said}");
    stay(&daemons[0], &[1, 2]);
    insist(&mut client(&daemons[1]), "allocate of-three 64");
}

// If this failed, the leader could not be removed, or would continue to lead beside the others.
#[test]
fn removed_leader_exits() {
    let mut daemons = founders(3);
    let leader = until(&daemons[0], &["cluster", "status"], |status| status["leader"].is_u64());
    let leader = leader["leader"].as_u64().unwrap() as usize - 1;
    let other = &daemons[(leader + 1) % 3];
    let number = (leader + 1).to_string();
    let (code, said) = ask(other, &["cluster", "remove", &number]).unwrap_err();
    assert!(code == 1 && said.contains("is alive") && said.contains("--force"), "{code}: {said}");
    ask(other, &["cluster", "remove", &number, "--force"]).unwrap();
    let status = daemons[leader].process().wait(PATIENCE).unwrap().expect("it ends by itself");
    assert_eq!(status.code(), REMOVED, "{}", daemons[leader].process().stderr());
    insist(&mut client(&daemons[(leader + 1) % 3]), "allocate after 64");
}

// If this failed, a machine that is switched on again would take its old names, and their gets and releases would fail
// on all nodes.
#[test]
fn removed_node_that_returns_registers_no_names_and_exits() {
    let mut daemons = founders(3);
    insist(&mut client(&daemons[2]), "allocate old 64");
    daemons[2].kill().unwrap();
    assert_eq!(ask(&daemons[0], &["cluster", "remove", "3"]).unwrap()["dropped"], 1);
    // The name is free, and another node takes it.
    let mut on_two = client(&daemons[1]);
    insist(&mut on_two, "allocate old 128");
    for round in 0..2 {
        // The daemon may end before it reports that it is ready.
        let _ = daemons[2].restart();
        let status = daemons[2].process().wait(PATIENCE).unwrap().expect("it ends by itself");
        let said = daemons[2].process().stderr();
        assert_eq!(status.code(), REMOVED, "start {round}: {said}");
        let told = said.find("this node was removed from its cluster: stopping").unwrap_or(said.len());
        assert!(!said[told..].contains(" ready "), "ready after it was removed: {said}");
        assert_eq!(members(&ask(&daemons[0], &["nodes"]).unwrap()), [1, 2]);
    }
    assert_eq!(ask(&daemons[0], &["cluster", "status"]).unwrap()["names"], 1);
    let mut on_one = client(&daemons[0]);
    assert_eq!(insist(&mut on_one, "open old"), "ok 128 bytes at node 2");
    // A fresh node joins under a new number, and the old number is never reused.
    let mut fresh = DaemonOptions::new(4).unwrap().joins(daemons[0].listen()).start().unwrap();
    assert!(fresh.process().stdout().starts_with("ready node 4 "), "{}", fresh.process().stdout());
    let folder = TempNode::new().unwrap();
    write_key(folder.path(), ddss_testkit::TEST_KEY).unwrap();
    let mut old = Command::new(binary("ddssd").unwrap());
    let port = free_tcp_port([127, 0, 0, 3].into()).unwrap();
    old.args(["--node", "3", "--listen", &format!("127.0.0.3:{port}"), "--join", &daemons[0].listen().to_string()]);
    old.arg("--dir").arg(folder.path());
    let mut old = Process::start(old, folder.path(), "old").unwrap();
    let status = old.wait(PATIENCE).unwrap().expect("it does not start");
    assert_eq!(status.code(), Some(6), "{}", old.stderr());
    assert!(old.stderr().contains("number 3 was removed from the cluster"), "{}", old.stderr());
}

// If this failed, a mistyped number would silently cost a serving node and its segments.
#[test]
fn removal_of_live_node_needs_force_and_lists_losses() {
    let daemons = founders(3);
    let mut on_three = client(&daemons[2]);
    for name in ["lost-1", "lost-2"] {
        insist(&mut on_three, &format!("allocate {name} 64"));
    }
    insist(&mut on_three, "allocate-mirrored kept 64");
    until(&daemons[2], &["stat", "kept"], |stat| stat["replica"]["state"] == "in sync");
    let (code, said) = ask(&daemons[0], &["cluster", "remove", "3"]).unwrap_err();
    assert_eq!(code, 1);
    for words in ["node 3 is alive", "2 segments", "lost-1, lost-2", "ddss cluster leave", "--force"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("kept"), "{said}");
    let (code, said) = ask(&daemons[0], &["cluster", "remove", "77"]).unwrap_err();
    assert!(code == 1 && said.contains("node 77 is no member of this cluster"), "{code}: {said}");
    stay(&daemons[0], &[1, 2, 3]);
    assert_eq!(ask(&daemons[0], &["cluster", "remove", "3", "--force"]).unwrap()["dropped"], 2);
    // A repeated request, as after a lost answer, gets the same answer.
    assert_eq!(ask(&daemons[0], &["cluster", "remove", "3"]).unwrap()["dropped"], 2);
    insist(&mut client(&daemons[0]), "open kept");
}
