//! Validates the `--json` output of every command, from real daemons, against its schema. The list of commands is read
//! from the program itself, so a command without a schema fails, and so does a schema without a command.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, LockOptions};
use ddss_river::flow::{Each, Edge, Flow, FlowOptions};
use ddss_river::{FileServer, FilesOptions};
use ddss_testkit::{
    Daemon, DaemonOptions, TempNode, commands, preload_library, repo_lints, run_ddss, schema_complaints,
};
use serde_json::Value;

use crate::second_reader;

/// Commands without JSON output, because their raw output is for scripts.
const TEXT_ONLY: &[&[&str]] = &[&["completions"], &["river", "cat"], &["river", "dot"], &["river", "serve"]];
/// Commands that start another program: their output is that program's.
const LAUNCHERS: [&[&str]; 3] = [&["run"], &["dsm", "run"], &["river", "run"]];
/// Time limit for the cluster to agree.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands that were validated, with their schemas.
#[derive(Default)]
struct Held {
    commands: RefCell<BTreeSet<Vec<String>>>,
    schemas: RefCell<BTreeSet<String>>,
    /// Validated lines, with their schemas.
    lines: RefCell<Vec<(String, Value)>>,
}

impl Held {
    /// Runs a command with `--json` and validates each line of its output against the schema of that name.
    fn of(&self, folder: &Path, words: &[&str]) -> Vec<Value> {
        self.ending(folder, words, 0)
    }

    /// Runs and validates a command as [`of`](Self::of) does, but expects this exit code.
    fn ending(&self, folder: &Path, words: &[&str], code: i32) -> Vec<Value> {
        let schema = match words {
            ["river", "units", part, ..] => format!("river-units-{part}"),
            [group @ ("cluster" | "dsm" | "map" | "river"), part, ..] => format!("{group}-{part}"),
            ["locks", .., "--yes"] => "locks-break".to_owned(),
            ["demo", part @ ("dsm" | "river" | "streams"), ..] => format!("demo-{part}"),
            _ => words[0].to_owned(),
        };
        let said = run_ddss(folder, &[&["--json"], words].concat(), "").unwrap();
        assert_eq!(said.code, code, "{words:?}: {}", said.err);
        self.complaints(&said.err);
        let file = repo_lints::workspace_root().join("crates/ddss-cli/schemas").join(&schema).with_extension("json");
        let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!lines.is_empty(), "{words:?} said nothing");
        for line in &lines {
            let complaints = schema_complaints(&file, line);
            assert!(complaints.is_empty(), "{words:?}:\n{}", complaints.join("\n"));
        }
        let command = match words {
            ["river", "units", ..] => &words[..3],
            ["cluster" | "dsm" | "map" | "river", ..] => &words[..2],
            _ => &words[..1],
        };
        self.commands.borrow_mut().insert(command.iter().map(|word| (*word).to_owned()).collect());
        self.lines.borrow_mut().extend(lines.iter().map(|line| (schema.clone(), line.clone())));
        self.schemas.borrow_mut().insert(schema);
        lines
    }

    /// Parses each line of standard error as an object, and returns the last error.
    fn complaints(&self, text: &str) -> Value {
        let file = repo_lints::workspace_root().join("crates/ddss-cli/schemas/error.json");
        self.schemas.borrow_mut().insert("error".to_owned());
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{text}")));
        let lines: Vec<Value> = lines.collect();
        for line in &lines {
            let complaints = schema_complaints(&file, line);
            assert!(complaints.is_empty(), "{line}:\n{}", complaints.join("\n"));
        }
        self.lines.borrow_mut().extend(lines.iter().map(|line| ("error".to_owned(), line.clone())));
        lines.into_iter().rfind(|line| !line["error"].is_null()).unwrap_or_default()
    }

    /// Expects that every command was validated against a schema, and that every schema belongs to a command or is part
    /// of another.
    fn is_whole(&self) {
        let launches = |path: &Vec<String>| LAUNCHERS.iter().any(|words| path.iter().eq(words.iter()));
        let text_only =
            |path: &Vec<String>| launches(path) || TEXT_ONLY.iter().any(|words| path.iter().eq(words.iter()));
        let all: BTreeSet<Vec<String>> = commands().unwrap().into_keys().filter(|path| !text_only(path)).collect();
        assert_eq!(*self.commands.borrow(), all, "a command is held against no schema, or is none any more");
        let (mut there, mut parts) = (BTreeSet::new(), BTreeSet::new());
        for entry in std::fs::read_dir(repo_lints::workspace_root().join("crates/ddss-cli/schemas")).unwrap() {
            let path = entry.unwrap().path();
            there.insert(path.file_stem().unwrap().to_string_lossy().into_owned());
            let text = std::fs::read_to_string(path).unwrap();
            let named = text.split("\"$ref\": \"").skip(1).filter_map(|rest| rest.split_once(".json\""));
            parts.extend(named.map(|(name, _)| name.to_owned()));
        }
        let held: BTreeSet<String> = self.schemas.borrow().union(&parts).cloned().collect();
        assert_eq!(held, there, "a schema describes what no command says");
    }
}

