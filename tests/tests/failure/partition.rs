//! Network partitions of three nodes: calls across them end within the deadline, other calls continue, and healed nodes
//! recover by themselves.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, DaemonOptions, LinkFault, NetworkNamespaces, ScriptedClient, binary, skipped};
use serde_json::Value;

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
/// Time limit: a loaded machine is slow, and TCP retries a healed path only after a while.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of a call with a deadline of 2 s on a loaded machine, shorter than any timeout of TCP.
const DEADLINE_AND_MORE: Duration = Duration::from_secs(8);

/// Three nodes, each the home of one segment `of-N`.
struct Three {
    daemons: Vec<Daemon>,
    network: NetworkNamespaces,
}

impl Three {
    fn start(test: &str) -> Option<Three> {
        let network = match NetworkNamespaces::new(3) {
            Ok(network) => network,
            Err(error) => {
                skipped(test, &format!("it needs root and network namespaces: {error}"));
                return None;
            }
        };
        let options = |node: u8| {
            let listen = SocketAddr::new(network.address(node), 7400);
            DaemonOptions::listening(node.into(), listen).inside(&network.inside(node))
        };
        let mut daemons = vec![options(1).clustered().start().unwrap()];
        for node in 2..=3 {
            daemons.push(options(node).joins(daemons[0].listen()).start().unwrap());
        }
        let three = Three { daemons, network };
        three.until_whole();
        for node in 1..=3 {
            let mut home = three.client(node);
            home.ask(&format!("allocate of-{node} 4096")).unwrap();
            assert_eq!(home.ask("put 0 4096 1").unwrap(), "ok version 1");
        }
        Some(three)
    }

    fn client(&self, node: usize) -> ScriptedClient {
        ScriptedClient::start(CLIENT, self.daemons[node - 1].folder(), "auto").unwrap()
    }

