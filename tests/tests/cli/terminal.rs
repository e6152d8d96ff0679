//! Command output for people: in terminals of 80 and of 200 columns, with deceptive segment names.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, LockOptions, Mode, Spec};
use ddss_testkit::{Daemon, commands, retry, run_ddss, run_ddss_in_terminal};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for which a node may be away.
const PATIENCE: Duration = Duration::from_secs(30);

/// A name of the maximum length.
fn long_name() -> String {
    format!("a/rather/long/name/{}", "of-a-segment/".repeat(8))
}

/// A name that hides the following text and reverses its direction.
const SLY: &str = "safe\u{202e}cod.exe\u{200b}";
/// Letters that are two columns wide.
const WIDE: &str = "温度/部屋";

/// Arguments of each command, apart from full-screen commands and those that take seconds.
fn lines(name: &str, file: &str) -> Vec<(Vec<String>, i32)> {
    let words = |line: &str| {
        let word = |word: &str| word.replace("NAME", name).replace("FILE", file);
        line.split(' ').map(word).collect::<Vec<_>>()
    };
    let good = [
        "ping",
        "ls",
        "ls *",
        "stat NAME",
        "hexdump NAME --length 64",
        "history NAME",
        "locks",
        "status",
        "nodes",
        "clients",
        "counters",
        "counters --all",
        "top --once --interval-ms 100",
        "trace NAME",
        "trace NAME --call put",
        "trace NAME --call ping",
        "streams",
        "dsm ls",
        "dsm top",
        "river ls",
        "river files",
        "river units add u NAME",
        "river units ls u",
        "river units work u true",
        "cluster status",
        "cluster token",
        "chmod 600 NAME",
        "put NAME words",
        "get NAME --length 5",
        "get NAME --as u64 --length 64",
        "export NAME FILE",
        "import NAME FILE",
        "watch NAME --count 1",
        "watch NAME --count 1 --as utf8 --length 5",
        "bench --measure-ms 10 --dir DIR",
        "--help",
        "top --help",
        "cluster --help",
        "map --help",
        "river --help",
        "river units --help",
        "allocate --help",
        "completions --help",
    ];
    let bad = [
        // The state directory of a test is in memory.
        "doctor",
        "get no-such-segment",
        "put NAME bytes --if-version 9999",
        "export NAME /nowhere/at/all",
        "import NAME /dev",
        "release NAME no-such-segment",
    ];
    let wrong =
        ["get NAME --length a-word-where-a-number-belongs", "put NAME", "allocate x 8 --model as-fast-as-it-gets"];
    let [good, bad, wrong] = [(&good[..], 0), (&bad[..], 1), (&wrong[..], 2)]
        .map(|(lines, code)| lines.iter().map(|line| (words(line), code)).collect::<Vec<_>>());
    [good, bad, wrong].concat()
}

/// Width of a line on the terminal. (For the letters of these pages and names only.)
fn width(line: &str) -> usize {
    line.chars()
        .map(|letter| if ('\u{1100}'..'\u{a000}').contains(&letter) && letter > '\u{2fff}' { 2 } else { 1 })
        .sum()
}

/// Characters that must not reach a terminal: control sequences, and letters that reverse or hide others.
fn deceives(text: &str) -> bool {
    text.chars().any(|letter| (letter.is_control() && letter != '\n') || ['\u{202e}', '\u{200b}'].contains(&letter))
}

/// Removes the program's own colours, as a shell would show the text.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or(part, |(_, rest)| rest))
}

// If this failed, an operator would read broken tables, or text forged by an attacker.
#[test]
fn output_fits_the_terminal_and_escapes_deceptive_names() {
    let [a, b] = Daemon::pair().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(a.folder())).unwrap();
    let names = [long_name(), SLY.to_owned(), WIDE.to_owned()];
    let held: Vec<_> = names
        .iter()
        .map(|name| {
            let spec = Spec::new(4096).history(2).mode(Mode(0o640));
            let segment = retry(|| client.segment(name).allocate(spec));
            segment.put(0, b"hello").unwrap();
            segment.lock_with(LockOptions::new().shared()).unwrap()
        })
        .collect();
    // The other node learns of them when the two are connected.
    let begin = Instant::now();
    let shown = loop {
        let shown = run_ddss_in_terminal(b.folder(), 200, &["locks"], "").unwrap();
        if shown.out.contains("shared by 1") || begin.elapsed() > Duration::from_secs(20) {
            break shown;
        }
    };
    assert!(shown.out.contains("shared by 1") && shown.out.contains("safe\u{fffd}cod.exe\u{fffd}"), "{shown:?}");
    drop(held);
    let file = a.folder().join("file");
    for (columns, node) in [(80, &b), (200, &a)] {
        for (index, name) in names.iter().enumerate() {
            let all = lines(name, file.to_str().unwrap());
            // Output without the name is the same for every name.
            let about = |words: &[String]| words.contains(name) || ["ls", "top"].contains(&words[0].as_str());
            for (words, code) in all.into_iter().filter(|(words, _)| index == 0 || about(words)) {
                fits(node.folder(), columns, &words, code);
            }
        }
    }
    // A script gets the unmodified bytes.
    let listed = run_ddss(a.folder(), &["ls", "safe*", "--json"], "").unwrap();
    assert!(listed.out.contains(SLY), "{listed:?}");
    // Every row on the screen is listed here.
    let typed: Vec<String> = lines("x", "y").into_iter().map(|(words, _)| words[0].clone()).collect();
    // These commands create, end or stay, and print one line, or become another program. Most have tests of their own.
    let others = ["allocate", "release", "demo", "completions", "run"];
    for command in commands().unwrap().keys() {
        let first = command[0].as_str();
        assert!(typed.iter().any(|typed| typed == first) || others.contains(&first), "{first} is not tested");
    }
}