// If this failed, a script that reads what the schema promises would break with the next release.
#[test]
fn json_output_of_each_command_matches_its_schema() {
    let held = Held::default();
    let mut daemon = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let folder = daemon.folder().to_owned();
    let of = |words: &[&str]| held.of(&folder, words);
    bytes_and_segments(&folder, &of);
    locks(&folder, &of);
    what_is_measured(&folder, &of);
    // The state of the test's node is in memory, which it calls bad.
    held.ending(&folder, &["doctor"], 1);
    a_cluster_comes_and_goes(&daemon, &held);
    // The same names when the daemon is dead.
    daemon.kill().unwrap();
    what_is_told_of_the_dead(&folder, &|words| held.ending(&folder, words, 4));
    held.is_whole();
    second_reader::agrees("json_output_of_each_command_matches_its_schema", &held.lines.borrow());
}

fn bytes_and_segments(folder: &Path, of: &dyn Fn(&[&str]) -> Vec<Value>) {
    let file = folder.join("exported");
    let file = file.to_str().unwrap();
    of(&["ping"]);
    of(&["allocate", "a", "4096", "--history", "3", "--model", "delta=2"]);
    of(&["allocate", "b", "64", "--mode", "640", "--home", "hash"]);
    of(&["put", "a", "[1]", "--as", "json"]);
    of(&["get", "a", "--length", "8"]);
    of(&["get", "a", "--length", "3", "--as", "json", "--offset", "0"]);
    of(&["history", "a"]);
    of(&["hexdump", "a", "--length", "40"]);
    of(&["watch", "a", "--count", "1", "--as", "u8", "--length", "2"]);
    of(&["stat", "a"]);
    // The table of a space of two ranks.
    of(&["allocate", "dsm/heat", "640", "--row", "128"]);
    of(&["dsm", "ls"]);
    of(&["dsm", "top", "--pages"]);
    of(&["dsm", "rm", "heat"]);
    messages(folder, of);
    collections(folder, of);
    flows(folder, of);
    assert_eq!(of(&["river", "units", "add", "u", "one", "two"])[0]["count"], 2);
    assert_eq!(of(&["river", "units", "work", "u", "--", "true"])[1]["outcome"], "done");
    assert_eq!(of(&["river", "units", "ls", "u"])[0][1]["content"], "two");
    of(&["river", "units", "retry", "u"]);
    of(&["release", "river/u/units"]);
    of(&["chmod", "644", "b"]);
    of(&["export", "b", file]);
    of(&["import", "c", file]);
    of(&["map", "allocate", "m", "20", "--key-bytes", "8", "--value-bytes", "16"]);
    assert_eq!(of(&["map", "put", "m", "ann", "likes tea"])[0]["new"], true);
    of(&["map", "put", "m", "7", "1 2", "--key-as", "u64", "--as", "u64", "--expire", "600"]);
    assert_eq!(of(&["map", "get", "m", "ann", "--as", "utf8"])[0]["value"], "likes tea");
    of(&["map", "get", "m", "ann"]);
    assert_eq!(of(&["map", "ls", "m"]).len(), 2);
    of(&["map", "ls", "m", "--key-as", "utf8", "--as", "utf8", "--prefix", "a"]);
    of(&["map", "watch", "m", "ann", "--count", "1"]);
    of(&["map", "watch", "m", "nobody", "--count", "1"]);
    of(&["map", "remove", "m", "ann"]);
    of(&["status"]);
    of(&["nodes"]);
    of(&["streams"]);
}

