//! The commands as people and scripts use them, against real daemons.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, binary};
use serde_json::Value;

fn ddss(daemon: &Daemon, words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(words).arg("--dir").arg(daemon.folder());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn output_parts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn json(output: &Output) -> Value {
    let (code, out, err) = output_parts(output);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

// If this failed, a script could not use a segment.
#[test]
fn segment_lifecycle_works_from_allocate_to_release() {
    let daemon = Daemon::start(1).unwrap();
    let made = json(&ddss(&daemon, &["allocate", "scores", "4096", "--json"], b""));
    assert_eq!((&made["name"], &made["bytes"], &made["home"]), (&"scores".into(), &4096.into(), &1.into()));
    let put = json(&ddss(&daemon, &["put", "scores", "-", "--offset", "8", "--json"], b"from a pipe"));
    assert_eq!(put["version"], 1);
    assert!(put["timestamp_us"].as_u64().unwrap() > 1_000_000_000_000_000);
    let got = ddss(&daemon, &["get", "scores", "--offset", "8", "--length", "11"], b"");
    assert_eq!(output_parts(&got).1, "from a pipe");
    let got = json(&ddss(&daemon, &["get", "scores", "--offset", "8", "--length", "4", "--json"], b""));
    assert_eq!((got["hex"].as_str(), &got["version"]), (Some("66726f6d"), &1.into()));
    assert_eq!(json(&ddss(&daemon, &["stat", "scores", "--json"], b""))["id"], made["id"]);
    assert!(json(&ddss(&daemon, &["ping", "--json"], b""))["round_trip_us"].as_f64().unwrap() > 0.0);
    assert_eq!(json(&ddss(&daemon, &["release", "scores", "--json"], b""))["released"][0], "scores");
    let (code, _, why) = output_parts(&ddss(&daemon, &["stat", "scores"], b""));
    assert_eq!(
        (code, why.as_str()),
        (
            1,
            "ddss: cannot open scores: there is no such segment (never allocated, or released since)\n  next: `ddss ls` lists the segments\n"
        )
    );
}

// If this failed, a user could not see that a segment is a table, nor read a row of it.
#[test]
fn table_shows_its_rows_and_gives_one_at_a_time() {
    let daemon = Daemon::start(1).unwrap();
    assert_eq!(output_parts(&ddss(&daemon, &["allocate", "users", "640", "--row", "64"], b"")).0, 0);
    for (row, name) in [(0, "ann"), (1, "bob"), (1, "eve")] {
        let offset = (64 * row).to_string();
        assert_eq!(output_parts(&ddss(&daemon, &["put", "users", "-", "--offset", &offset], name.as_bytes())).0, 0);
    }
    let stat = ddss(&daemon, &["stat", "users"], b"");
    assert!(output_parts(&stat).1.contains("10 rows of 64 bytes, each with its own version"), "{stat:?}");
    assert_eq!(json(&ddss(&daemon, &["stat", "users", "--json"], b""))["row_bytes"], 64);
    let row = json(&ddss(&daemon, &["get", "users", "--offset", "64", "--length", "3", "--json"], b""));
    assert_eq!((row["hex"].as_str(), &row["version"]), (Some("657665"), &2.into()));
    let file = daemon.folder().join("users.bin");
    let path = file.to_str().unwrap();
    assert_eq!(json(&ddss(&daemon, &["export", "users", path, "--json"], b""))["bytes"], 640);
    assert_eq!(std::fs::read(&file).unwrap()[64..67], *b"eve");
    assert_eq!(json(&ddss(&daemon, &["import", "users", path, "--json"], b""))["bytes"], 640);
    assert!(output_parts(&ddss(&daemon, &["hexdump", "users"], b"")).1.contains("|eve....."));
    let (code, _, why) = output_parts(&ddss(&daemon, &["get", "users"], b""));
    assert!(code == 1 && why.contains("`ddss get users --offset 64 --length 64`"), "{code}: {why}");
    let (code, _, why) = output_parts(&ddss(&daemon, &["allocate", "odd", "100", "--row", "64"], b""));
    assert!(code == 2 && why.contains("a multiple of the row's 64"), "{code}: {why}");
}

// If this failed, a user could not see or repair the entries of a map, or would take a mistake for an answer.
#[test]
fn map_commands_read_and_write_entries() {
    let daemon = Daemon::start(1).unwrap();
    let map = |words: &[&str]| output_parts(&ddss(&daemon, &[&["map"], words].concat(), b""));
    let done = |words: &[&str]| {
        let (code, out, why) = map(words);
        assert_eq!(code, 0, "{words:?}: {why}");
        out
    };
    done(&["allocate", "users", "100", "--key-bytes", "16", "--value-bytes", "32"]);
    assert_eq!(done(&["put", "users", "alice", "likes tea"]), "alice: a new key\n");
    assert_eq!(done(&["put", "users", "alice", "likes coffee"]), "alice: replaced\n");
    assert_eq!(done(&["get", "users", "alice"]), "likes coffee\n");
    done(&["put", "users", "bob", "hello", "--expire", "600"]);
    assert_eq!(done(&["ls", "users", "--prefix", "al"]), "alice\tlikes coffee\n");
    assert_eq!(done(&["ls", "users"]).lines().count(), 2);
    assert_eq!(done(&["watch", "users", "nobody", "--count", "1"]), "(absent)\n");
    assert_eq!(done(&["remove", "users", "bob"]), "bob: removed\n");
    for (words, code, part) in [
        (&["get", "users", "bob"][..], 1, "`ddss map ls users` lists the entries"),
        (&["remove", "users", "bob"], 1, "there is no key bob in users"),
        (&["put", "users", "alice", "x", "--new"], 1, "omit --new to replace its value"),
        (&["put", "users", "a key that is too long", "x"], 2, "bytes of the key is 22, and may be 16"),
        (&["put", "users", "7", "x", "--key-as", "u64"], 2, "bytes of the key is 8, and may be 16"),
        (&["get", "users", "seven", "--key-as", "u64"], 1, "is not a valid u64"),
        (&["get", "nothing", "key"], 1, "there is no such segment"),
    ] {
        let (found, _, why) = map(words);
        assert!(found == code && why.contains(part), "{words:?}: {found} {why}");
    }
    // A map that a program has made of its types, and a segment that is no map.
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let stock = client.map::<u64, [u32; 2]>("stock").allocate(100).unwrap();
    stock.put(&4711, &[10, 3]).unwrap();
    assert_eq!(done(&["get", "stock", "4711", "--key-as", "u64", "--as", "u32"]), "10 3\n");
    assert_eq!(done(&["get", "stock", "4711", "--key-as", "u64"]), "0a00000003000000\n");
    done(&["put", "stock", "5", "1 2", "--key-as", "u64", "--as", "u32"]);
    assert_eq!(stock.get(&5).unwrap().map(|entry| entry.value), Some([1, 2]));
    client.segment("plain").allocate(Spec::new(64)).unwrap();
    let (code, _, why) = map(&["ls", "plain"]);
    assert!(code == 2 && why.contains("is a plain segment"), "{code}: {why}");
    // The watcher prints the present value, and the next one when it comes.
    let mut watcher = Command::new(binary("ddss").unwrap());
    let watcher = watcher.args(["map", "watch", "users", "alice", "--count", "2", "--dir"]).arg(daemon.folder());
    let mut watcher = watcher.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "likes coffee");
    done(&["remove", "users", "alice"]);
    assert_eq!(lines.next().unwrap().unwrap(), "(absent)");
    assert!(watcher.wait().unwrap().success());
}

// If this failed, a mistyped command would give no message, or a wrong one.
#[test]
fn wrong_arguments_give_an_error_message_and_exit_code() {
    let daemon = Daemon::start(1).unwrap();
    for (words, code, part) in [
        (&["allocate", "a\nb", "8"][..], 2, "control characters"),
        (&["allocate", "big", "999999999999"], 1, "no memory left"),
        (&["allocate", "none", "0"], 2, "bytes is 0"),
        (&["allocate", "x", "many"], 2, "invalid value"),
        (&["allocate", "x", "8", "--model", "fast"], 2, "is not a model"),
        (&["allocate", "x", "8", "--mode", "999"], 2, "is not a mode"),
        (&["allocate", "x", "8", "--home", "7"], 1, "home node does not answer"),
        (&["get", "nothing"], 1, "there is no such segment"),
        (&["fly"], 2, "unrecognized"),
    ] {
        let (found, _, why) = output_parts(&ddss(&daemon, words, b""));
        assert_eq!(found, code, "{words:?}: {why}");
        assert!(why.contains(part), "{words:?}: {why}");
        assert!(!why.contains("panicked"), "{words:?}: {why}");
    }
    let mut lost = Command::new(binary("ddss").unwrap());
    let lost = lost.args(["ping", "--dir", "/nowhere"]).output().unwrap();
    let (code, _, why) = output_parts(&lost);
    assert_eq!(code, 4);
    assert!(why.contains("ddssd --dir /nowhere"), "{why}");
}

// If this failed, two daemons would commit to the same memory, or a wrong flag would be taken for a right one.
#[test]
fn daemon_that_cannot_start_reports_why_and_exits() {
    let daemon = Daemon::start(1).unwrap();
    let start = |words: &[&str]| {
        let mut command = Command::new(binary("ddssd").unwrap());
        output_parts(&command.args(words).output().unwrap())
    };
    let folder = daemon.folder().to_str().unwrap();
    let (code, _, why) = start(&["--dir", folder]);
    assert_eq!(code, 3);
    assert!(why.contains("another ddssd works in"), "{why}");
    let (code, _, why) = start(&["--node", "0", "--dir", "/dev/null/x"]);
    assert_eq!(code, 2);
    assert!(why.contains("numbered from 1"), "{why}");
    let (code, _, why) = start(&["--dir", "/dev/null/x"]);
    assert_eq!(code, 4);
    assert!(why.contains("cannot use the folder"), "{why}");
    let (code, _, why) = start(&["--peer", "two"]);
    assert_eq!(code, 2);
    assert!(why.contains("give NODE=ADDRESS:PORT"), "{why}");
}

// If this failed, an operator's stop would look like a crash, and leave files behind.
#[test]
fn stopped_daemon_leaves_its_segments_or_nothing() {
    let mut daemon = Daemon::start(1).unwrap();
    let (socket, register) = (daemon.socket(), daemon.folder().join("memory").join("register"));
    assert!(socket.exists() && register.exists());
    daemon.process().end().unwrap();
    assert!(!socket.exists() && register.exists());
    let mut daemon = DaemonOptions::new(1).unwrap().argument("--discard").start().unwrap();
    let memory = daemon.folder().join("memory");
    assert!(memory.join("register").exists());
    daemon.process().end().unwrap();
    // The lock is on the directory itself, so that no file has to remain in it.
    let left: Vec<_> = std::fs::read_dir(memory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