fn fits(folder: &Path, columns: u16, words: &[String], code: i32) {
    let words: Vec<String> = words.iter().map(|word| word.replace("DIR", folder.to_str().unwrap())).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let begin = Instant::now();
    let mut said = run_ddss_in_terminal(folder, columns, &words, "").unwrap();
    // On a loaded machine a node may be unreachable for a moment.
    while said.code != code && begin.elapsed() < PATIENCE {
        said = run_ddss_in_terminal(folder, columns, &words, "").unwrap();
    }
    assert_eq!(said.code, code, "{words:?}: {}", said.out);
    let text = plain(&said.out);
    assert!(!deceives(&text), "{words:?} paints the terminal: {:?}", said.out);
    for line in text.lines() {
        // A word longer than the line stays whole: it may be a path for copying.
        let has_long_word = line.split_whitespace().any(|word| width(word) > usize::from(columns) / 3);
        assert!(width(line) <= usize::from(columns) || has_long_word, "{words:?} in {columns} columns:\n{}", said.out);
    }
}

// If this failed, a stored value could send control sequences to a reader's terminal.
#[test]
fn get_writes_text_to_terminal_and_bytes_to_pipe() {
    let daemon = Daemon::start(1).unwrap();
    let folder = daemon.folder();
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let segment = client.segment("value").allocate(Spec::new(16)).unwrap();
    segment.put(0, b"hello").unwrap();
    let seen = run_ddss_in_terminal(folder, 80, &["get", "value", "--length", "5"], "").unwrap();
    assert_eq!(seen.out, "hello\n", "the next prompt begins a line");
    assert_eq!(run_ddss(folder, &["get", "value", "--length", "5"], "").unwrap().out, "hello");
    segment.put(0, b"\x1b[2Jgone").unwrap();
    let seen = run_ddss_in_terminal(folder, 200, &["get", "value"], "").unwrap();
    assert!(seen.code == 1 && seen.out.contains("`ddss hexdump value`") && !seen.out.contains('\u{1b}'), "{seen:?}");
    assert!(run_ddss(folder, &["get", "value"], "").unwrap().out.starts_with("\u{1b}[2Jgone"));
    let seen = run_ddss_in_terminal(folder, 80, &["get", "value", "--as", "utf8"], "").unwrap();
    assert!(seen.code == 0 && seen.out.contains("gone") && !seen.out.contains('\u{1b}'), "{seen:?}");
    let seen = run_ddss_in_terminal(folder, 80, &["watch", "value", "--count", "1", "--as", "utf8"], "").unwrap();
    assert!(seen.code == 0 && seen.out.contains("gone") && !seen.out.contains('\u{1b}'), "{seen:?}");
}

// If this failed, the transfer of a large file would show no progress.
#[test]
fn large_file_transfer_shows_a_progress_bar() {
    let daemon = Daemon::start(1).unwrap();
    let file = daemon.folder().join("large");
    std::fs::write(&file, vec![7; 20 << 20]).unwrap();
    let path = file.to_str().unwrap();
    for (words, last) in
        [(["import", "large", path], "20971520 bytes into large"), (["export", "large", path], "20971520 bytes to")]
    {
        let seen = run_ddss_in_terminal(daemon.folder(), 80, &words, "").unwrap();
        assert_eq!(seen.code, 0, "{seen:?}");
        let bars = seen.out.matches("\r[").count();
        assert!(bars >= 20 && seen.out.contains("[#########################] 100 %  20 of 20 MiB"), "{seen:?}");
        assert!(seen.out.contains(last), "{seen:?}");
    }
    // Without a terminal there is no bar.
    let said = run_ddss(daemon.folder(), &["export", "large", path], "").unwrap();
    assert!(said.code == 0 && said.err.is_empty(), "{said:?}");
}

// If this failed, a command would ignore the answer to its question, or take a `no` for a `yes`.
#[test]
fn irreversible_commands_ask_for_confirmation() {
    let daemon = Daemon::start(1).unwrap();
    let folder = daemon.folder();
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    for name in ["one", "other"] {
        client.segment(name).allocate(Spec::new(8)).unwrap();
    }
    let held = client.segment("one").open().unwrap().lock().unwrap();
    for (words, question) in
        [(&["release", "o*"][..], "Release these 2? [y/N]"), (&["locks", "o*", "--break"], "Break this lock?")]
    {
        for no in ["n\n", "\n", "yy\n"] {
            let seen = run_ddss_in_terminal(folder, 80, words, no).unwrap();
            assert!(seen.code == 1 && seen.out.contains(question) && seen.out.contains("nothing was done"), "{seen:?}");
        }
    }
    held.put(0, b"mine").unwrap();
    let seen = run_ddss_in_terminal(folder, 80, &["locks", "o*", "--break"], "y\n").unwrap();
    assert!(seen.code == 0 && seen.out.contains("one: 1 broken"), "{seen:?}");
    // If one of them does not exist, none is released.
    let said = run_ddss(folder, &["release", "one", "other", "third"], "").unwrap();
    assert!(said.code == 1 && said.err.contains("third") && said.out.is_empty(), "{said:?}");
    let seen = run_ddss_in_terminal(folder, 80, &["release", "o*"], "y\n").unwrap();
    assert!(seen.code == 0 && seen.out.contains("one: released\nother: released"), "{seen:?}");
}
