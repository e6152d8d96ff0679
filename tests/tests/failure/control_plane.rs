//! Control planes of real daemons: their streams, and the detection of failing nodes.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, ErrorKind, Spec};
use ddss_testkit::{Daemon, DaemonOptions, TempNode, binary, free_tcp_port, skipped};
use serde_json::Value;

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(20))).unwrap()
}

fn ddss(daemon: &Daemon, words: &[&str]) -> (String, Value) {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(words).arg("--dir").arg(daemon.folder());
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let json = command.arg("--json").output().unwrap().stdout;
    (text, serde_json::from_slice(&json).unwrap_or(Value::Null))
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

/// Live nodes in the view of one node.
fn alive(daemon: &Daemon) -> Vec<u64> {
    let (_, status) = ddss(daemon, &["cluster", "status"]);
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().filter(|node| node["alive"] == true).filter_map(|node| node["node"].as_u64()).collect()
}

fn until_alive(daemon: &Daemon, nodes: &[u64]) {
    until("who is alive", || {
        let found = alive(daemon);
        if found == nodes { Ok(()) } else { Err(format!("{found:?} and not {nodes:?}")) }
    });
}

/// Starts nodes 1 to `count`, all alive in the view of the first one; `more` adds options to each.
fn cluster(count: u16, more: impl Fn(u16, DaemonOptions) -> DaemonOptions) -> Vec<Daemon> {
    let first = more(1, DaemonOptions::new(1).unwrap().clustered()).start().unwrap();
    let mut daemons = vec![first];
    for node in 2..=count {
        let joins = DaemonOptions::new(node).unwrap().joins(daemons[0].listen());
        daemons.push(more(node, joins).start().unwrap());
    }
    let all: Vec<u64> = (1..=count.into()).collect();
    daemons.iter().for_each(|daemon| until_alive(daemon, &all));
    daemons
}

/// Returns the status code and the body of an HTTP request to the monitoring port.
fn ready(monitor: SocketAddr) -> (u16, String) {
    let mut stream = TcpStream::connect(monitor).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /ready HTTP/1.1\r\nHost: {monitor}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer["HTTP/1.1 ".len()..][..3].parse().unwrap(), answer)
}

/// A port that forwards each connection to `to` and counts them.
struct Forwarder {
    connections: Arc<AtomicUsize>,
}

