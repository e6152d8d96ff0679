//! The begin of a cluster, and the address of a member: a node without its state, or without its flags, does no harm.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{
    Daemon, DaemonOptions, NetworkNamespaces, Process, TEST_KEY, TempNode, allow_founding, binary, free_tcp_port,
    run_ddss, skipped, write_key,
};

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Exit code of a start that the settings do not allow.
const SETTINGS: i32 = 2;

fn start(folder: &Path, words: &[&str]) -> Process {
    let mut daemon = Command::new(binary("ddssd").unwrap());
    daemon.arg("--dir").arg(folder).args(["--pool-bytes", "4M"]).args(words);
    Process::start(daemon, folder, "ddssd").unwrap()
}

/// Starts a daemon and returns its line *ready*.
fn serve(folder: &Path, words: &[&str]) -> (Process, String) {
    let mut daemon = start(folder, words);
    let is_ready = |process: &Process| process.stdout().contains("ready ");
    daemon.wait_until(PATIENCE, is_ready).unwrap();
    let line = daemon.stdout().lines().rfind(|line| line.starts_with("ready ")).unwrap().to_owned();
    (daemon, line)
}

/// Expects that a start is refused with the code of settings, by `--check-config` too. Returns the reason.
fn refusal(folder: &Path, words: &[&str]) -> String {
    for check in [&["--check-config"][..], &[]] {
        let mut daemon = start(folder, &[check, words].concat());
        let status = daemon.wait(PATIENCE).unwrap().expect("it ends");
        assert_eq!(status.code(), Some(SETTINGS), "{check:?} {words:?}: {}", daemon.stderr());
    }
    let mut daemon = start(folder, words);
    daemon.wait(PATIENCE).unwrap().unwrap();
    daemon.stderr()
}

// If this failed, a machine that was installed anew would begin a second cluster and report that it is ready.
#[test]
fn cluster_begins_only_where_somebody_asked_for_one() {
    let node = TempNode::new().unwrap();
    let folder = node.path();
    write_key(folder, TEST_KEY).unwrap();
    let why = refusal(folder, &["--listen", "127.0.0.1:0"]);
    assert!(why.contains("--join") && why.contains("ddss cluster init"), "{why}");
    assert!(!folder.join("state/node.json").exists(), "a refused start leaves an identity");
    let peer = format!("1=127.0.0.1:{}", free_tcp_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap());
    serve(folder, &["--peer", &peer, "--listen", peer.strip_prefix("1=").unwrap()]).0.end().unwrap();

    std::fs::remove_dir_all(folder.join("state")).unwrap();
    assert_eq!(run_ddss(folder, &["cluster", "init"], "").unwrap().code, 0);
    serve(folder, &["--discard", "--listen", "127.0.0.1:0"]).0.end().unwrap();
    assert!(!folder.join("state/found").exists(), "the permission stays after the cluster began");
    serve(folder, &[]).0.end().unwrap();
    // The key was restored, the state was not.
    for name in ["node.json", "raft.log", "directory.json", "incarnation.json"] {
        let _ = std::fs::remove_file(folder.join("state").join(name));
    }
    refusal(folder, &[]);
}

// If this failed, a node that left a cluster could not begin another one, or would begin one by itself.
#[test]
fn node_that_left_begins_a_cluster_only_on_demand() {
    let mut first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let mut second = DaemonOptions::new(2).unwrap().joins(first.listen()).start().unwrap();
    assert_eq!(run_ddss(second.folder(), &["cluster", "leave"], "").unwrap().code, 0);
    assert!(second.process().wait(PATIENCE).unwrap().unwrap().success());
    let folder = second.folder();
    assert!(refusal(folder, &[]).contains("has left its cluster"));
    assert!(refusal(folder, &["--peer", "1=127.0.0.1:7400"]).contains("has left its cluster"));
    std::fs::remove_file(folder.join("state/cluster.key")).unwrap();
    assert_eq!(run_ddss(folder, &["cluster", "init"], "").unwrap().code, 0);
    serve(folder, &["--listen", "127.0.0.2:0"]).0.end().unwrap();
    serve(folder, &[]).0.end().unwrap();
    first.process().end().unwrap();
}

