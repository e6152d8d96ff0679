//! Health that is true on every node: `ddss nodes`, `ddss status`, `/ready` and the gauges agree with the cluster's state.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, ErrorKind, Spec};
use ddss_testkit::{Daemon, DaemonOptions, LinkFault, NetworkNamespaces, free_tcp_port, run_ddss, skipped};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);
const DATA_PORT: u16 = 7400;
const CONTROL_PORT: &str = "7401";
/// Deadline of a client's call.
const CALL_MAX: Duration = Duration::from_secs(2);

/// A node, and the port of its monitor.
struct Node {
    daemon: Daemon,
    monitor: SocketAddr,
    /// Network namespace of the node.
    namespace: Option<String>,
}

/// The health of a cluster as one node shows it.
#[derive(PartialEq, Eq, Debug)]
struct View {
    alive: Vec<u64>,
    voters: Vec<u64>,
    /// Leader by `ddss cluster status`, and by the gauge.
    leader: [Option<u64>; 2],
    /// Majority by `ddss cluster status`, and by the gauge.
    majority: [bool; 2],
    is_ready: bool,
}

impl Node {
    fn start(options: DaemonOptions) -> Node {
        let monitor = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()));
        let daemon = options.argument("--metrics-listen").argument(monitor.to_string()).start().unwrap();
        Node { daemon, monitor, namespace: None }
    }

    /// Starts a node in a network namespace.
    fn start_inside(network: &NetworkNamespaces, node: u8, first: Option<&Node>) -> Node {
        let monitor = SocketAddr::from((Ipv4Addr::LOCALHOST, 7480));
        let options = DaemonOptions::listening(node.into(), SocketAddr::new(network.address(node), DATA_PORT));
        let options = options.inside(&network.inside(node)).argument("--metrics-listen").argument(monitor.to_string());
        let daemon = match first {
            None => options.clustered().start(),
            Some(first) => options.joins(first.daemon.listen()).start(),
        };
        Node { daemon: daemon.unwrap(), monitor, namespace: Some(network.inside(node)) }
    }

    fn json(&self, words: &[&str]) -> Value {
        let said = run_ddss(self.daemon.folder(), &[words, &["--json"]].concat(), "").unwrap();
        serde_json::from_str(&said.out).unwrap_or(Value::Null)
    }

    fn http(&self, path: &str) -> (u16, String) {
        let connect = || {
            if let Some(namespace) = &self.namespace {
                let namespace = File::open(format!("/run/netns/{namespace}")).unwrap();
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            }
            TcpStream::connect(self.monitor).unwrap()
        };
        // The thread that enters a namespace ends there.
        let mut stream = thread::scope(|scope| scope.spawn(connect).join()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.monitor).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer["HTTP/1.1 ".len()..][..3].parse().unwrap(), answer)
    }

    fn view(&self) -> View {
        let (seen, nodes) = (self.json(&["cluster", "status"]), self.json(&["nodes"]));
        let listed = |key: &str| {
            let nodes = nodes.as_array().into_iter().flatten();
            nodes.filter(|node| node[key] == true).filter_map(|node| node["node"].as_u64()).collect()
        };
        let (_, metrics) = self.http("/metrics");
        let gauge = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok();
            metrics.lines().find_map(value).unwrap_or_else(|| panic!("no {name}")) as u64
        };
        let leader = [seen["leader"].as_u64(), Some(gauge("ddss_leader")).filter(|&leader| leader > 0)];
        let majority = [seen["majority"] == true, gauge("ddss_majority") == 1];
        View {
            alive: listed("alive"),
            voters: listed("voter"),
            leader,
            majority,
            is_ready: self.http("/ready").0 == 200,
        }
    }

    /// Returns true if `ddss status` shows the same. It waits for nodes that are cut off, so it is asked last.
    fn status_agrees(&self, view: &View) -> bool {
        let seen = &self.json(&["status"])["cluster"];
        seen["majority"] == view.majority[0]
            && seen["alive"] == view.alive.len()
            && seen["leader"].as_u64() == view.leader[0]
    }

    /// Expects that the node shows these nodes as the live ones of a cluster that decides.
    fn until_serving(&self, alive: &[u64], voters: usize) {
        self.until("serving", |view| {
            view.alive == alive
                && view.voters.len() == voters
                && view.leader.iter().all(|leader| leader.is_some_and(|leader| alive.contains(&leader)))
                && view.majority == [true; 2]
                && view.is_ready
        });
    }

    /// Expects that the node shows these nodes as live, and no majority.
    fn until_lost(&self, alive: &[u64]) {
        self.until("lost", |view| {
            let is_leader_alive = view.leader.iter().flatten().all(|leader| alive.contains(leader));
            view.alive == alive && view.majority == [false; 2] && !view.is_ready && is_leader_alive
        });
    }

    fn client(&self, timeout: Duration) -> Client {
        Client::connect_with(ConnectOptions::new().directory(self.daemon.folder()).timeout(timeout)).unwrap()
    }

    fn refuses_names(&self) {
        let refused = self.client(CALL_MAX).segment("in vain").allocate(Spec::new(64)).unwrap_err();
        assert!(refused.kind() == ErrorKind::NoMajority && !refused.is_indeterminate(), "{refused:?}");
    }

    fn until(&self, what: &str, is_good: impl Fn(&View) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let view = self.view();
            if is_good(&view) && self.status_agrees(&view) {
                return;
            }
            let ready = || self.http("/ready").1;
            assert!(Instant::now() < end, "{what}: {view:?} {}", ready());
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Starts nodes 1 to `count`, of which `voters` vote.
fn cluster(count: u16, voters: usize) -> Vec<Node> {
    let mut nodes = vec![Node::start(DaemonOptions::new(1).unwrap().clustered())];
    for node in 2..=count {
        nodes.push(Node::start(DaemonOptions::new(node).unwrap().joins(nodes[0].daemon.listen())));
    }
    let all: Vec<u64> = (1..=count.into()).collect();
    nodes.iter().for_each(|node| node.until_serving(&all, voters));
    nodes
}

// If this failed, work would be sent to the last node of a dead cluster, and its operator would look elsewhere.
#[test]
fn survivor_shows_dead_voters_and_is_not_ready() {
    // Of two nodes the first votes, of four the first three: learners and a voter survive.
    let cases = [(2, 1, &[1][..]), (4, 3, &[1, 2, 3]), (3, 3, &[1, 3])];
    let check = |(count, voters, killed): (u16, usize, &[usize])| {
        let mut nodes = cluster(count, voters);
        killed.iter().for_each(|&node| nodes[node - 1].daemon.kill().unwrap());
        let survivor = (1..=nodes.len()).find(|node| !killed.contains(node)).unwrap();
        nodes[survivor - 1].until_lost(&[survivor as u64]);
        nodes[survivor - 1].refuses_names();
        for &node in killed {
            nodes[node - 1].daemon.restart().unwrap();
        }
        let all: Vec<u64> = (1..=count.into()).collect();
        nodes.iter().for_each(|node| node.until_serving(&all, voters));
    };
    thread::scope(|scope| {
        cases.into_iter().for_each(|case| drop(scope.spawn(move || check(case))));
    });
}

// If this failed, a leader whose machines were all installed anew would stay ready, and `allocate` would end without an
// outcome.
#[test]
fn nodes_of_another_cluster_do_not_count() {
    let mut nodes = cluster(4, 3);
    let voter = |node: &usize| nodes[0].view().voters.contains(&(*node as u64 + 1));
    let replaced: Vec<usize> = (1..4).filter(voter).collect();
    assert_eq!(replaced.len(), 2);
    let alive: Vec<u64> = (0..4).filter(|node| !replaced.contains(node)).map(|node| node as u64 + 1).collect();
    replaced.iter().for_each(|&node| nodes[node].daemon.kill().unwrap());
    // Each begins a cluster of its own, under the number, at the address and with the key of the lost one.
    let foreign = |&node: &usize| DaemonOptions::listening(node as u16 + 1, nodes[node].daemon.listen()).clustered();
    let others: Vec<Daemon> = replaced.iter().map(|node| foreign(node).start().unwrap()).collect();
    for survivor in alive.iter().map(|&node| &nodes[node as usize - 1]) {
        survivor.until_lost(&alive);
        survivor.refuses_names();
    }
    drop(others);
    replaced.iter().for_each(|&node| nodes[node].daemon.restart().unwrap());
    nodes.iter().for_each(|node| node.until_serving(&[1, 2, 3, 4], 3));
}

/// Starts nodes in network namespaces, and returns them once they serve.
fn cluster_inside(test: &str, count: u8, voters: usize) -> Option<(Vec<Node>, NetworkNamespaces)> {
    let network = match NetworkNamespaces::new(count) {
        Ok(network) => network,
        Err(error) => {
            skipped(test, &format!("it needs root and network namespaces: {error}"));
            return None;
        }
    };
    let mut nodes = vec![Node::start_inside(&network, 1, None)];
    for node in 2..=count {
        nodes.push(Node::start_inside(&network, node, Some(&nodes[0])));
    }
    let all: Vec<u64> = (1..=count.into()).collect();
    nodes.iter().for_each(|node| node.until_serving(&all, voters));
    Some((nodes, network))
}

// If this failed, work would be sent to a node whose calls reach nobody, though it is reached.
#[test]
fn node_whose_calls_are_lost_is_not_ready() {
    let test = "node_whose_calls_are_lost_is_not_ready";
    let Some((nodes, network)) = cluster_inside(test, 3, 3) else { return };
    let leader = nodes[0].view().leader[0].unwrap();
    let victim = if leader == 2 { 3 } else { 2 };
    if let Err(error) = network.drop_outgoing(victim, &["-p", "tcp", "--dport", CONTROL_PORT]) {
        return skipped(test, &format!("it needs iptables: {error}"));
    }
    // It hears the leader, so that it knows of each death.
    let muted = &nodes[usize::from(victim) - 1];
    muted.until("muted", |view| !view.is_ready && view.majority == [false; 2] && view.alive == [1, 2, 3]);
    muted.refuses_names();
    let others = (1..).zip(&nodes).filter(|&(node, _)| node != victim);
    others.for_each(|(_, node)| node.until_serving(&[1, 2, 3], 3));
    network.heal(victim);
    nodes.iter().for_each(|node| node.until_serving(&[1, 2, 3], 3));
}

// If this failed, work would be sent to a node that has not heard of any name.
#[test]
fn joining_node_is_not_ready_without_the_directory() {
    let test = "joining_node_is_not_ready_without_the_directory";
    let Ok(network) = NetworkNamespaces::new(2) else {
        return skipped(test, "it needs root and network namespaces");
    };
    let first = Node::start_inside(&network, 1, None);
    first.until_serving(&[1], 1);
    let client = first.client(PATIENCE);
    (0..100).for_each(|name| drop(client.segment(&format!("name-{name}")).allocate(Spec::new(64)).unwrap()));
    // Heartbeats are short, and pass.
    let to = network.address(2).to_string();
    let long = ["-p", "tcp", "-d", &to, "--dport", CONTROL_PORT, "-m", "length", "--length", "1000:65535"];
    if let Err(error) = network.drop_outgoing(1, &long) {
        return skipped(test, &format!("it needs iptables: {error}"));
    }
    let second = Node::start_inside(&network, 2, Some(&first));
    for _ in 0..30 {
        let (code, why) = second.http("/ready");
        assert_eq!(code, 503, "{why}");
        thread::sleep(Duration::from_millis(100));
    }
    network.heal(1);
    second.until_serving(&[1, 2], 1);
    assert!(second.client(PATIENCE).segment("name-99").open().is_ok());
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Stopped,
    Cut(LinkFault),
    /// A node of another cluster, with the same key and number, has its address.
    Replaced,
}

/// A cluster in network namespaces, and its faults.
struct Faulty {
    nodes: Vec<Node>,
    network: NetworkNamespaces,
    foreign: Vec<Daemon>,
}

impl Faulty {
    const VOTERS: usize = 3;

    fn daemon(&mut self, node: u64) -> &mut Daemon {
        &mut self.nodes[node as usize - 1].daemon
    }

    fn inflict(&mut self, fault: Fault, victim: u64) {
        let namespace = self.network.inside(victim as u8);
        match fault {
            Fault::Killed => self.daemon(victim).kill().unwrap(),
            Fault::Stopped => self.daemon(victim).pause().unwrap(),
            Fault::Cut(how) => self.network.cut(victim as u8, how).unwrap(),
            Fault::Replaced => {
                self.daemon(victim).kill().unwrap();
                let options = DaemonOptions::listening(victim as u16, self.daemon(victim).listen());
                self.foreign.push(options.inside(&namespace).clustered().start().unwrap());
            }
        }
    }

    fn heal(&mut self, fault: Fault, victim: u64) {
        self.foreign.clear();
        match fault {
            Fault::Killed | Fault::Replaced => self.daemon(victim).restart().unwrap(),
            Fault::Stopped => self.daemon(victim).resume().unwrap(),
            Fault::Cut(_) => self.network.heal(victim as u8),
        }
    }

    /// Returns the leader, the other voters and the learner.
    fn roles(&self) -> (u64, [u64; 2], u64) {
        let all: Vec<u64> = (1..=self.nodes.len() as u64).collect();
        self.nodes.iter().for_each(|node| node.until_serving(&all, Self::VOTERS));
        let view = self.nodes[0].view();
        let leader = view.leader[0].unwrap();
        let voters: Vec<u64> = view.voters.iter().copied().filter(|&node| node != leader).collect();
        let learner = all.into_iter().find(|node| !view.voters.contains(node)).unwrap();
        (leader, voters.try_into().unwrap(), learner)
    }

    /// Expects that every node shows a fault of these victims, and that it shows their return.
    fn check(&mut self, fault: Fault, victims: &[u64]) {
        victims.iter().for_each(|&victim| self.inflict(fault, victim));
        let alive: Vec<u64> = (1..=self.nodes.len() as u64).filter(|node| !victims.contains(node)).collect();
        // The votes of one victim move to the others.
        let is_lost = victims.len() > 1;
        let shows_truth = |&node: &u64| match (&self.nodes[node as usize - 1], alive.contains(&node)) {
            (node, true) if is_lost => node.until_lost(&alive),
            (node, true) => node.until_serving(&alive, Self::VOTERS),
            (cut_off, false) => cut_off.until_lost(&[node]),
        };
        let shown: Vec<u64> = match fault {
            Fault::Cut(_) => (1..=self.nodes.len() as u64).collect(),
            _ => alive.clone(),
        };
        thread::scope(|scope| shown.iter().for_each(|node| drop(scope.spawn(|| shows_truth(node)))));
        let refuses = |node: &&u64| is_lost || !alive.contains(node);
        thread::scope(|scope| {
            let refusing = shown.iter().filter(refuses).map(|&node| &self.nodes[node as usize - 1]);
            refusing.for_each(|node| drop(scope.spawn(|| node.refuses_names())));
        });
        victims.iter().for_each(|&victim| self.heal(fault, victim));
    }
}

// If this failed, a node would show something else than the truth, in a role or after a fault that has no test of its
// own.
#[test]
fn every_node_shows_the_truth_after_each_fault_of_each_role() {
    let faults = [
        Fault::Killed,
        Fault::Stopped,
        Fault::Cut(LinkFault::Both),
        Fault::Cut(LinkFault::Deaf),
        Fault::Cut(LinkFault::Mute),
        Fault::Replaced,
    ];
    let check = |fault| {
        let test = "every_node_shows_the_truth_after_each_fault_of_each_role";
        let Some((nodes, network)) = cluster_inside(test, 4, Faulty::VOTERS) else { return };
        let mut faulty = Faulty { nodes, network, foreign: Vec::new() };
        let learner = faulty.roles().2;
        faulty.check(fault, &[learner]);
        let voter = faulty.roles().1[0];
        faulty.check(fault, &[voter]);
        let leader = faulty.roles().0;
        faulty.check(fault, &[leader]);
        let voters = faulty.roles().1;
        faulty.check(fault, &voters);
        faulty.roles();
    };
    thread::scope(|scope| faults.into_iter().for_each(|fault| drop(scope.spawn(move || check(fault)))));
}
