//! Every command with every flag: its JSON is as its schema says, and wrong words are answered with a sentence. Which
//! commands and flags there are is read from the completions that the program makes of itself, so that none is forgotten.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ddss::{Client, LockOptions};
use ddss_tests::{Daemon, DaemonOptions, TempNode, binary, house, schema_complaints};
use serde_json::Value;

/// What a command said.
struct Said {
    code: i32,
    out: String,
    err: String,
}

fn say(folder: &Path, words: &[&str], input: &str) -> Said {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(words).env("DDSS_DIR", folder).env("DDSS_STATE_DIR", folder.join("state"));
    if folder.is_dir() {
        command.current_dir(folder);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that has ended already does not want it.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}

/// Runs a command with `--json` and holds each line of what it says against its schema.
fn checked(schema: &str, folder: &Path, words: &[&str]) -> Vec<Value> {
    let said = say(folder, &[words, &["--json"]].concat(), "");
    assert_eq!(said.code, 0, "{words:?}: {}", said.err);
    let file = house::workspace_root().join("ddss-cli/schemas").join(schema).with_extension("json");
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty(), "{words:?} said nothing");
    for line in &lines {
        let complaints = schema_complaints(&file, line);
        assert!(complaints.is_empty(), "{words:?}:\n{}", complaints.join("\n"));
    }
    lines
}

// If this failed, a script that reads what the schema promises would break with the next release.
#[test]
fn what_each_command_says_as_json_is_as_its_schema_says() {
    let daemon = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let folder = daemon.folder().to_owned();
    let file = folder.join("exported");
    let file = file.to_str().unwrap();
    let of = |schema: &str, words: &[&str]| checked(schema, &folder, words);
    of("ping", &["ping"]);
    of("allocate", &["allocate", "a", "4096", "--history", "3", "--model", "delta=2"]);
    of("allocate", &["allocate", "b", "64", "--mode", "640", "--home", "hash"]);
    of("put", &["put", "a", "[1]", "--as", "json"]);
    of("get", &["get", "a", "--length", "8"]);
    of("get", &["get", "a", "--length", "3", "--as", "json", "--offset", "0"]);
    of("history", &["history", "a"]);
    of("hexdump", &["hexdump", "a", "--length", "40"]);
    of("watch", &["watch", "a", "--count", "1", "--as", "u8", "--length", "2"]);
    of("stat", &["stat", "a"]);
    of("chmod", &["chmod", "644", "b"]);
    of("export", &["export", "b", file]);
    of("import", &["import", "c", file]);
    of("doctor", &["doctor"]);
    of("status", &["status"]);
    of("nodes", &["nodes"]);
    of("cluster-status", &["cluster", "status"]);
    of("cluster-token", &["cluster", "token"]);
    let client = Client::builder().folder(&folder).connect().unwrap();
    let held = [&["a"][..], &["b", "b"]].concat();
    let held = held.into_iter().map(|name| {
        let options = if name == "b" { LockOptions::new().shared() } else { LockOptions::new() };
        client.open(name).unwrap().lock_with(options).unwrap()
    });
    let held: Vec<_> = held.collect();
    of("ls", &["ls"]);
    let locked = of("locks", &["locks"]);
    assert_eq!(locked[0].as_array().unwrap().len(), 2);
    assert_eq!(of("locks-break", &["locks", "b*", "--break", "--yes"])[0][0]["broken"], 2);
    drop(held);
    let state = TempNode::new().unwrap();
    let at = |words: &[&'static str]| [words, &["--state-dir"]].concat();
    let token = of("cluster-token", &["cluster", "token"])[0]["token"].as_str().unwrap().to_owned();
    let path = state.join("one");
    of("cluster-init", &[&at(&["cluster", "init"])[..], &[path.to_str().unwrap()]].concat());
    let path = state.join("two");
    let join =
        [&["cluster", "join", "127.0.0.1:7", token.as_str(), "--state-dir"][..], &[path.to_str().unwrap()]].concat();
    of("cluster-join", &join);
    assert_eq!(of("release", &["release", "b", "c"])[0]["released"].as_array().unwrap().len(), 2);
    let plot = folder.join("plot.svg");
    let words = ["bench", "--measure-ms", "10", "--plot", plot.to_str().unwrap()];
    let figures = of("bench", &[&words[..], &["--dir", folder.to_str().unwrap()]].concat());
    // Four strategies, three gets in place, three gets and three puts through the daemon.
    assert_eq!(figures[0]["rows"].as_array().unwrap().len(), 13);
    let picture = std::fs::read_to_string(&plot).unwrap();
    assert_eq!(picture.matches("<circle").count(), 13);
    assert!(picture.ends_with("</svg>\n") && picture.contains("null call, rcq"), "{picture}");
    assert_eq!(of("ls", &["ls", "ddss-bench/*"])[0].as_array().unwrap().len(), 0);
    let counted = &of("counters", &["counters"])[0];
    assert!(
        counted["counters"]["commits"].as_u64().unwrap() > 0
            && counted["operations"]["put"]["done"].as_u64().unwrap() > 0
    );
    let clients = &of("clients", &["clients"])[0];
    assert!(clients.as_array().unwrap().iter().any(|row| row["pid"] == std::process::id()), "{clients}");
    of("top", &["top", "--interval-ms", "100"]);
    let traced = &of("trace", &["trace", "a"])[0]["samples"];
    assert!(
        traced.as_array().unwrap().iter().all(|sample| sample["call"] == "get" && sample["end"] == "done"),
        "{traced}"
    );
    of("trace", &["trace", "a", "--call", "put", "--bytes", "64"]);
    // The same names when the daemon is dead.
    let mut daemon = daemon;
    daemon.kill().unwrap();
    let left = of("ls", &["ls"]);
    assert_eq!((&left[0][0]["name"], &left[0][0]["live"]), (&"a".into(), &false.into()));
    // What `trace` put there counts as well.
    assert!(left[0][0]["version"].as_u64() > Some(1), "{left:?}");
    assert_eq!(of("stat", &["stat", "a"])[0]["live"], false);
    assert_eq!(of("status", &["status"])[0]["daemon"], "dead");
    // Its last sign of life is fresh for a moment.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while of("counters", &["counters"])[0]["daemon"]["life"] == "serving" {
        assert!(std::time::Instant::now() < end, "a daemon that was killed seems to serve");
    }
    for command in ["counters", "top", "trace"] {
        assert_eq!(of(command, &[command])[0]["daemon"]["life"], "dead", "{command}");
    }
    assert!(!of("clients", &["clients"])[0].as_array().unwrap().is_empty());
    assert_eq!(say(&folder, &["stat", "nothing"], "").code, 1);
    assert_eq!(say(&folder, &["get", "a"], "").code, 4);
}

