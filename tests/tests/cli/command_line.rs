//! Every command with every flag and wrong arguments must end with a message and an exit code, never with a panic.
//! Commands and flags are read from the program itself, so that none is forgotten.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::process::{Command, Stdio};

use ddss::{Client, ConnectOptions, LockOptions};
use ddss_testkit::{Daemon, TempNode, binary, commands, run_ddss};

/// Values that no flag accepts, except flags for a directory or file, which may have nearly any name.
const RUBBISH: &[&str] =
    &["", "-1", "99999999999999999999999", "\u{1b}[2J", "nonsense/\u{fc}", "NaN", "1e3", "0x10", " 7", "\u{202e}x"];
/// Valid values of the greatest size.
const TOO_MUCH: &[&str] = &["18446744073709551615", "18446744073709551614", "9223372036854775808", "4294967296"];

/// Arguments that complete a command, apart from flags. A new command needs an entry here.
fn complete(command: &[&str]) -> &'static [&'static str] {
    match command {
        ["stat" | "get" | "hexdump" | "history" | "trace"] => &["x"],
        // `watch` would wait for another version.
        ["watch"] => &["x", "--count", "1"],
        ["release"] => &["no-such-segment"],
        ["put"] => &["x", "bytes"],
        ["allocate"] => &["y", "8"],
        ["export" | "import"] => &["x", "/nowhere/file"],
        ["chmod"] => &["600", "x"],
        ["completions"] => &["bash"],
        // Without a daemon's directory `bench` starts its own nodes and measures.
        ["bench"] => &["--dir", "/nowhere"],
        ["top"] => &["--once", "--interval-ms", "100"],
        ["cluster", "join"] => &["127.0.0.1:7", "no-such-token"],
        ["cluster", "remove" | "lead"] => &["9"],
        ["cluster", "snapshot" | "restore"] => &["/nowhere/file"],
        ["cluster", "recover"] => &[],
        ["map", "allocate"] => &["m", "8", "--key-bytes", "8", "--value-bytes", "8"],
        ["map", "get" | "remove"] => &["m", "key"],
        ["map", "put"] => &["m", "key", "value"],
        ["map", "ls"] => &["m"],
        ["map", "watch"] => &["m", "key", "--count", "1"],
        ["demo"] => &["--measure-ms", "nothing"],
        ["ping" | "ls" | "locks" | "doctor" | "status" | "counters" | "clients" | "nodes"] => &[],
        ["run"] => &["--library", "/nowhere/library", "no-such-program"],
        ["streams"] => &[],
        ["dsm", "run"] => &["-n", "1", "no-such-program"],
        ["dsm", "rm"] => &["no-such-space"],
        ["dsm", "ls"] => &[],
        ["dsm", "top"] => &["no-such-space"],
        ["river", "top"] => &["no-such-queue"],
        ["river", "ls"] => &[],
        ["river", "run"] => &["f", "no-such-program"],
        ["river", "show" | "dot" | "cancel"] => &["q"],
        ["river", "put"] => &["q", "/nowhere/file"],
        ["river", "take"] => &["q", "no-such-program"],
        ["river", "serve"] => &["/nowhere/directory"],
        ["river", "load"] => &["c", "/nowhere/file"],
        ["river", "cat" | "verify" | "repair"] => &["c"],
        ["river", "files"] => &[],
        ["river", "units", "add"] => &["u", "unit"],
        ["river", "units", "work"] => &["u", "no-such-program"],
        ["river", "units", "ls" | "retry"] => &["u"],
        ["cluster", "init" | "token" | "leave" | "status"] => &[],
        unknown => panic!("say in this test how {unknown:?} is called"),
    }
}

/// Runs the command and returns its exit code. It must not panic, and each failure must have a message.
fn answered(folder: &Path, words: &[&str]) -> i32 {
    let said = run_ddss(folder, words, "").unwrap();
    assert!([0, 1, 2, 4].contains(&said.code), "{words:?}: {} {}{}", said.code, said.out, said.err);
    assert!(!said.err.contains("panicked"), "{words:?}: {}", said.err);
    assert!(said.code == 0 || said.err.trim().len() > 10, "{words:?}: {}", said.err);
    assert!(!said.err.contains('\u{1b}') && !said.out.contains('\u{1b}'), "{words:?} paints the terminal: {said:?}");
    said.code
}