impl Forwarder {
    fn start(listener: TcpListener, to: SocketAddr) -> Self {
        let connections = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&connections);
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counts.fetch_add(1, Ordering::Relaxed);
                let Ok(other) = TcpStream::connect(to) else { continue };
                for (mut from, mut into) in [(stream.try_clone().unwrap(), other.try_clone().unwrap()), (other, stream)]
                {
                    let _ = (from.set_nodelay(true), into.set_nodelay(true));
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut into);
                        let _ = into.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Self { connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Binds two consecutive free ports.
fn two_ports() -> (TcpListener, TcpListener) {
    loop {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if let Some(next) = port.checked_add(1)
            && let Ok(second) = TcpListener::bind((Ipv4Addr::LOCALHOST, next))
        {
            return (first, second);
        }
    }
}

// If this failed, each allocation of a name at a follower would need a handshake, and wait for its turn.
#[test]
fn name_changes_at_a_follower_share_one_control_stream() {
    const NAMES: usize = 500;
    let (data, control) = two_ports();
    let advertised = data.local_addr().unwrap();
    let options = DaemonOptions::new(1).unwrap().clustered().argument("--advertise").argument(advertised.to_string());
    let leader = options.start().unwrap();
    let _data = Forwarder::start(data, leader.listen());
    let control_port = SocketAddr::new(leader.listen().ip(), leader.listen().port() + 1);
    let control = Forwarder::start(control, control_port);
    let follower = DaemonOptions::new(2).unwrap().joins(advertised).start().unwrap();
    let client = client(&follower);
    client.segment("before").allocate(Spec::new(64)).unwrap();
    let before = control.connections();
    let segments: Vec<_> =
        (0..NAMES).map(|index| client.segment(&format!("name-{index}")).allocate(Spec::new(64)).unwrap()).collect();
    let made = control.connections() - before;
    segments.into_iter().for_each(|segment| segment.release().unwrap());
    let released = control.connections() - before - made;
    assert!(made + released <= 8, "{made} streams for {NAMES} names, {released} to release them");
}

fn faulty(order: &Path, options: DaemonOptions) -> DaemonOptions {
    options.command_prefix(vec!["env".to_owned(), format!("DDSS_TEST_FAULT={}", order.display())])
}

/// Expects a failover when only the progress thread of that node hangs, and that the node is alive after it resumes.
fn a_mirror_takes_over_from_a_hung_progress_thread_of(victim: usize) {
    if !cfg!(debug_assertions) {
        return skipped("hung progress thread", "only a debug build of the daemon has a part hang");
    }
    let folder = TempNode::new().unwrap();
    let order = folder.join("order");
    let mut daemons =
        cluster(3, |node, options| if usize::from(node) == victim { faulty(&order, options) } else { options });
    let (home, other) = (client(&daemons[victim - 1]), client(&daemons[victim % 3]));
    let segment = home.segment("mirrored").allocate(Spec::new(64).copies(2)).unwrap();
    assert_eq!(usize::from(segment.id().home().0), victim);
    until("in sync", || {
        let (_, stat) = ddss(&daemons[victim - 1], &["stat", "mirrored"]);
        if stat["replica"]["state"] == "in sync" { Ok(()) } else { Err(stat.to_string()) }
    });
    segment.put(0, b"acknowledged").unwrap();
    let seen = until("open", || other.segment("mirrored").open().map_err(|error| error.to_string()));
    std::fs::write(&order, "a progress thread hangs").unwrap();
    let rest: Vec<u64> = (1..=3).filter(|&node| node != victim as u64).collect();
    until_alive(&daemons[victim % 3], &rest);
    let mut bytes = [0; 12];
    until("the mirror takes over", || seen.get_into(0, &mut bytes).map_err(|error| error.to_string()));
    assert_eq!(&bytes, b"acknowledged");
    assert!(until("put", || seen.put(0, b"after").map_err(|error| error.to_string())).version.0 > 1);
    assert!(daemons[victim - 1].process().wait(Duration::ZERO).unwrap().is_none(), "the daemon lives all the same");
    std::fs::remove_file(&order).unwrap();
    until_alive(&daemons[victim % 3], &[1, 2, 3]);
    let again = until("open at the old home", || home.segment("mirrored").open().map_err(|error| error.to_string()));
    let mut bytes = [0; 5];
    until("get at the old home", || again.get_into(0, &mut bytes).map_err(|error| error.to_string()));
    assert_eq!(&bytes, b"after", "the old home serves nothing old");
}

// If this failed, a node with a hung progress thread would keep unreachable segments alive by its control plane.
#[test]
fn replica_takes_over_from_follower_with_hung_progress_thread() {
    a_mirror_takes_over_from_a_hung_progress_thread_of(2);
}

// If this failed, a leader with a hung progress thread would never report itself.
#[test]
fn replica_takes_over_from_leader_with_hung_progress_thread() {
    a_mirror_takes_over_from_a_hung_progress_thread_of(1);
}

// If this failed, work would be sent to a node that cannot register names, and its clients would wait for locks without
// a holder.
#[test]
fn leader_without_majority_is_reported_by_itself_and_its_learners() {
    let monitors: Vec<SocketAddr> = (1..=4)
        .map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap())))
        .collect();
    let mut daemons = cluster(4, |node, options| {
        options.argument("--metrics-listen").argument(monitors[usize::from(node) - 1].to_string())
    });
    let (leader, learner) = (client(&daemons[0]), client(&daemons[3]));
    let segment = leader.segment("kept").allocate(Spec::new(64)).unwrap();
    let far = learner.segment("far").allocate(Spec::new(64)).unwrap();
    until("three vote", || {
        let (_, status) = ddss(&daemons[0], &["cluster", "status"]);
        let votes = |node: &Value| node["voter"] == true;
        let voters = status["nodes"].as_array().map_or(0, |nodes| nodes.iter().filter(|node| votes(node)).count());
        if voters == 3 && status["leader"] == 1 && status["majority"] == true {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    daemons[1..3].iter_mut().for_each(|daemon| daemon.kill().unwrap());
    for node in [0, 3] {
        until("not ready", || {
            let (code, said) = ready(monitors[node]);
            if code == 503 && said.contains("no majority") { Ok(()) } else { Err(format!("node {}: {said}", node + 1)) }
        });
        for words in [&["cluster", "status"][..], &["nodes"], &["status"]] {
            let (text, json) = ddss(&daemons[node], words);
            assert!(text.contains("no majority"), "node {}: {words:?}: {text}", node + 1);
            assert!(words == ["nodes"] || json.to_string().contains("\"majority\":false"), "{json}");
        }
    }
    until_alive(&daemons[0], &[1, 4]);
    for client in [&leader, &learner] {
        let refused = client.segment("in vain").allocate(Spec::new(64)).unwrap_err();
        assert!(refused.kind() == ErrorKind::NoMajority && !refused.is_indeterminate(), "{refused:?}");
        assert!(refused.to_string().contains("no majority"), "{refused}");
    }
    for (client, name) in [(&leader, "kept"), (&learner, "far")] {
        let refused = client.segment(name).open().unwrap().release().unwrap_err();
        assert!(refused.kind() == ErrorKind::NoMajority && !refused.is_indeterminate(), "{refused:?}");
    }
    // The call did nothing, and calls without need of a majority continue.
    segment.put(0, b"goes on").unwrap();
    far.put(0, b"goes on").unwrap();
    daemons[1].restart().unwrap();
    for node in [0, 3] {
        until("ready again", || {
            let (code, said) = ready(monitors[node]);
            if code == 200 { Ok(()) } else { Err(said) }
        });
    }
    until("allocate", || leader.segment("in vain").allocate(Spec::new(64)).map_err(|error| error.to_string()));
    until("release", || {
        leader.segment("far").open().and_then(|segment| segment.release()).map_err(|error| error.to_string())
    });
}

/// Returns the snapshot that a node has on its disk, if there is one.
fn snapshot_of(folder: &Path) -> Option<Value> {
    std::fs::read_dir(folder).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return snapshot_of(&path);
        }
        let is_snapshot = path.file_name().is_some_and(|name| name == "directory.json");
        is_snapshot.then(|| serde_json::from_slice(&std::fs::read(&path).unwrap()).expect("a snapshot is whole"))
    })
}

