//! A cluster as an operator makes it: keys, nodes that come and go, and those that do not belong to it.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_tests::{DaemonOptions, ScriptedClient, TempNode, binary, write_key};
use serde_json::Value;

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
const OTHER_KEY: &str = "0000000000000000000000000000000000000000000000000000000000000002";

/// Exit code, standard output and standard error of a program of the workspace.
fn run(program: &str, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(binary(program).unwrap()).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

// If this failed, a cluster could not be set up by one command, or a second one would lose the first one's key.
#[test]
fn one_command_makes_the_key_and_another_shows_it() {
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
    let (code, _, why) = run("ddss", &["cluster", "init", "--dir", folder]);
    assert_eq!(code, 1);
    assert!(why.contains("belongs to a cluster"), "{why}");
    assert_eq!(run("ddss", &["cluster", "token", "--dir", folder]).1, token);
}

// If this failed, a node would listen to strangers, or an operator would not know what to do next.
#[test]
fn without_a_key_nobody_is_listened_to_and_the_next_step_is_told() {
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
fn a_node_with_another_key_is_turned_away_and_learns_nothing() {
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
    b.start_again().unwrap();
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
