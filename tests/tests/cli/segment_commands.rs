//! The commands that describe segments and transfer their bytes, against real daemons.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::process::{Command, Output};

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, binary, run_ddss, skipped};
use serde_json::{Value, json};

fn run(daemon: &Daemon, words: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(binary("ddss").unwrap()).args(words).env("DDSS_DIR", daemon.folder()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn out(daemon: &Daemon, words: &[&str]) -> String {
    let (code, out, err) = run(daemon, words);
    assert_eq!(code, 0, "{words:?}: {err}");
    out
}

fn json_of(daemon: &Daemon, words: &[&str]) -> Value {
    serde_json::from_str(&out(daemon, &[words, &["--json"]].concat())).unwrap()
}

// If this failed, a script would miss a segment, or read metadata of another one.
#[test]
fn segment_list_is_complete_and_has_stable_field_names() {
    let [a, b] = Daemon::pair().unwrap();
    for (name, bytes) in [("scores/1", "100"), ("scores/2", "200"), ("other", "300")] {
        out(&a, &["allocate", name, bytes, "--history", "2", "--model", "write"]);
    }
    let begin = std::time::Instant::now();
    while json_of(&b, &["ls"]).as_array().unwrap().len() < 3 {
        assert!(begin.elapsed().as_secs() < 20, "the nodes do not find each other");
    }
    let found = json_of(&b, &["ls", "scores/?"]);
    let mut keys: Vec<&str> = found[0].as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = [
        "bytes",
        "copies",
        "gid",
        "history",
        "home",
        "id",
        "live",
        "lock",
        "mode",
        "model",
        "name",
        "nodes_reading",
        "replica",
    ];
    assert_eq!(keys, [&expected[..], &["row_bytes", "storage", "timestamp_us", "uid", "version"]].concat());
    let names: Vec<&str> = found.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["scores/1", "scores/2"]);
    assert_eq!(
        (&found[1]["bytes"], &found[1]["history"], &found[1]["model"]),
        (&json!(200), &json!(2), &json!("write"))
    );
    assert_eq!(out(&b, &["ls", "nothing*"]).lines().count(), 1, "the head stands there all the same");
    assert!(run(&b, &["ls", "nothing*"]).2.ends_with("no segment matches\n"));
    assert_eq!(
        run(&b, &["get", "scores/1", "--offset", "101"]).2,
        "ddss: scores/1 has 100 bytes, byte 101 is out of range\n"
    );
    out(&b, &["chmod", "640", "scores/1"]);
    assert_eq!(json_of(&a, &["stat", "scores/1"])["mode"], "640");
    assert!(out(&a, &["stat", "scores/1"]).contains("mode      rw-r----- (640)"));
    assert_eq!(out(&a, &["locks"]).lines().count(), 1);
    assert!(run(&a, &["locks"]).2.ends_with("no lock is held or waited for\n"));
    let client = Client::connect_with(ConnectOptions::new().directory(a.folder())).unwrap();
    let held = client.segment("other").open().unwrap().lock().unwrap();
    let locks = out(&b, &["locks"]);
    let row = locks.lines().nth(1).unwrap().split_whitespace();
    assert_eq!(row.take(3).collect::<Vec<_>>(), ["other", "1", "held"], "{locks}");
    held.unlock().unwrap();
}

// If this failed, bytes put by hand or from a file would be changed.
#[test]
fn data_commands_carry_numbers_text_versions_and_files() {
    let daemon = Daemon::start(1).unwrap();
    out(&daemon, &["allocate", "n", "64", "--history", "4"]);
    out(&daemon, &["put", "n", "--as", "u64", "1 2 3"]);
    out(&daemon, &["put", "n", "--as", "f32", "0.5", "--offset", "32", "--if-version", "1"]);
    let (code, _, why) = run(&daemon, &["put", "n", "x", "--if-version", "1"]);
    assert!(code == 1 && why.contains("another version"), "{why}");
    assert_eq!(out(&daemon, &["get", "n", "--as", "u64", "--length", "24"]), "1 2 3\n");
    assert_eq!(
        json_of(&daemon, &["get", "n", "--as", "f32", "--offset", "32", "--length", "4"])["value"],
        json!([0.5])
    );
    assert_eq!(out(&daemon, &["get", "n", "--version", "0", "--as", "hex", "--length", "2"]), "0000\n");
    let versions: Vec<Value> =
        json_of(&daemon, &["history", "n"]).as_array().unwrap().iter().map(|row| row["version"].clone()).collect();
    assert_eq!(versions, [2, 1, 0]);
    let dump = out(&daemon, &["hexdump", "n", "--length", "16"]);
    assert_eq!(
        dump.lines().next().unwrap(),
        "00000000  01 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00  |................|"
    );
    let file = daemon.folder().join("exported");
    let file = file.to_str().unwrap();
    assert_eq!(json_of(&daemon, &["export", "n", file])["one_version"], true);
    out(&daemon, &["import", "copy", file]);
    assert_eq!(out(&daemon, &["get", "copy", "--as", "u64", "--length", "24"]), "1 2 3\n");
    assert!(out(&daemon, &["watch", "copy", "--count", "1", "--as", "u8", "--length", "1"]).ends_with("1\n"));
    let empty = daemon.folder().join("empty");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    for (words, part) in [
        (&["put", "n", "--as", "u8", "256"][..], "is not a valid u8"),
        (&["get", "n", "--as", "u64", "--length", "9"], "not a multiple of 8"),
        (&["get", "n", "--version", "99"], "another version"),
        (&["import", "n", "/nowhere"], "cannot open /nowhere: "),
        (&["chmod", "999", "n"], "three octal digits"),
        (&["hexdump", "n", "--length", "5000"], "byte 4999 is out of range"),
        (&["history", "n", "--length", "5000"], "byte 4999 is out of range"),
        (&["trace", "n", "--bytes", "5000"], "byte 4999 is out of range"),
        (&["import", "empty", "/dev/null"], "it is not a regular file"),
        (&["import", "empty", empty], "bytes is 0, and may be 1 to"),
        (&["allocate", "m", "64", "--history", "1025"], "history is 1025, and may be 0 to 1024"),
        (&["allocate", "m", "64", "--model", "delta=1025"], "delta is 1025, and may be 0 to 1024"),
        (&["allocate", "m", "100000", "--model", "temporal=5"], "bytes is 100000, and may be 1 to 65536"),
    ] {
        let (code, _, why) = run(&daemon, words);
        assert!(code != 0 && why.contains(part), "{words:?}: {why}");
    }
}

// If this failed, an operator would search for hours for a problem that the machine can report.
#[test]
fn doctor_reports_each_problem_with_a_remedy() {
    let mut daemon = Daemon::start(1).unwrap();
    let findings = json_of(&daemon, &["doctor"]);
    let of = |what: &str| findings.as_array().unwrap().iter().find(|row| row["check"] == what).unwrap().clone();
    assert_eq!(of("daemon")["state"], "good");
    for row in findings.as_array().unwrap() {
        assert_eq!(row["state"] == "good", row["advice"] == "", "{row}");
    }
    // Here the memory is in a directory of its own, and not in /dev/shm.
    let memory = daemon.folder().join("memory").canonicalize().unwrap();
    let shared = of("shared memory");
    assert!(shared["found"].as_str().unwrap().ends_with(&format!("in {}", memory.display())), "{shared}");
    let is_in_memory = rustix::fs::statfs(&memory).unwrap().f_type == 0x0102_1994;
    assert!(is_in_memory || shared["state"] == "poor" && shared["advice"].as_str().unwrap().contains("--memory-dir"));
    daemon.kill().unwrap();
    let (code, out, why) = run(&daemon, &["doctor"]);
    assert!(code == 1 && out.contains("→ start a daemon with `ddssd`"), "{out}{why}");
    assert!(out.lines().any(|line| line.contains(memory.to_str().unwrap())), "{out}");
    let words = run(&daemon, &["completions", "bash"]).1;
    assert!(words.contains("hexdump") && words.contains("doctor"));
}

// If this failed, an operator would call a cluster healthy whose next death loses segments.
#[test]
fn doctor_fails_where_the_next_death_loses_segments() {
    let [a, mut b] = Daemon::pair().unwrap();
    let state = |what: &str, part: &str| {
        let findings: Value = serde_json::from_str(&run(&a, &["doctor", "--json"]).1).unwrap();
        let found = findings.as_array().unwrap().iter().find(|row| row["check"] == what).cloned();
        let found = found.unwrap_or_else(|| panic!("no {what}: {findings}"));
        assert_eq!(found["state"] == "good", found["advice"] == "", "{found}");
        (found["state"].as_str().unwrap().to_owned(), found["found"].as_str().unwrap().contains(part))
    };
    let until = |what: &str, wanted: &str, part: &str| {
        let begin = std::time::Instant::now();
        while state(what, part) != (wanted.to_owned(), true) {
            assert!(begin.elapsed().as_secs() < 60, "{what} never gets {wanted} with {part:?}");
        }
    };
    until("cluster", "good", "2 of 2 nodes are alive");
    out(&a, &["allocate", "both", "64", "--copies", "2"]);
    until("replicas", "good", "1 segments have a replica");
    // The state of this test's nodes is in memory.
    assert_eq!(state("state directory", "in memory"), ("bad".to_owned(), true));
    b.kill().unwrap();
    until("cluster", "bad", "dead: node 2");
    until("replicas", "bad", "1 of 1 segments have one copy now, such as both");
    let (code, out, _) = run(&a, &["doctor"]);
    assert!(code == 1 && out.contains("ddss cluster remove NODE"), "{code} {out}");
}

// If this failed, an operator would not learn why keys expire too early on one node.
#[test]
fn doctor_fails_where_the_clock_is_off() {
    let library = Path::new("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1");
    if !library.exists() {
        return skipped(
            "doctor_fails_where_the_clock_is_off",
            "the clock of one process cannot be set: install faketime",
        );
    }
    let one = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let faked = [&format!("LD_PRELOAD={}", library.display()), "FAKETIME=+5s", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
    let command = ["env"].into_iter().chain(faked).map(str::to_owned).collect();
    let two = DaemonOptions::new(2).unwrap().joins(one.listen()).command_prefix(command).start().unwrap();
    let clock = |daemon: &Daemon| {
        let findings: Value = serde_json::from_str(&run(daemon, &["doctor", "--json"]).1).unwrap();
        findings.as_array().unwrap().iter().find(|row| row["check"] == "clock").cloned().unwrap()
    };
    let begin = std::time::Instant::now();
    loop {
        let found = clock(&two);
        if found["state"] == "bad" && found["found"].as_str().unwrap().starts_with("5.0") {
            assert!(found["found"].as_str().unwrap().contains("ahead of the leader's"), "{found}");
            break;
        }
        assert!(begin.elapsed().as_secs() < 60, "{found}");
    }
    assert_eq!(clock(&one)["state"], "good");
}

// If this failed, a map or table would come back as plain bytes from a change of the number of progress threads.
#[test]
fn exported_segment_is_imported_with_its_kind_and_properties() {
    let (old, new) = (Daemon::start(1).unwrap(), Daemon::start(1).unwrap());
    let path = |name: &str| old.folder().join(name).to_str().unwrap().to_owned();
    let names: [&[&str]; 4] = [
        &["plain", "4096", "--history", "3"],
        &["stale", "512", "--model", "delta=2"],
        &["rows", "640", "--row", "64"],
        &["filed", "128", "--storage", "file"],
    ];
    for words in names {
        out(&old, &[&["allocate"], words].concat());
        let put = run_ddss(old.folder(), &["put", words[0], "-"], words[0]).unwrap();
        assert_eq!(put.code, 0, "{put:?}");
    }
    out(&old, &["chmod", "640", "rows"]);
    let client = Client::connect_with(ConnectOptions::new().directory(old.folder())).unwrap();
    let map: ddss::Map<str, [u64; 2]> = client.map("users").open_or_allocate(Spec::new(100).entry_len(16, 16)).unwrap();
    for key in 0..100 {
        map.put(&format!("key-{key}"), &[key, key * key]).unwrap();
    }

    let properties = |daemon: &Daemon, name: &str| {
        let mut found = json_of(daemon, &["stat", name]);
        let found = found.as_object_mut().unwrap();
        for volatile in ["id", "version", "timestamp_us", "lock", "nodes_reading", "home"] {
            found.remove(volatile);
        }
        serde_json::to_string(found).unwrap()
    };
    for name in ["plain", "stale", "rows", "filed", "users"] {
        out(&old, &["export", name, &path(name)]);
        out(&new, &["import", name, &path(name)]);
        assert_eq!(properties(&old, name), properties(&new, name));
    }
    let client = Client::connect_with(ConnectOptions::new().directory(new.folder())).unwrap();
    let map: ddss::Map<str, [u64; 2]> = client.map("users").open().unwrap();
    (0..100).for_each(|key| assert_eq!(map.get(&format!("key-{key}")).unwrap().unwrap().value, [key, key * key]));
    assert_eq!(map.len().unwrap(), 100);

    // A cluster of one node that is lost for good leaves its exports.
    let description = std::fs::read_to_string(path("rows.segment.json")).unwrap();
    std::fs::copy(path("rows"), path("two")).unwrap();
    let of_two = description.replace(r#""copies": 1"#, r#""copies": 2"#);
    assert_ne!(of_two, description);
    std::fs::write(path("two.segment.json"), of_two).unwrap();
    let (code, _, note) = run(&new, &["import", "two", &path("two")]);
    assert!(code == 0 && note.contains("one copy"), "{code} {note}");
    assert_eq!(json_of(&new, &["stat", "two"])["row_bytes"], 64);
    // Rows in the place of others would be garbage.
    out(&new, &["allocate", "other", "640", "--row", "128"]);
    std::fs::write(path("short"), "short").unwrap();
    std::fs::copy(path("rows.segment.json"), path("short.segment.json")).unwrap();
    std::fs::write(path("odd"), "odd").unwrap();
    std::fs::write(path("odd.segment.json"), "{}").unwrap();
    for (words, part) in [
        (["import", "other", &path("rows")], "5 rows of 128 bytes, and the file holds 10 rows of 64 bytes"),
        (["import", "plain", &path("rows")], "a plain segment of 4096 bytes"),
        (["import", "short", &path("short")], "describes 640"),
        (["import", "odd", &path("odd")], "does not describe a segment"),
    ] {
        let (code, _, why) = run(&new, &words);
        assert!(code == 1 && why.contains(part), "{words:?}: {code} {why}");
    }
    assert_eq!(run(&new, &["stat", "short"]).0, 1, "a refused import leaves a segment");
}