/// Two lines go through a queue.
fn messages(folder: &Path, of: &dyn Fn(&[&str]) -> Vec<Value>) {
    std::thread::scope(|scope| {
        let put = scope.spawn(|| run_ddss(folder, &["river", "put", "q", "--close", "--json"], "one\ntwo\n").unwrap());
        let end = Instant::now() + PATIENCE;
        while of(&["river", "ls"])[0].as_array().unwrap().is_empty() {
            assert!(Instant::now() < end, "the queue is never listed");
        }
        assert_eq!(of(&["river", "show", "q"])[0]["queue"], "q");
        assert_eq!(of(&["river", "top"])[0][0]["queue"], "q");
        assert_eq!(of(&["river", "take", "q", "--count", "1"])[0]["message"], "one");
        assert_eq!(of(&["river", "take", "q", "--", "true"])[0]["exit_code"], 0);
        put.join().unwrap();
    });
    let end = Instant::now() + PATIENCE;
    while of(&["river", "show", "q"])[0]["members"] != serde_json::json!([]) {
        assert!(Instant::now() < end, "the members stay");
    }
    assert_eq!(of(&["river", "show", "q"])[0]["state"], "closed");
    of(&["release", "river/q"]);
    let missing = run_ddss(folder, &["river", "put", "q", "/nowhere/file", "--json"], "").unwrap();
    assert_eq!(missing.code, 1, "{missing:?}");
    let file = folder.join("message");
    std::fs::write(&file, b"three").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| run_ddss(folder, &["river", "take", "q", "--count", "1"], "").unwrap());
        assert_eq!(of(&["river", "put", "q", file.to_str().unwrap()])[0]["bytes"], 5);
    });
    of(&["release", "river/q"]);
}

/// A file is mirrored on two servers of this test.
fn collections(folder: &Path, of: &dyn Fn(&[&str]) -> Vec<Value>) {
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let serve = |name: &str| FileServer::start(&client, &folder.join(name), FilesOptions::new()).unwrap();
    let (_one, _two) = (serve("files-one"), serve("files-two"));
    let file = folder.join("content");
    std::fs::write(&file, b"content").unwrap();
    assert_eq!(of(&["river", "load", "c", file.to_str().unwrap()])[0]["bytes"], 7);
    assert_eq!(of(&["river", "files"])[0][0]["parts"], 1);
    assert_eq!(of(&["river", "verify", "c"])[0]["damages"], serde_json::json!([]));
    assert_eq!(of(&["river", "repair", "c"])[0]["repaired"], serde_json::json!([]));
    of(&["release", "river/files/c"]);
}

/// A flow waits for a second process.
fn flows(folder: &Path, of: &dyn Fn(&[&str]) -> Vec<Value>) {
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let options = FlowOptions::new().processes(2).timeout(PATIENCE);
    let mut flow = Flow::join_with(&client, "f", options).unwrap();
    let put = flow.source("put", Each::Flow, |_, _| Ok(())).unwrap();
    let take = flow.sink("take", Each::Flow, |_, _| Ok(())).unwrap();
    flow.attach(put, take, Edge::by_key(|message| message)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| flow.go().map(drop).unwrap_err());
        let end = Instant::now() + PATIENCE;
        while !of(&["river", "ls"])[0].as_array().unwrap().iter().any(|found| found["members"] == 1) {
            assert!(Instant::now() < end, "the flow is never listed");
        }
        assert_eq!(of(&["river", "show", "f"])[0]["edges"][0]["kind"], "by key");
        of(&["river", "top"]);
        // Its member may have left by now.
        let mut is_removed = of(&["river", "cancel", "f"])[0]["removed"] == true;
        waiting.join().unwrap();
        while !is_removed {
            assert!(Instant::now() < end, "a member stays");
            is_removed = of(&["river", "cancel", "f"])[0]["removed"] == true;
        }
    });
}

