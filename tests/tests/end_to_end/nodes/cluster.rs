//! A cluster as an operator sets it up: keys, nodes that join and leave, and nodes that do not belong to it.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, DaemonOptions, Process, ScriptedClient, TempNode, binary, write_key};
use serde_json::Value;

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
const PATIENCE: Duration = Duration::from_secs(30);
/// Refusal of a command whose leader was slow.
const SLOW_LEADER: &str = "leader does not answer: timed out";
const OTHER_KEY: &str = "0000000000000000000000000000000000000000000000000000000000000002";

/// Exit code, standard output and standard error of a program of the workspace.
fn run(program: &str, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(binary(program).unwrap()).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

// If this failed, a cluster could not be set up by one command, or a second one would lose the first one's key.
#[test]
fn cluster_key_is_created_and_shown_by_command() {
    let node = TempNode::new().unwrap();
    let folder = node.path().to_str().unwrap();
    let (code, _, why) = run("ddss", &["cluster", "token", "--dir", folder]);
    assert_eq!(code, 1);
    assert!(why.contains("ddss cluster init"), "{why}");
    let (code, out, why) = run("ddss", &["cluster", "init", "--dir", folder, "--json"]);
    assert_eq!(code, 0, "{why}");
    let made: Value = serde_json::from_str(&out).unwrap();
    let path = node.join("state/cluster.key");
    assert_eq!(made["key_file"].as_str(), path.to_str());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let (code, token, _) = run("ddss", &["cluster", "token", "--dir", folder]);
    assert_eq!((code, token.trim().len()), (0, 64));
    // Root sees the key of a packaged daemon, whose user is another one, but does not use it.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
        assert_eq!(run("ddss", &["cluster", "token", "--dir", folder]).1, token);
        let (code, _, why) = run("ddssd", &["--dir", folder, "--listen", "127.0.0.1:0"]);
        assert_eq!(code, 5, "{why}");
        std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    }
    let (code, _, why) = run("ddss", &["cluster", "init", "--dir", folder]);
    assert_eq!(code, 1);
    assert!(why.contains("belongs to a cluster"), "{why}");
    assert_eq!(run("ddss", &["cluster", "token", "--dir", folder]).1, token);
}

// If this failed, a node would listen to unauthenticated peers, or give the operator no next step.
#[test]
fn node_without_key_does_not_listen_and_logs_the_next_step() {
    let node = TempNode::new().unwrap();
    let folder = node.path().to_str().unwrap();
    for words in [["--listen", "127.0.0.1:0"], ["--peer", "2=127.0.0.2:7400"]] {
        let (code, _, why) = run("ddssd", &[&["--dir", folder][..], &words[..]].concat());
        assert_eq!(code, 5, "{words:?}");
        assert!(why.contains("ddss cluster init"), "{words:?}: {why}");
    }
    let mut alone = DaemonOptions::new(1).unwrap().start().unwrap();
    assert!(alone.process().stdout().trim_end().ends_with("listen none"));
    let inode = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
    let tcp = std::fs::read_to_string(format!("/proc/{}/net/tcp", alone.process().pid())).unwrap();
    let sockets: Vec<_> = tcp.lines().skip(1).filter_map(inode).collect();
    for descriptor in std::fs::read_dir(format!("/proc/{}/fd", alone.process().pid())).unwrap() {
        let target = std::fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        assert!(!sockets.iter().any(|inode| target == format!("socket:[{inode}]")), "{target} is a TCP socket");
    }
}