// If this failed, a schema that is shipped would describe what no command says.
#[test]
fn every_schema_is_one_that_a_test_holds_a_command_against() {
    let here = include_str!("command_line.rs");
    let folder = house::workspace_root().join("ddss-cli/schemas");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".json").unwrap();
        // Parts of others, and what ends a cluster: cluster.rs.
        let elsewhere = ["segment", "node", "cluster-leave", "cluster-remove"].contains(&name);
        assert!(elsewhere || here.contains(&format!("(\"{name}\", ")), "no command is held against {name}.json");
    }
}

/// The commands and flags that there are, read from the completions for fish: one line each.
fn flags() -> (BTreeSet<String>, BTreeSet<(String, String)>) {
    let words = say(Path::new("/nowhere"), &["completions", "fish"], "").out;
    let after = |line: &str, flag: &str| {
        let rest = line.split_once(flag)?.1;
        Some(rest.split(|letter: char| letter.is_whitespace() || letter == ';' || letter == '"').next()?.to_owned())
    };
    let (mut commands, mut flags) = (BTreeSet::new(), BTreeSet::new());
    for line in words.lines().filter(|line| line.starts_with("complete -c ddss ")) {
        let command = after(line, "__fish_ddss_using_subcommand ").unwrap_or_default();
        if line.contains("__fish_ddss_needs_command") {
            commands.extend(after(line, " -a \""));
        } else if let Some(flag) = after(line, " -l ") {
            // Those that take a value say so.
            if line.contains(" -r") {
                flags.insert((command, flag));
            }
        }
    }
    (commands, flags)
}

/// Words that make a command complete, apart from flags.
fn complete(command: &str) -> &'static [&'static str] {
    match command {
        "stat" | "get" | "hexdump" | "watch" | "history" | "release" | "trace" => &["x"],
        "put" => &["x", "bytes"],
        "allocate" => &["x", "8"],
        "export" | "import" => &["x", "/nowhere/file"],
        "chmod" => &["600", "x"],
        "completions" => &["bash"],
        "cluster" => &["status"],
        // Without a daemon's folder it brings its own and measures.
        "bench" => &["--dir", "/nowhere"],
        _ => &[],
    }
}

