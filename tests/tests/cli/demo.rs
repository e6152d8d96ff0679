//! The command `demo`: its output, and the files that it leaves.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_testkit::binary;
use std::process::Command;

// If this failed, the first command of a new user would fail, or leave a directory behind.
#[test]
fn demo_shows_its_steps_and_leaves_no_files() {
    let run = Command::new(binary("ddss").unwrap()).args(["demo", "--measure-ms", "20"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    assert!(!out.contains('\x1b'), "colours and cursors are for terminals: {out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80 || line.contains("cargo")), "{out}");
    for strategy in ["mq", "rmq", "rcq", "auto"] {
        let line = out.lines().find(|line| line.trim_start().starts_with(strategy)).unwrap();
        let micros: Vec<f64> = line.split_whitespace().skip(1).map(|cell| cell.parse().unwrap()).collect();
        assert!(micros.len() == 7 && micros.iter().all(|&micros| micros > 0.0), "{line}");
    }
    assert_eq!(out.matches("none failed").count(), 4, "two clients saw two others die: {out}");
    let remote = out.lines().filter(|line| line.contains("node 2:") && line.ends_with("the handle recovered"));
    assert!(remote.count() == 1, "a client of the other node used a segment of the daemon that was killed: {out}");
    assert_eq!(out.matches("by the same handle as before").count(), 2, "{out}");
    let left = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let left_over = |name: &str| {
        name.strip_prefix("ddss-demo-").is_some_and(|pid| !std::path::Path::new("/proc").join(pid).exists())
    };
    assert!(
        left.map(|entry| entry.file_name()).all(|name| !left_over(&name.to_string_lossy())),
        "a folder stayed behind"
    );
}
