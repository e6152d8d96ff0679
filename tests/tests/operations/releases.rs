//! Releases of nodes and commands, and refusals of other releases.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{Daemon, DaemonOptions, TempNode, binary, free_tcp_port, repo_lints, run_ddss, write_program};
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
    // Before the other one joins, the level is that of the first alone.
    until(&a, &["cluster", "status"], |seen| {
        seen["level"] == 17 && seen["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
    });
    let nodes = until(&a, &["nodes"], |nodes| nodes.as_array().is_some_and(|nodes| nodes.len() == 2));
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
    assert!(answer[2..].iter().all(|&byte| byte == 0), "an unauthenticated peer learns more: {answer:?}");
    // What is no hello gets no answer.
    assert_eq!(answer_to(control, &[0; HELLO_BYTES]), b"");
    assert!(daemon.process().stderr().contains("begins handshake 99"), "{}", daemon.process().stderr());
    // Another key is called that, at the node that joins.
    let port = free_tcp_port(listen.ip()).unwrap();
    let joining = DaemonOptions::listening(2, SocketAddr::new(listen.ip(), port)).joins(listen).key(OTHER_KEY);
    let error = joining.start().unwrap_err().to_string();
    assert!(error.contains("another cluster key"), "{error}");
}

/// Runs a command in a directory, without the settings of git and cargo of this process; returns its code and its output.
fn run_in(folder: &Path, program: &str, words: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    command
        .args(words)
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("DDSS_COMMIT")
        .env_remove("CARGO_TARGET_DIR");
    let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let output = command.envs(names.map(|name| (name, "a"))).envs(variables.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), text)
}

// If this failed, two builds that differ would have one name, or two equal ones would differ.
#[test]
fn build_names_the_commit_only_of_sources_that_are_its() {
    let (scratch, root) = (TempNode::new().unwrap(), repo_lints::workspace_root());
    let program = scratch.join("build");
    let compile = ["--edition", "2024", "-o", program.to_str().unwrap()];
    let script = root.join("crates/ddss-admin/build.rs");
    let (code, text) = run_in(
        scratch.path(),
        "rustc",
        &[&compile[..], &[script.to_str().unwrap()]].concat(),
        &[("HOME", &std::env::var("HOME").unwrap_or_default())],
    );
    assert_eq!(code, Some(0), "{text}");
    let [checkout, archive] = ["checkout", "archive"].map(|name| scratch.join(name));
    let package = checkout.join("crates/ddss-admin");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::create_dir_all(&archive).unwrap();
    std::fs::write(package.join("build.rs"), "").unwrap();
    let git = |words: &[&str]| {
        let (code, text) = run_in(&checkout, "git", words, &[]);
        assert_eq!(code, Some(0), "git {words:?}: {text}");
        text.trim().to_owned()
    };
    git(&["init", "-q"]);
    git(&["config", "core.logAllRefUpdates", "false"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "a"]);
    let commit = git(&["rev-parse", "HEAD"]);
    let build = |folder: &Path, variables: &[(&str, &str)]| {
        let (code, text) =
            run_in(folder, program.to_str().unwrap(), &[], &[&[("PROFILE", "release")], variables].concat());
        let name = text.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=DDSS_COMMIT="));
        (code, name.unwrap_or_default().to_owned(), text)
    };
    let (_, clean, text) = build(&package, &[]);
    assert_eq!(clean, commit[..12]);
    // Without a log of HEAD cargo watches the branches.
    let watched =
        text.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed=")).map(|path| package.join(path));
    assert!(watched.clone().any(|path| path.join("../../HEAD").is_file() && path.ends_with("refs/heads")), "{text}");
    std::fs::write(package.join("build.rs"), "changed").unwrap();
    assert_eq!(build(&package, &[]).1, format!("{clean}-dirty"));
    // Sources without history are told their commit.
    assert_eq!(build(&archive, &[]).1, "unknown");
    assert_eq!(build(&archive, &[("DDSS_COMMIT", &commit)]).1, clean);
    let (code, _, text) = build(&archive, &[("DDSS_COMMIT", "v0.2.0")]);
    assert!(code != Some(0) && text.contains("DDSS_COMMIT is no commit: v0.2.0"), "{text}");
}

// If this failed, a release would name a commit of which it is not, or none.
#[test]
fn release_is_built_only_of_a_commit() {
    let scratch = TempNode::new().unwrap();
    let folder = scratch.join("scripts");
    std::fs::create_dir(&folder).unwrap();
    let script = repo_lints::workspace_root().join("scripts/release");
    std::fs::copy(script, folder.join("release")).unwrap();
    let package = "#!/bin/sh\necho \"a package of $DDSS_COMMIT\"\nexit 9\n";
    write_program(&folder.join("package"), package).unwrap();
    std::fs::write(scratch.join("Cargo.toml"), "[workspace.package]\nversion = \"1.2.3\"\n").unwrap();
    let release =
        |variables: &[(&str, &str)]| run_in(scratch.path(), "bash", &["scripts/release", "build"], variables).1;
    assert!(release(&[]).contains("name their commit in DDSS_COMMIT"));
    let commit = "0123456789abcdef0123456789abcdef01234567";
    assert!(release(&[("DDSS_COMMIT", commit)]).contains(&format!("a package of {commit}")));
    for words in [&["init", "-q"][..], &["add", "scripts", "Cargo.toml"], &["commit", "-q", "-m", "a"]] {
        let (code, text) = run_in(scratch.path(), "git", words, &[]);
        assert_eq!(code, Some(0), "{text}");
    }
    let (_, commit) = run_in(scratch.path(), "git", &["rev-parse", "HEAD"], &[]);
    assert!(release(&[]).contains(&format!("a package of {commit}")));
    std::fs::write(scratch.join("Cargo.toml"), "[workspace.package]\nversion = \"1.2.4\"\n").unwrap();
    assert!(release(&[]).contains("the checkout has changes"));
}