// If this failed, a node that dies while it installs a snapshot of the directory would lack names forever, or not
// restart.
#[test]
fn node_killed_while_it_installs_a_snapshot_learns_all_names() {
    const NAMES: usize = 6000;
    const ROUNDS: u64 = 12;
    let mut daemons = cluster(3, |_, options| options);
    let first = client(&daemons[0]);
    first.segment("before").allocate(Spec::new(8)).unwrap();
    daemons[2].kill().unwrap();
    let names: Vec<String> = (0..NAMES).map(|number| format!("names/{number}")).collect();
    for names in names.chunks(1024) {
        let mut batch = ddss::Batch::new();
        for name in names {
            batch.allocate(name, 8).unwrap();
        }
        first.run(batch).unwrap().ok().unwrap();
    }
    // The leader has dropped the start of its log: only a snapshot brings the third node up to date.
    let last_of =
        |snapshot: Option<Value>| snapshot.map_or(0, |found| found["meta"]["last_log_id"]["index"].as_u64().unwrap());
    let before = last_of(snapshot_of(daemons[2].folder()));
    until("a snapshot", || {
        let made = last_of(snapshot_of(daemons[0].folder()));
        if made > before + 1000 { Ok(()) } else { Err(format!("the last is of entry {made}")) }
    });
    for round in 0..ROUNDS {
        daemons[2].restart().unwrap();
        std::thread::sleep(Duration::from_millis(round * 23));
        daemons[2].kill().unwrap();
    }
    daemons[2].restart().unwrap();
    until_alive(&daemons[0], &[1, 2, 3]);
    let third = client(&daemons[2]);
    for name in names.iter().step_by(97) {
        until(name, || third.segment(name).open().map_err(|error| error.to_string()));
    }
    let installed = last_of(snapshot_of(daemons[2].folder()));
    assert!(installed > before, "the third node got no snapshot: {installed} after {before}");
}