/// Runs the command with invalid arguments, which must end with an error.
fn refused(folder: &Path, words: &[&str]) -> i32 {
    let code = answered(folder, words);
    assert_ne!(code, 0, "{words:?} was taken for right");
    code
}

// If this failed, a mistyped word would cause a panic or a wrong action.
#[test]
fn wrong_value_for_any_flag_gives_an_error_message() {
    let node = TempNode::new().unwrap();
    for (path, flags) in &commands().unwrap() {
        let command: Vec<&str> = path.iter().map(String::as_str).collect();
        let whole = [&command[..], complete(&command)].concat();
        // What follows the program belongs to it.
        let launches =
            [&["run"][..], &["dsm", "run"], &["river", "run"], &["river", "take"], &["river", "units", "work"]];
        let launches = launches.contains(&&command[..]);
        let before_flag = if launches { &command } else { &whole };
        for flag in &flags.valued {
            let flag = format!("--{flag}");
            for &wrong in RUBBISH {
                // A plot may be written to a file of any name.
                if flag != "--plot" {
                    answered(node.path(), &[&before_flag[..], &[&flag, wrong]].concat());
                }
            }
            assert_eq!(refused(node.path(), &[&before_flag[..], &[&flag]].concat()), 2, "{whole:?} {flag}");
        }
        for flag in &flags.bare {
            let with_value = format!("--{flag}=yes");
            assert_eq!(refused(node.path(), &[&command[..], &[&with_value]].concat()), 2, "{with_value}");
        }
        assert_eq!(refused(node.path(), &[&command[..], &["--no-such-flag"]].concat()), 2, "{command:?}");
        let many = [&whole[..], &["one", "too", "many", "words"]].concat();
        let takes_many =
            [&["release"][..], &["dsm", "rm"], &["river", "put"], &["river", "units", "add"]].contains(&&command[..]);
        if !launches && !takes_many {
            assert_eq!(refused(node.path(), &many), 2, "{command:?}");
        }
        for (place, _) in complete(&command).iter().enumerate() {
            for &wrong in RUBBISH {
                let mut words = whole.clone();
                words[command.len() + place] = wrong;
                answered(node.path(), &words);
            }
        }
    }
    assert_eq!(refused(node.path(), &[]), 2);
    assert_eq!(refused(node.path(), &["\u{1b}[2J"]), 2);
    assert_eq!(refused(node.path(), &["cluster"]), 2);
    assert_eq!(refused(node.path(), &["map"]), 2);
}

// If this failed, a command with a daemon would take a too large number for a small one, or crash.
#[test]
fn too_large_numbers_are_refused_by_the_daemon_too() {
    let mut daemon = Daemon::start(1).unwrap();
    let folder = daemon.folder().to_owned();
    for (name, bytes) in [("x", "4096"), ("empty-handed", "8")] {
        assert_eq!(answered(&folder, &["allocate", name, bytes, "--history", "2"]), 0);
    }
    let mut tried = 0;
    for (path, flags) in &commands().unwrap() {
        let command: Vec<&str> = path.iter().map(String::as_str).collect();
        // Commands without a daemon were tried above; `watch` has its count.
        if ["demo", "bench", "completions"].contains(&command[0]) {
            continue;
        }
        let whole = [&command[..], complete(&command)].concat();
        for flag in flags.valued.iter().filter(|flag| !["dir", "state-dir"].contains(&flag.as_str())) {
            for much in TOO_MUCH {
                answered(&folder, &[&whole[..], &[&format!("--{flag}"), much]].concat());
                tried += 1;
            }
        }
    }
    assert!(tried > 50, "{tried} are too few");
    for much in TOO_MUCH {
        refused(&folder, &["get", "x", "--offset", much, "--length", much]);
        refused(&folder, &["hexdump", "x", "--offset", much, "--length", much]);
        refused(&folder, &["put", "x", "bytes", "--offset", much]);
        refused(&folder, &["watch", "x", "--count", "1", "--as", "u8", "--offset", much, "--length", much]);
        refused(&folder, &["allocate", "much", much]);
        refused(&folder, &["trace", "x", "--bytes", much]);
        refused(&folder, &["history", "x", "--length", much]);
    }
    assert_eq!(answered(&folder, &["get", "x", "--length", "0"]), 0);
    let ended = daemon.process().wait(std::time::Duration::ZERO).unwrap();
    assert!(ended.is_none(), "{}", daemon.process().stderr());
    assert_eq!(answered(&folder, &["ping"]), 0);
}