    /// Starts a client on `node` that has opened the segment of `home`.
    fn opened(&self, node: usize, home: usize) -> ScriptedClient {
        let mut client = self.client(node);
        let end = Instant::now() + PATIENCE;
        loop {
            let said = client.ask(&format!("open of-{home}")).unwrap();
            if said == format!("ok 4096 bytes at node {home}") {
                return client;
            }
            assert!(Instant::now() < end, "of-{home} on node {node}: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn status(&self, node: usize) -> Value {
        let mut command = Command::new(binary("ddss").unwrap());
        command.args(["cluster", "status", "--json", "--dir"]).arg(self.daemons[node - 1].folder());
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap_or(Value::Null)
    }

    fn until(&self, node: usize, what: &str, good: impl Fn(&Value) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status(node);
            if good(&status) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn until_whole(&self) {
        for node in 1..=3 {
            self.until(node, "all three are alive and vote", |status| {
                let all = |key: &str| {
                    status["nodes"].as_array().is_some_and(|nodes| {
                        nodes.len() == 3 && nodes.iter().all(|node| node[key] == Value::Bool(true))
                    })
                };
                all("alive") && all("voter") && status["leader"].is_u64()
            });
        }
    }

    /// Expects that all segments are readable and writable from all nodes.
    fn is_whole(&self) {
        self.until_whole();
        for node in 1..=3 {
            for home in 1..=3 {
                let mut client = self.opened(node, home);
                let said = client.ask("put 0 4096 9").unwrap();
                assert!(said.starts_with("ok version"), "{said}");
                let said = client.ask("get 0 4096 9").unwrap();
                assert!(said.ends_with("equal"), "{said}");
            }
        }
    }
}

/// Expects that calls end with an error that names the path, within their deadline.
fn ends_in_its_deadline(client: &mut ScriptedClient, call: &str) {
    let began = Instant::now();
    let said = client.ask(call).unwrap();
    assert!(said.starts_with("error"), "{call}: {said}");
    assert!(began.elapsed() < DEADLINE_AND_MORE, "{call} took {:?}: {said}", began.elapsed());
}

/// Expects that calls between the two other nodes are not disturbed.
fn keeps_working(client: &mut ScriptedClient) {
    for turn in 0..100 {
        let said = client.ask(&format!("put 0 4096 {turn}")).unwrap();
        assert!(said.starts_with("ok version"), "{said}");
        let said = client.ask(&format!("get 0 4096 {turn}")).unwrap();
        assert!(said.ends_with("equal"), "{said}");
    }
}

fn cut_and_heal(test: &str, how: LinkFault) {
    let Some(three) = Three::start(test) else { return };
    let (mut to_cut, mut others) = (three.opened(1, 3), three.opened(1, 2));
    let (mut from_cut, mut at_home) = (three.opened(3, 2), three.opened(3, 3));
    three.network.cut(3, how).unwrap();
    for call in ["put 0 4096 2", "get 0 4096 2", "put 0 8 2"] {
        ends_in_its_deadline(&mut to_cut, call);
        ends_in_its_deadline(&mut from_cut, call);
        keeps_working(&mut others);
    }
    // Segments at home on the node itself need no network.
    keeps_working(&mut at_home);
    three.until(1, "node 3 is declared dead", |status| status["nodes"][2]["alive"] == Value::Bool(false));
    assert_eq!(three.client(2).ask("allocate meanwhile 64").unwrap(), "ok 64 bytes");
    ends_in_its_deadline(&mut three.client(3), "allocate alone 64");
    keeps_working(&mut others);
    three.network.heal(3);
    three.is_whole();
    let epoch = three.status(1)["nodes"][2]["epoch"].clone();
    assert!(epoch.as_u64().unwrap() >= 2, "{epoch}");
}

// If this failed, one broken cable would stop a cluster, or need manual repair.
#[test]
fn partitioned_node_delays_no_other_node_and_rejoins() {
    cut_and_heal("partitioned_node_delays_no_other_node_and_rejoins", LinkFault::Both);
}

// If this failed, a path that is broken in one direction would appear healthy, and calls on it would hang.
#[test]
fn node_that_receives_nothing_delays_no_other_node_and_rejoins() {
    cut_and_heal("node_that_receives_nothing_delays_no_other_node_and_rejoins", LinkFault::Deaf);
}

// If this failed, a path that is broken in the other direction would appear healthy, and calls on it would hang.
#[test]
fn node_that_sends_nothing_delays_no_other_node_and_rejoins() {
    cut_and_heal("node_that_sends_nothing_delays_no_other_node_and_rejoins", LinkFault::Mute);
}

// If this failed, all names would be lost with the leader.
#[test]
fn new_leader_is_elected_when_leader_is_partitioned() {
    let Some(three) = Three::start("new_leader_is_elected_when_leader_is_partitioned") else { return };
    assert_eq!(three.status(2)["leader"], 1);
    three.network.cut(1, LinkFault::Both).unwrap();
    three.until(2, "another leads", |status| matches!(status["leader"].as_u64(), Some(2 | 3)));
    three.until(3, "node 1 is declared dead", |status| status["nodes"][0]["alive"] == Value::Bool(false));
    assert_eq!(three.client(3).ask("allocate one-name 64").unwrap(), "ok 64 bytes");
    // The old leader cannot allocate the same name.
    ends_in_its_deadline(&mut three.client(1), "allocate one-name 64");
    three.network.heal(1);
    three.is_whole();
    assert!(three.client(1).ask("allocate one-name 64").unwrap().contains("exists"));
}

// If this failed, one slow link would slow down all nodes.
#[test]
fn slow_link_slows_no_other_node() {
    let Some(three) = Three::start("slow_link_slows_no_other_node") else { return };
    let (mut to_slow, mut others) = (three.opened(1, 3), three.opened(1, 2));
    let how = three.network.slow(3).unwrap();
    eprintln!("the road of node 3: {how}");
    for turn in 0..5 {
        // The call succeeds or ends at its deadline.
        let began = Instant::now();
        let said = to_slow.ask(&format!("put 0 4096 {turn}")).unwrap();
        assert!(said.starts_with("ok version") || said.starts_with("error"), "{said}");
        assert!(began.elapsed() < DEADLINE_AND_MORE, "{:?}: {said}", began.elapsed());
        keeps_working(&mut others);
    }
    three.network.heal(3);
    three.is_whole();
}
