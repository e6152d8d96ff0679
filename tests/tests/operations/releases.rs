//! Releases of nodes and commands, and refusals of other releases.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, DaemonOptions, binary, free_tcp_port, run_ddss};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a hello, and of the answer that refuses it.
const HELLO_BYTES: usize = 56;
/// A key that is not that of the daemons of tests.
const OTHER_KEY: &str = "7e57000000000000000000000000000000000000000000000000000000000002";

fn json(daemon: &Daemon, words: &[&str]) -> Value {
    let output = run_ddss(daemon.folder(), &[words, &["--json"]].concat(), "").unwrap();
    assert_eq!(output.code, 0, "{words:?}: {}", output.err);
    serde_json::from_str(&output.out).unwrap()
}

/// Waits until a command's JSON is as wanted.
fn until(daemon: &Daemon, words: &[&str], is_wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = json(daemon, words);
        if is_wanted(&found) {
            return found;
        }
        assert!(Instant::now() < end, "{words:?}: {found}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn version(program: &str, word: &str) -> String {
    let output = Command::new(binary(program).unwrap()).arg(word).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

// If this failed, two builds that refuse each other would look alike to an operator.
#[test]
fn version_names_commit_and_ranges() {
    for program in ["ddssd", "ddss"] {
        let long = version(program, "--version");
        let ranges = long.strip_prefix(&format!("{program} 0.1.0 (commit ")).unwrap_or_else(|| panic!("{long}"));
        let (commit, ranges) = ranges.split_once("; ").unwrap();
        assert!(
            commit == "unknown" || commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{long}"
        );
        assert_eq!(ranges, "protocol 16-17; client layout 11; register 2)");
        assert_eq!(version(program, "-V"), format!("{program} 0.1.0"));
    }
}

// If this failed, an operator would take a half upgraded cluster for an upgraded one, or a new command would reach a node that
// cannot read it.
#[test]
fn nodes_report_their_releases_and_the_protocol_that_all_speak() {
    let [a, mut b] = Daemon::pair().unwrap();
    let seen = until(&a, &["cluster", "status"], |seen| seen["level"] == 17);
    assert_eq!(seen["nodes"].as_array().unwrap().len(), 2);
    let nodes = json(&a, &["nodes"]);
    for node in nodes.as_array().unwrap() {
        let release = &node["release"];
        assert_eq!(
            (&release["protocol"]["oldest"], &release["protocol"]["newest"]),
            (&16.into(), &17.into()),
            "{nodes}"
        );
        assert!(release["name"].as_str().unwrap().starts_with("0.1.0"), "{nodes}");
    }
    b.kill().unwrap();
    // A node that does not answer may come back with any release.
    let seen = until(&a, &["cluster", "status"], |seen| seen["level"].is_null());
    assert!(seen["nodes"][1]["release"].is_null() && !seen["nodes"][0]["release"].is_null(), "{seen}");
    let text = run_ddss(a.folder(), &["cluster", "status"], "").unwrap().out.replace('\n', " ");
    assert!(text.contains("protocol unknown"), "{text}");
}

/// Sends a first message to a control port; returns the answer until the node closes the connection.
fn answer_to(control: SocketAddr, hello: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(control).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(hello).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

// If this failed, the log of a refused node would ask for the key where the release is another one.
#[test]
fn control_port_says_why_it_refuses() {
    let mut daemon = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let listen = daemon.listen();
    let control = SocketAddr::new(listen.ip(), listen.port() + 1);
    let mut hello = [7; HELLO_BYTES];
    (hello[0], hello[1]) = (b'D', 99);
    let answer = answer_to(control, &hello);
    assert_eq!((answer.len(), answer[0], answer[1]), (HELLO_BYTES, b'D', 16));
    assert!(answer[2..].starts_with(b"0.1.0"), "{answer:?}");
    // What is no hello gets no answer.
    assert_eq!(answer_to(control, &[0; HELLO_BYTES]), b"");
    assert!(daemon.process().stderr().contains("begins handshake 99"), "{}", daemon.process().stderr());
    // Another key is called that, at the node that joins.
    let port = free_tcp_port(listen.ip()).unwrap();
    let joining = DaemonOptions::listening(2, SocketAddr::new(listen.ip(), port)).joins(listen).key(OTHER_KEY);
    let error = joining.start().unwrap_err().to_string();
    assert!(error.contains("another cluster key"), "{error}");
}