fn locks(folder: &Path, of: &dyn Fn(&[&str]) -> Vec<Value>) {
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let lock = |name: &str| {
        let options = if name == "b" { LockOptions::new().shared() } else { LockOptions::new() };
        client.segment(name).open().unwrap().lock_with(options).unwrap()
    };
    let held = ["a", "b", "b"].map(lock);
    of(&["ls"]);
    assert_eq!(of(&["locks"])[0].as_array().unwrap().len(), 2);
    assert_eq!(of(&["locks", "b*", "--break", "--yes"])[0][0]["broken"], 2);
    drop(held);
    assert_eq!(of(&["release", "b", "c"])[0]["released"].as_array().unwrap().len(), 2);
}

fn what_is_measured(folder: &Path, of: &dyn Fn(&[&str]) -> Vec<Value>) {
    let plot = folder.join("plot.svg");
    let words = ["bench", "--measure-ms", "10", "--plot", plot.to_str().unwrap()];
    let figures = of(&[&words[..], &["--dir", folder.to_str().unwrap()]].concat());
    // Four strategies, three gets in place, three gets and three puts through the daemon.
    assert_eq!(figures[0]["rows"].as_array().unwrap().len(), 13);
    let picture = std::fs::read_to_string(&plot).unwrap();
    assert_eq!(picture.matches("<circle").count(), 13);
    assert!(picture.ends_with("</svg>\n") && picture.contains("null call, rcq"), "{picture}");
    assert_eq!(of(&["ls", "ddss-bench/*"])[0].as_array().unwrap().len(), 0);
    let counted = &of(&["counters"])[0];
    assert!(counted["counters"]["commits"].as_u64() > Some(0), "{counted}");
    assert!(counted["operations"]["put"]["done"].as_u64() > Some(0), "{counted}");
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    // The daemon publishes them only now and then.
    let begin = Instant::now();
    let is_ours = |row: &Value| row["pid"] == std::process::id();
    while !of(&["clients"])[0].as_array().unwrap().iter().any(is_ours) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the client is never listed");
    }
    drop(client);
    of(&["top", "--interval-ms", "100"]);
    let traced = &of(&["trace", "a"])[0]["samples"];
    let is_get = |sample: &Value| sample["call"] == "get" && sample["outcome"] == "done";
    assert!(traced.as_array().unwrap().iter().all(is_get), "{traced}");
    of(&["trace", "a", "--call", "put", "--bytes", "64"]);
    let shown = &of(&["demo", "--measure-ms", "10"])[0];
    assert_eq!(shown["strategies"].as_array().unwrap().len(), 4);
    let shown = &of(&["demo", "dsm"])[0];
    assert_eq!(shown["protocols"].as_array().unwrap().len(), 4);
    let shown = &of(&["demo", "river"])[0];
    assert_eq!(shown["runs"].as_array().unwrap().len(), 3);
    // The command finds the library beside itself.
    preload_library().unwrap();
    let shown = &of(&["demo", "streams", "--measure-ms", "10"])[0];
    assert_eq!((shown["before"].as_array().unwrap().len(), shown["after"].as_array().unwrap().len()), (2, 2));
}