// If this failed, a member started by hand without its flags would tell the others an address that they cannot reach.
#[test]
fn member_without_address_listens_where_it_did() {
    let node = TempNode::new().unwrap();
    write_key(node.path(), TEST_KEY).unwrap();
    allow_founding(node.path()).unwrap();
    let listen = SocketAddr::new([127, 0, 0, 3].into(), free_tcp_port([127, 0, 0, 3].into()).unwrap()).to_string();
    let (mut daemon, line) = serve(node.path(), &["--listen", &listen]);
    assert!(line.ends_with(&listen), "{line}");
    for end in [Process::end, Process::kill] {
        end(&mut daemon).unwrap();
        let line;
        (daemon, line) = serve(node.path(), &[]);
        assert!(line.ends_with(&listen), "{line}");
    }
    daemon.end().unwrap();
    let dead = run_ddss(node.path(), &["status"], "").unwrap();
    assert!(dead.out.contains("ddssd --dir") && dead.out.contains("--pool-bytes 4M"), "{dead:?}");
    // Flags count again where they are given.
    let (mut daemon, line) = serve(node.path(), &["--listen", "127.0.0.4:0"]);
    assert!(line.contains("127.0.0.4:"), "{line}");
    daemon.end().unwrap();
}

// If this failed, other machines would be told that a member is on their own loopback address.
#[test]
fn loopback_address_is_refused_beside_others() {
    let test = "loopback_address_is_refused_beside_others";
    let network = match NetworkNamespaces::new(2) {
        Ok(network) => network,
        Err(error) => return skipped(test, &error.to_string()),
    };
    let at = |node| SocketAddr::new(network.address(node), 7400);
    let first = DaemonOptions::listening(1, at(1)).inside(&network.inside(1)).clustered().start().unwrap();
    let mut second =
        DaemonOptions::listening(2, at(2)).inside(&network.inside(2)).joins(first.listen()).start().unwrap();
    second.process().end().unwrap();
    let inside = |folder: &Path, words: &[&str]| {
        let mut daemon = Command::new("ip");
        daemon.args(["netns", "exec", &network.inside(2)]).arg(binary("ddssd").unwrap());
        daemon.arg("--dir").arg(folder).args(["--pool-bytes", "4M", "--listen", "127.0.0.1:7400"]).args(words);
        let mut daemon = Process::start(daemon, folder, "ddssd").unwrap();
        let status = daemon.wait(PATIENCE).unwrap().expect("it ends");
        (status.code(), daemon.stderr())
    };
    let (code, why) = inside(second.folder(), &[]);
    assert!(code == Some(SETTINGS) && why.contains("--listen"), "{code:?} {why}");
    let fresh = TempNode::new().unwrap();
    write_key(fresh.path(), TEST_KEY).unwrap();
    let (code, why) = inside(fresh.path(), &["--join", &first.listen().to_string()]);
    assert!(code.is_some_and(|code| code != 0) && why.contains("--listen"), "{code:?} {why}");
    // With its own address, from its state or from a flag, it is a member again.
    second.restart().unwrap();
}

// If this failed, a mistyped memory directory at both nodes would cost a segment that both still have.
#[test]
fn member_is_not_started_beside_its_segments() {
    let node = TempNode::new().unwrap();
    write_key(node.path(), TEST_KEY).unwrap();
    allow_founding(node.path()).unwrap();
    let other = node.join("other");
    let elsewhere = ["--memory-dir", other.to_str().unwrap()];
    let (mut daemon, _) = serve(node.path(), &["--listen", "127.0.0.1:0"]);
    assert_eq!(run_ddss(node.path(), &["allocate", "kept", "64"], "").unwrap().code, 0);
    daemon.end().unwrap();
    let why = refusal(node.path(), &elsewhere);
    assert!(why.contains(node.join("memory").to_str().unwrap()) && why.contains("--discard"), "{why}");
    let (mut daemon, _) = serve(node.path(), &[]);
    assert_eq!(run_ddss(node.path(), &["release", "kept"], "").unwrap().code, 0);
    daemon.end().unwrap();
    // There is nothing to lose.
    serve(node.path(), &elsewhere).0.end().unwrap();
}