// If this failed, a word mistyped would end in a panic, or do something else than was meant.
#[test]
fn a_wrong_value_for_any_flag_of_any_command_is_answered_with_a_sentence() {
    let (commands, flags) = flags();
    for known in ["allocate", "locks", "doctor", "watch", "status", "release"] {
        assert!(commands.contains(known), "the completions were not read: {commands:?}");
    }
    assert!(flags.contains(&("allocate".to_owned(), "model".to_owned())), "the flags were not read: {flags:?}");
    let node = TempNode::new().unwrap();
    for (command, flag) in &flags {
        let flag = format!("--{flag}");
        // A folder may have any name; then there is no daemon in it.
        for wrong in ["", "-1", "99999999999999999999999", "\u{1b}[2J", "nonsense/\u{fc}"] {
            let words = [&[command.as_str()], complete(command), &[flag.as_str(), wrong]].concat();
            answered(node.path(), &words);
        }
        let bare = [&[command.as_str()], complete(command), &[flag.as_str()]].concat();
        assert_eq!(answered(node.path(), &bare), 2, "{bare:?}");
    }
    for command in &commands {
        assert_eq!(answered(node.path(), &[command, "--no-such-flag"]), 2, "{command}");
        let many = [&[command.as_str()], complete(command), &["one", "too", "many", "words"]].concat();
        if command != "release" && command != "help" {
            assert_eq!(answered(node.path(), &many), 2, "{command}");
        }
    }
    assert_eq!(answered(node.path(), &[]), 2);
    assert_eq!(answered(node.path(), &["\u{1b}[2J"]), 2);
}

/// Runs what cannot do anything, and returns the exit code: never 0, never a panic, always words.
fn answered(folder: &Path, words: &[&str]) -> i32 {
    let said = say(folder, words, "");
    assert!([1, 2, 4].contains(&said.code), "{words:?}: {} {}{}", said.code, said.out, said.err);
    assert!(said.err.trim().len() > 10 && !said.err.contains("panicked"), "{words:?}: {}", said.err);
    assert!(!said.err.contains('\u{1b}'), "{words:?} paints the terminal: {:?}", said.err);
    said.code
}

// If this failed, whoever wants to know what the machine can do would have to set up a cluster first.
#[test]
fn a_measurement_brings_two_nodes_of_its_own() {
    let node = TempNode::new().unwrap();
    let said = say(node.path(), &["bench", "--measure-ms", "10"], "");
    assert_eq!(said.code, 0, "{}", said.err);
    for part in ["null call, mq", "get 8 B, near", "put 4096 B, daemon", "get 65536 B, remote", "one cache line"] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
}

// If this failed, an operator could not free a lock of a program that hangs, or would free one by mistake.
#[test]
fn a_lock_is_broken_after_a_question_only() {
    let [a, b] = Daemon::pair().unwrap();
    let client = Client::builder().folder(a.folder()).connect().unwrap();
    let door = client.allocate("door", ddss::Spec::new(8)).unwrap();
    let held = door.lock_with(LockOptions::new().lease(std::time::Duration::from_secs(300))).unwrap();
    while say(b.folder(), &["stat", "door"], "").code != 0 {
        std::thread::yield_now();
    }
    let shown = say(b.folder(), &["locks"], "").out;
    assert!(shown.contains("held") && shown.contains("node 1, client ") && shown.contains(" s"), "{shown}");
    let asked = say(b.folder(), &["locks", "door", "--break"], "");
    assert!(asked.code == 1 && asked.err.contains("say --yes"), "{}", asked.err);
    assert_eq!(say(b.folder(), &["locks", "--break", "--yes"], "").code, 2, "which ones has to be said");
    held.put(0, b"mine").unwrap();
    let broken = say(b.folder(), &["locks", "door", "--break", "--yes"], "");
    assert_eq!((broken.code, broken.out.as_str()), (0, "door: 1 taken away\n"), "{}", broken.err);
    assert_eq!(held.put(0, b"late").unwrap_err().failure(), Some(ddss::Failure::LockLost));
    door.lock().unwrap().unlock().unwrap();
    assert_eq!(say(b.folder(), &["locks", "door", "--break"], "").out, "nobody holds a lock of door\n");
    // What a pattern matches is asked about, too.
    let asked = say(a.folder(), &["release", "do*"], "");
    assert!(asked.code == 1 && asked.err.contains("door\n"), "{}", asked.err);
    assert_eq!(say(a.folder(), &["release", "do*", "--yes"], "").out, "door: released\n");
}