/// Creates a key, with which two more nodes join. One of them leaves, the other is removed when it is dead.
fn a_cluster_comes_and_goes(one: &Daemon, held: &Held) {
    let state = TempNode::new().unwrap();
    let token = held.of(one.folder(), &["cluster", "token"])[0]["token"].as_str().unwrap().to_owned();
    let path = |name: &str| state.join(name).to_str().unwrap().to_owned();
    held.of(one.folder(), &["cluster", "init", "--state-dir", &path("one")]);
    held.of(one.folder(), &["cluster", "join", "127.0.0.1:7", &token, "--state-dir", &path("two")]);
    let join = |node| DaemonOptions::new(node).unwrap().joins(one.listen()).start().unwrap();
    let (two, mut three) = (join(2), join(3));
    let nodes = |expected: usize| {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = held.of(one.folder(), &["nodes"]);
            if seen[0].as_array().unwrap().len() == expected {
                return;
            }
            assert!(Instant::now() < end, "{seen:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    nodes(3);
    let file = path("snapshot");
    let taken = held.of(two.folder(), &["cluster", "snapshot", &file]);
    let verified = held.of(two.folder(), &["cluster", "restore", &file, "--check"]);
    assert_eq!(taken[0]["segments"], verified[0]["segments"], "{taken:?} {verified:?}");
    held.of(two.folder(), &["cluster", "restore", &file, "--skip-existing"]);
    held.of(two.folder(), &["cluster", "status"]);
    held.of(two.folder(), &["cluster", "lead", "1"]);
    held.of(two.folder(), &["cluster", "leave"]);
    nodes(2);
    three.kill().unwrap();
    held.of(three.folder(), &["cluster", "recover"]);
    held.of(one.folder(), &["cluster", "remove", "3"]);
    nodes(1);
}

fn what_is_told_of_the_dead(folder: &Path, of: &dyn Fn(&[&str]) -> Vec<Value>) {
    let left = of(&["ls"]);
    assert_eq!((&left[0][0]["name"], &left[0][0]["live"]), (&"a".into(), &false.into()));
    // The output of `trace` counts as well.
    assert!(left[0][0]["version"].as_u64() > Some(1), "{left:?}");
    assert_eq!(of(&["stat", "a"])[0]["live"], false);
    assert_eq!(of(&["status"])[0]["daemon"], "dead");
    // The last heartbeat is still fresh for a moment.
    let end = Instant::now() + PATIENCE;
    while run_ddss(folder, &["counters", "--json"], "").unwrap().code == 0 {
        assert!(Instant::now() < end, "a daemon that was killed seems to serve");
    }
    for command in ["counters", "top", "trace"] {
        assert_eq!(of(&[command])[0]["daemon"]["life"], "dead", "{command}");
    }
    of(&["clients"]);
    assert_eq!(run_ddss(folder, &["stat", "nothing"], "").unwrap().code, 1);
    assert_eq!(run_ddss(folder, &["get", "a"], "").unwrap().code, 4);
}

// If this failed, a script that asked for JSON would have to parse sentences as soon as a command fails.
#[test]
fn json_error_is_one_object_with_code_and_hint() {
    let held = Held::default();
    let daemon = Daemon::start(1).unwrap();
    let nowhere = TempNode::new().unwrap();
    let failed = |folder: &Path, words: &[&str], code: i32| {
        let said = run_ddss(folder, words, "").unwrap();
        assert!(said.code == code && said.out.is_empty(), "{words:?}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "{words:?}: {said:?}");
        let told = held.complaints(&said.err);
        assert_eq!(told["code"], code, "{told}");
        told
    };
    let told = failed(daemon.folder(), &["stat", "nothing", "--json"], 1);
    assert!(
        told["error"].as_str().unwrap().contains("nothing") && told["hint"] == "`ddss ls` lists the segments",
        "{told}"
    );
    let told = failed(nowhere.path(), &["--json", "get", "a"], 4);
    assert!(told["error"].as_str().unwrap().contains("no daemon is running"), "{told}");
    for words in [&["status", "--json"][..], &["ls", "--json"], &["stat", "a", "--json"], &["counters", "--json"]] {
        failed(nowhere.path(), words, 4);
    }
    let told = failed(daemon.folder(), &["allocate", "a", "many", "--json"], 2);
    assert!(told["error"].as_str().unwrap().contains("many"), "{told}");
    failed(daemon.folder(), &["fly", "--json"], 2);
    // Without the flag the error is a sentence.
    assert!(run_ddss(daemon.folder(), &["fly"], "").unwrap().err.starts_with("error: "));
}

// If this failed, a script would take text for JSON.
#[test]
fn command_without_json_output_refuses_the_json_flag() {
    let node = TempNode::new().unwrap();
    for command in TEXT_ONLY {
        let said = run_ddss(node.path(), &[*command, &["bash", "--json"]].concat(), "").unwrap();
        assert!(said.code == 2 && said.err.contains("no JSON") && said.out.is_empty(), "{said:?}");
    }
}