// If this failed, two clusters on one network could read each other's segments.
#[test]
fn node_with_other_key_is_refused_and_learns_nothing() {
    let (a, b) = (DaemonOptions::new(1).unwrap(), DaemonOptions::new(2).unwrap());
    let (a, b) = (a.peer(&b).key(OTHER_KEY), b);
    let b = b.peer(&a);
    let (a, mut b) = (a.start().unwrap(), b.start().unwrap());
    let mut on_a = ScriptedClient::start(CLIENT, a.folder(), "rcq").unwrap();
    on_a.ask("allocate secret 64").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !b.process().stderr().contains("another cluster key") {
        assert!(Instant::now() < end, "{}", b.process().stderr());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut on_b = ScriptedClient::start(CLIENT, b.folder(), "rcq").unwrap();
    assert!(!on_b.ask("open secret").unwrap().starts_with("ok"));
    // With the right key it belongs to the cluster, after a restart and without any other change.
    b.kill().unwrap();
    write_key(b.folder(), OTHER_KEY).unwrap();
    b.restart().unwrap();
    let mut on_b = ScriptedClient::start(CLIENT, b.folder(), "rcq").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let said = on_b.ask("open secret").unwrap();
        if said.starts_with("ok") {
            break;
        }
        assert!(Instant::now() < end, "{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Cluster state of a daemon from `ddss .. --json`.
fn ask(daemon: &Daemon, words: &[&str]) -> Result<Value, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let (code, out, why) = run("ddss", &[words, &["--json", "--dir", daemon.folder().to_str().unwrap()]].concat());
        match code {
            0 => return Ok(serde_json::from_str(&out).unwrap()),
            // The leader is slow on a busy machine, or at the beginning of its term.
            _ if why.contains(SLOW_LEADER) && Instant::now() < end => {}
            _ => return Err(format!("{code}: {why}")),
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

fn count(value: &Value, key: &str) -> usize {
    value.as_array().unwrap().iter().filter(|node| node[key] == Value::Bool(true)).count()
}

fn client(daemon: &Daemon) -> ScriptedClient {
    ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap()
}

/// Starts a node, then others that join it one after the other.
fn grown(count: usize) -> Vec<Daemon> {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    let address = daemons[0].listen();
    for node in 2..=count {
        daemons.push(DaemonOptions::new(node as u16).unwrap().joins(address).start().unwrap());
    }
    for daemon in &daemons {
        until(daemon, &["nodes"], |nodes| is_complete(nodes, count));
    }
    daemons
}

/// Returns true if all nodes are alive members with the expected number of voters.
fn is_complete(nodes: &Value, expected: usize) -> bool {
    let voters = [0, 1, 1, 3, 3, 5][expected.min(5)];
    nodes.as_array().unwrap().len() == expected && count(nodes, "alive") == expected && count(nodes, "voter") == voters
}

/// Retries the open: the data plane needs a moment to connect.
fn open_soon(client: &mut ScriptedClient, name: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let said = client.ask(&format!("open {name}")).unwrap();
        if said.starts_with("ok") || Instant::now() > end {
            return said;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

// If this failed, a cluster could not grow while it runs, or a name would not be found on a node that joined later.
#[test]
fn joining_nodes_get_ids_and_see_existing_segments() {
    let one = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let mut on_one = client(&one);
    assert_eq!(on_one.ask("allocate before 4096").unwrap(), "ok 4096 bytes");
    on_one.ask("put 0 4096 7").unwrap();
    let two = DaemonOptions::new(2).unwrap().joins(one.listen()).start().unwrap();
    let mut three = DaemonOptions::new(3).unwrap().joins(two.listen()).start().unwrap();
    assert!(three.process().stdout().starts_with("ready node 3 "), "{}", three.process().stdout());
    let nodes = until(&three, &["nodes"], |nodes| is_complete(nodes, 3));
    assert_eq!(nodes[0]["address"].as_str(), Some(one.listen().to_string().as_str()));
    let mut on_three = client(&three);
    assert_eq!(open_soon(&mut on_three, "before"), "ok 4096 bytes at node 1");
    assert_eq!(on_three.ask("get 0 4096 7").unwrap(), "ok version 1 equal");
    // A restart needs no join flag: the state directory records the cluster.
    three.kill().unwrap();
    until(&one, &["nodes"], |nodes| count(nodes, "alive") == 2);
    three.restart().unwrap();
    let nodes = until(&one, &["nodes"], |nodes| is_complete(nodes, 3));
    assert!(nodes[2]["epoch"].as_u64() >= Some(2), "one death, another life: {nodes}");
    // A node id that is taken, and a cluster that does not exist.
    let folder = TempNode::new().unwrap();
    write_key(folder.path(), ddss_testkit::TEST_KEY).unwrap();
    let at = one.listen().to_string();
    let words = ["--node", "2", "--listen", "127.0.0.1:0", "--join", &at, "--dir", folder.path().to_str().unwrap()];
    let (code, _, why) = run("ddssd", &words);
    assert_eq!(code, 6);
    assert!(why.contains("number 2 belongs to the node at"), "{why}");
}

// If this failed, one name would stand for two segments.
#[test]
fn concurrent_allocations_of_one_name_have_one_winner() {
    let daemons = grown(3);
    let mut clients: Vec<_> = daemons.iter().flat_map(|daemon| [client(daemon), client(daemon)]).collect();
    for round in 0..20 {
        let allocate = format!("allocate race-{round} 64");
        let answers: Vec<String> = std::thread::scope(|scope| {
            let asks: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(|| client.ask(&allocate).unwrap())).collect();
            asks.into_iter().map(|ask| ask.join().unwrap()).collect()
        });
        let won = answers.iter().filter(|answer| answer.starts_with("ok")).count();
        let taken = answers.iter().filter(|answer| answer.contains("exists")).count();
        assert_eq!((won, taken), (1, 5), "round {round}: {answers:?}");
        // All nodes find the same segment, and its name is free immediately after the release.
        let homes: Vec<String> = clients.iter_mut().map(|client| open_soon(client, &format!("race-{round}"))).collect();
        assert!(homes.iter().all(|home| *home == homes[0] && home.starts_with("ok")), "{homes:?}");
        let releaser = round % clients.len();
        assert!(clients[releaser].ask("release").unwrap().starts_with("ok"));
        let again = (round + 1) % clients.len();
        let said = clients[again].ask(&allocate).unwrap();
        assert!(said.starts_with("ok"), "round {round}: {said}");
        assert!(clients[again].ask("release").unwrap().starts_with("ok"));
        let gone = clients[releaser].ask(&format!("open race-{round}")).unwrap();
        assert!(gone.contains("there is no such segment"), "{gone}");
    }
}

// If this failed, names would be lost in a crash, or with the leader.
#[test]
fn names_survive_leader_death_and_full_restart() {
    let mut daemons = grown(3);
    let mut on_two = client(&daemons[1]);
    on_two.ask("allocate kept 4096").unwrap();
    on_two.ask("put 0 4096 5").unwrap();
    let leader = ask(&daemons[0], &["cluster", "status"]).unwrap()["leader"].as_u64().unwrap() as usize;
    assert_eq!(leader, 1, "the founder leads until another node must");
    daemons[0].kill().unwrap();
    let status = until(&daemons[2], &["cluster", "status"], |status| {
        status["leader"].as_u64().is_some_and(|leader| leader != 1) && count(&status["nodes"], "alive") == 2
    });
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    let mut on_three = client(&daemons[2]);
    assert_eq!(open_soon(&mut on_three, "kept"), "ok 4096 bytes at node 2");
    assert_eq!(on_three.ask("get 0 4096 5").unwrap(), "ok version 1 equal");
    assert_eq!(on_three.ask("allocate meanwhile 64").unwrap(), "ok 64 bytes");
    daemons[0].restart().unwrap();
    until(&daemons[0], &["nodes"], |nodes| is_complete(nodes, 3));
    assert_eq!(open_soon(&mut client(&daemons[0]), "meanwhile"), "ok 64 bytes at node 3");
    for daemon in &mut daemons {
        daemon.kill().unwrap();
    }
    for daemon in &mut daemons {
        daemon.restart().unwrap();
    }
    until(&daemons[0], &["nodes"], |nodes| is_complete(nodes, 3));
    let mut on_one = client(&daemons[0]);
    assert_eq!(open_soon(&mut on_one, "kept"), "ok 4096 bytes at node 2");
    assert_eq!(on_one.ask("get 0 4096 5").unwrap(), "ok version 1 equal");
    let said = on_one.ask("allocate kept 64").unwrap();
    assert!(said.contains("exists"), "{said}");
}

// If this failed, a large cluster could not resolve names after two deaths, or an additional node would be a voter too
// many.
#[test]
fn cluster_of_six_has_five_voters_and_survives_two_deaths() {
    let mut daemons = grown(6);
    let nodes = ask(&daemons[0], &["nodes"]).unwrap();
    let learns = nodes.as_array().unwrap().iter().position(|node| node["voter"] == false).unwrap();
    let mut at_learner = client(&daemons[learns]);
    assert_eq!(at_learner.ask("allocate learned 64").unwrap(), "ok 64 bytes");
    // The node knows the learned log by itself, without another node's answer.
    let others: Vec<usize> = (0..6).filter(|&node| node != learns).collect();
    others.iter().for_each(|&node| daemons[node].pause().unwrap());
    let said = client(&daemons[learns]).ask("open learned").unwrap();
    others.iter().for_each(|&node| daemons[node].resume().unwrap());
    assert_eq!(said, format!("ok 64 bytes at node {}", learns + 1));
    let leader = until(&daemons[learns], &["cluster", "status"], |status| status["leader"].is_u64());
    let leader = leader["leader"].as_u64().unwrap() as usize - 1;
    let second = others.iter().copied().find(|&node| node != leader).unwrap();
    for victim in [leader, second] {
        daemons[victim].kill().unwrap();
    }
    let alive: Vec<usize> = (0..6).filter(|node| ![leader, second].contains(node)).collect();
    for &node in &alive {
        let (mut here, end) = (client(&daemons[node]), Instant::now() + PATIENCE);
        loop {
            let said = here.ask(&format!("allocate after-{node} 64")).unwrap();
            // A failed attempt may have allocated the segment until it is returned.
            if said.starts_with("ok") {
                break;
            }
            assert!(Instant::now() < end, "node {}: {said}", node + 1);
        }
        assert!(open_soon(&mut here, "learned").starts_with("ok"));
    }
    // The learner is now a voter.
    until(&daemons[alive[0]], &["nodes"], |nodes| {
        count(nodes, "alive") == 4 && nodes[learns]["voter"] == true && count(nodes, "voter") == 5
    });
}

// If this failed, a node that never returns would be counted, and its names taken, forever.
#[test]
fn node_leaves_and_dead_node_is_removed() {
    let mut daemons = grown(3);
    client(&daemons[1]).ask("allocate of-two 64").unwrap();
    client(&daemons[2]).ask("allocate of-three 64").unwrap();
    assert_eq!(ask(&daemons[2], &["cluster", "leave", "--force"]).unwrap()["dropped"], 1);
    let left = |nodes: &Value| nodes.as_array().unwrap().len() == 2;
    until(&daemons[1], &["nodes"], left);
    daemons[1].kill().unwrap();
    ask(&daemons[0], &["cluster", "remove", "2"]).unwrap();
    let nodes = until(&daemons[0], &["nodes"], |nodes| nodes.as_array().unwrap().len() == 1);
    assert_eq!(count(&nodes, "voter"), 1);
    let mut on_one = client(&daemons[0]);
    for name in ["of-two", "of-three"] {
        assert_eq!(on_one.ask(&format!("allocate {name} 64")).unwrap(), "ok 64 bytes");
    }
    assert!(ask(&daemons[0], &["cluster", "leave"]).unwrap_err().contains("the only node"));
    assert!(ask(&Daemon::start(9).unwrap(), &["nodes"]).unwrap_err().contains("belongs to no cluster"));
}

// If this failed, removing a node would silently lose segments.
#[test]
fn leaving_node_is_refused_while_it_holds_the_only_copy() {
    let daemons = grown(3);
    let in_sync = |daemon: &Daemon| {
        until(daemon, &["stat", "kept"], |stat| stat["replica"]["state"] == "in sync");
    };
    // The second-last node that leaves is the leader.
    for (node, alone) in [(2, "of-three"), (0, "of-one")] {
        let (daemon, rest) = (&daemons[node], &daemons[1]);
        let mut here = client(daemon);
        if node == 2 {
            assert_eq!(here.ask("allocate-mirrored kept 64").unwrap(), "ok 64 bytes");
            here.ask("put 0 64 5").unwrap();
        } else {
            until(daemon, &["cluster", "status"], |status| status["leader"] == 1);
        }
        assert_eq!(here.ask(&format!("allocate {alone} 64")).unwrap(), "ok 64 bytes");
        in_sync(daemon);
        let said = ask(daemon, &["cluster", "leave"]).unwrap_err();
        assert!(said.contains("1 segment is only here: `ddss export`") && said.contains("--force"), "{said}");
        assert!(open_soon(&mut client(rest), alone).starts_with("ok"), "it is there still");
        let left = ask(daemon, &["cluster", "leave", "--force"]).unwrap();
        assert_eq!(left["dropped"], 1, "{left}");
        until(rest, &["nodes"], |nodes| nodes.as_array().unwrap().len() == if node == 2 { 2 } else { 1 });
        let mut after = client(rest);
        assert!(after.ask(&format!("open {alone}")).unwrap().contains("there is no such segment"));
        assert!(open_soon(&mut after, "kept").starts_with("ok"));
        let end = Instant::now() + PATIENCE;
        while after.ask("get 0 64 5").unwrap() != "ok version 1 equal" {
            assert!(Instant::now() < end, "the mirror does not take over");
        }
    }
}

// If this failed, a removed node would return with its next start, or found a cluster of its own beside the old one.
#[test]
fn decommissioned_node_stays_out_until_it_is_joined_again() {
    let one = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let two = TempNode::new().unwrap();
    write_key(two.path(), ddss_testkit::TEST_KEY).unwrap();
    // The state directory is as `ddss cluster join` leaves it.
    let (join, left) = (two.join("state/join"), two.join("state/left"));
    std::fs::write(&join, one.listen().to_string()).unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new(binary("ddssd").unwrap());
        command.args(["--listen", "127.0.0.2:0", "--pool-bytes", "1000000"]).args(words).arg("--dir").arg(two.path());
        command
    };
    let start = |words: &[&str]| {
        let mut process = Process::start(command(words), two.path(), "ddssd").unwrap();
        process.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
        process
    };
    let mut process = start(&[]);
    until(&one, &["nodes"], |nodes| is_complete(nodes, 2));
    let (code, _, why) = run("ddss", &["cluster", "leave", "--dir", two.path().to_str().unwrap()]);
    assert_eq!(code, 0, "{why}");
    process.end().unwrap();
    assert!(!join.exists() && left.exists() && !two.join("state/node.json").exists());
    for words in [&[][..], &["--peer", "9=127.0.0.9:7400"]] {
        let mut refused = Process::start(command(words), two.path(), "refused").unwrap();
        let status = refused.wait(PATIENCE).unwrap().expect("it does not start");
        let said = refused.stderr();
        assert_eq!(status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("has left its cluster: --join HOST:PORT"), "{said}");
    }
    // The daemon that left may have written the rest of its log after the directory was emptied.
    std::fs::write(two.join("state/node.json"), r#"{"node":2,"founder":false}"#).unwrap();
    let process = start(&["--join", &one.listen().to_string()]);
    until(&one, &["nodes"], |nodes| is_complete(nodes, 2));
    assert!(!left.exists());
    drop(process);
    // Now it is a member again, without a flag.
    let _process = start(&[]);
    until(&one, &["nodes"], |nodes| is_complete(nodes, 2));
}

// If this failed, the three commands of the manual would not make a cluster.
#[test]
fn cluster_is_set_up_with_init_token_and_join() {
    let (one, two) = (TempNode::new().unwrap(), TempNode::new().unwrap());
    let path = |node: &TempNode| node.path().to_str().unwrap().to_owned();
    assert_eq!(run("ddss", &["cluster", "init", "--dir", &path(&one)]).0, 0);
    let token = run("ddss", &["cluster", "token", "--dir", &path(&one)]).1;
    let start = |node: &TempNode, listen: &str| {
        let mut command = Command::new(binary("ddssd").unwrap());
        command.args(["--pool-bytes", "1000000", "--listen", listen, "--dir"]).arg(node.path());
        let mut process = Process::start(command, node.path(), "ddssd").unwrap();
        process.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
        process
    };
    let first = start(&one, "127.0.0.1:0");
    let address = first.stdout().split_whitespace().last().unwrap().to_owned();
    let (code, _, why) = run("ddss", &["cluster", "join", &address, token.trim(), "--dir", &path(&two)]);
    assert_eq!(code, 0, "{why}");
    let second = start(&two, "127.0.0.2:0");
    assert!(second.stdout().starts_with("ready node 2 "), "{}", second.stdout());
    // The node is ready a moment before it knows the others.
    let end = Instant::now() + PATIENCE;
    loop {
        let (code, out, why) = run("ddss", &["nodes", "--dir", &path(&two)]);
        if (code, out.lines().count()) == (0, 3) {
            break;
        }
        assert!(Instant::now() < end, "{out}{why}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // It returns at another address, and no other node needs its new address.
    drop(second);
    let second = start(&two, "127.0.0.3:0");
    let end = Instant::now() + PATIENCE;
    loop {
        let (_, out, _) = run("ddss", &["nodes", "--dir", &path(&one)]);
        if out.lines().any(|line| line.starts_with("2 ") && line.contains("127.0.0.3:") && line.contains("alive")) {
            break;
        }
        assert!(Instant::now() < end, "{out}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(run("ddss", &["allocate", "moved", "64", "--dir", &path(&two)]).0, 0);
    let end = Instant::now() + PATIENCE;
    while run("ddss", &["get", "moved", "--dir", &path(&one)]).0 != 0 {
        assert!(Instant::now() < end, "{} {}", first.stderr(), second.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((first, second));
}

// If this failed, the log would grow forever, or a late node would miss its truncated part.
#[test]
fn node_joining_after_log_compaction_gets_the_whole_directory() {
    let mut one = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let mut on_one = client(&one);
    on_one.ask("allocate first 64").unwrap();
    let log = one.folder().join("state").join("raft.log");
    let end = Instant::now() + 2 * PATIENCE;
    let mut largest = 0;
    // Each turn adds two entries. The file gets shorter when a snapshot replaces the oldest entries.
    loop {
        for turn in 0..50 {
            assert!(on_one.ask(&format!("allocate turn-{turn} 64")).unwrap().starts_with("ok"));
            assert!(on_one.ask("release").unwrap().starts_with("ok"));
        }
        let bytes = std::fs::metadata(&log).unwrap().len();
        if bytes < largest {
            break;
        }
        largest = bytes;
        assert!(Instant::now() < end, "the log has grown to {bytes} bytes");
    }
    on_one.ask("allocate last 64").unwrap();
    let two = DaemonOptions::new(2).unwrap().joins(one.listen()).start().unwrap();
    let mut on_two = client(&two);
    for name in ["first", "last"] {
        assert_eq!(open_soon(&mut on_two, name), "ok 64 bytes at node 1");
    }
    assert_eq!(ask(&two, &["cluster", "status"]).unwrap()["names"], 2);
    one.kill().unwrap();
    one.restart().unwrap();
    let status = until(&one, &["cluster", "status"], |status| status["leader"] == 1);
    assert_eq!(status["names"], 2, "{status}");
    assert!(client(&one).ask("allocate first 64").unwrap().contains("exists"));
}

// If this failed, a cluster could be joined by addresses only, or not by a name with an additional dead address.
#[test]
fn cluster_is_joined_by_host_name() {
    let first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    // The name `localhost` often stands for ::1 as well, where this daemon does not listen.
    let at = format!("localhost:{}", first.listen().port());
    let second = DaemonOptions::new(2).unwrap().clustered().argument("--join").argument(at).start().unwrap();
    until(&first, &["nodes"], |nodes| is_complete(nodes, 2));
    assert!(client(&first).ask("allocate by-name 64").unwrap().starts_with("ok"));
    assert!(open_soon(&mut client(&second), "by-name").starts_with("ok"));
    // An unknown host name is reported by name, within bounded time.
    let folder = TempNode::new().unwrap();
    write_key(folder.path(), ddss_testkit::TEST_KEY).unwrap();
    let mut lost = Command::new(binary("ddssd").unwrap());
    lost.arg("--dir").arg(folder.path()).args(["--listen", "127.0.0.1:0", "--join", "no-such-host.invalid:7400"]);
    let mut lost = Process::start(lost, folder.path(), "ddssd").unwrap();
    let status = lost.wait(Duration::from_secs(60)).unwrap().expect("it gives up");
    let told = lost.stderr();
    assert_eq!(status.code(), Some(6), "{told}");
    assert!(told.contains("no-such-host.invalid:7400") && told.contains("address cannot be found"), "{told}");
}