// If this failed, `ddss ls | head -1` would end in a panic.
#[test]
fn command_ends_silently_when_its_reader_closes_the_pipe() {
    let daemon = Daemon::start(1).unwrap();
    assert_eq!(answered(daemon.folder(), &["allocate", "x", "1000000"]), 0);
    for words in [&["ls"][..], &["stat", "x"], &["get", "x"], &["hexdump", "x"], &["counters", "--all"], &["doctor"]] {
        let mut command = Command::new(binary("ddss").unwrap());
        command.args(words).env("DDSS_DIR", daemon.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(141) && said.is_empty(), "{words:?}: {}: {said}", output.status);
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(binary("ddss").unwrap())
        .args(["stat", "x"])
        .env("DDSS_DIR", daemon.folder())
        .stdout(full)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cannot write to standard output"), "{said}");
}

// If this failed, a user would have to set up a cluster before measuring a machine.
#[test]
fn bench_command_starts_its_own_two_nodes() {
    let node = TempNode::new().unwrap();
    let said = run_ddss(node.path(), &["bench", "--measure-ms", "10"], "").unwrap();
    assert_eq!(said.code, 0, "{}", said.err);
    for part in ["null call, mq", "get 8 B, local", "put 4096 B, daemon", "get 65536 B, remote", "one cache line"] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
}

// If this failed, an operator could not break the lock of a hanging program, or would break one by mistake.
#[test]
fn lock_is_broken_only_after_confirmation() {
    let [a, b] = Daemon::pair().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(a.folder())).unwrap();
    let door = client.segment("door").allocate(ddss::Spec::new(8)).unwrap();
    let held = door.lock_with(LockOptions::new().lease(std::time::Duration::from_secs(300))).unwrap();
    while run_ddss(b.folder(), &["stat", "door"], "").unwrap().code != 0 {
        std::thread::yield_now();
    }
    let shown = run_ddss(b.folder(), &["locks"], "").unwrap().out;
    assert!(shown.contains("held") && shown.contains("node 1, client ") && shown.contains(" s"), "{shown}");
    let asked = run_ddss(b.folder(), &["locks", "door", "--break"], "").unwrap();
    assert!(asked.code == 1 && asked.err.contains("repeat with --yes"), "{}", asked.err);
    assert_eq!(run_ddss(b.folder(), &["locks", "--break", "--yes"], "").unwrap().code, 2, "which ones has to be said");
    held.put(0, b"mine").unwrap();
    let broken = run_ddss(b.folder(), &["locks", "door", "--break", "--yes"], "").unwrap();
    assert_eq!((broken.code, broken.out.as_str()), (0, "door: 1 broken\n"), "{}", broken.err);
    assert_eq!(held.put(0, b"late").unwrap_err().kind(), ddss::ErrorKind::LockLost);
    door.lock().unwrap().unlock().unwrap();
    assert_eq!(run_ddss(b.folder(), &["locks", "door", "--break"], "").unwrap().out, "no lock is held on door\n");
    // The command also asks about the matches of a pattern.
    let asked = run_ddss(a.folder(), &["release", "do*"], "").unwrap();
    assert!(asked.code == 1 && asked.err.contains("door\n"), "{}", asked.err);
    assert_eq!(run_ddss(a.folder(), &["release", "do*", "--yes"], "").unwrap().out, "door: released\n");
}