// If this failed, one stale address of a name would keep a node out of its cluster.
#[test]
fn node_joins_by_a_name_whose_other_address_has_another_key() {
    let prefix = ["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""];
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|ended| ended.success()) {
        return skipped(
            "node_joins_by_a_name_whose_other_address_has_another_key",
            "this user may not change what a name means",
        );
    }
    let right = DaemonOptions::on(1, IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap().clustered().start().unwrap();
    let port = right.listen().port();
    let elsewhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), port);
    let _wrong = DaemonOptions::listening(1, elsewhere).key(&TEST_KEY.replace('1', "2")).start().unwrap();
    let place = TempNode::new().unwrap();
    // Each order of the addresses is tried.
    std::fs::write(place.join("hosts"), "127.0.0.2 one\n127.0.0.1 one\n127.0.0.1 two\n127.0.0.2 two\n").unwrap();
    for name in ["one", "two"] {
        let node = TempNode::new().unwrap();
        write_key(node.path(), TEST_KEY).unwrap();
        let listen = format!("127.0.0.1:{}", free_tcp_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap());
        let mut daemon = Command::new("unshare");
        daemon.args(prefix).arg(place.join("hosts")).arg(binary("ddssd").unwrap());
        daemon.arg("--dir").arg(node.path()).args(["--pool-bytes", "4M", "--listen", &listen]);
        daemon.args(["--join", &format!("{name}:{port}")]);
        let mut daemon = Process::start(daemon, node.path(), "ddssd").unwrap();
        daemon.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
        daemon.end().unwrap();
    }
}

// If this failed, a machine that was installed anew would keep a number that its cluster refuses for ever.
#[test]
fn node_that_lost_its_state_joins_anew_when_its_number_is_removed() {
    // Both have a majority without the third.
    let [first, _second] = Daemon::pair().unwrap();
    let node = TempNode::new().unwrap();
    write_key(node.path(), TEST_KEY).unwrap();
    let listen = format!("127.0.0.1:{}", free_tcp_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap());
    let (join, state) = (first.listen().to_string(), node.path().join("state"));
    let join = || start(node.path(), &["--listen", &listen, "--join", &join]);
    let mut daemon = join();
    daemon.wait_until(PATIENCE, |process| process.stdout().contains("ready node 3 ")).unwrap();
    // A node that is ready may be unknown for a moment: nothing stands against it yet.
    let (end, mut said) = (Instant::now() + PATIENCE, String::new());
    while said.matches("\"voter\":true").count() < 3 {
        assert!(Instant::now() < end, "{said}");
        said = run_ddss(first.folder(), &["nodes", "--json"], "").unwrap().out.replace(' ', "");
    }
    daemon.end().unwrap();
    for lost in [&state, &node.path().join("memory")] {
        std::fs::remove_dir_all(lost).unwrap();
    }
    write_key(node.path(), TEST_KEY).unwrap();
    let mut refused = join();
    let ended = refused.wait(PATIENCE).unwrap();
    let ended = ended.unwrap_or_else(|| panic!("it was not refused: {} {}", refused.stdout(), refused.stderr()));
    let text = refused.stderr();
    assert!(!ended.success() && text.contains("ddss cluster remove 3"), "{ended}: {text}");
    assert!(!state.join("node.json").exists(), "it has kept the number");
    // A leader that is busy with the end of the node may take longer than the command waits.
    while run_ddss(first.folder(), &["cluster", "remove", "3"], "").unwrap().code != 0 {
        assert!(Instant::now() < end, "the node is not removed");
    }
    let mut daemon = join();
    daemon.wait_until(PATIENCE, |process| process.stdout().contains("ready node 4 ")).unwrap();
}
