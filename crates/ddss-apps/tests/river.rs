//! Tests of the programs of flows: each process a member on one of two nodes, each output compared with that of other programs.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::Command;

/// Runs the programs, and returns what they say.
fn run(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_river-apps")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

// If this failed, a flow would lose, double or mix records, with queues or without.
#[test]
fn outputs_of_both_forms_equal_those_of_other_programs() {
    let (is_good, out, err) = run(&["--all", "--check", "--records", "4000"]);
    assert!(is_good, "{out}{err}");
    assert_eq!(out.matches(" bytes equal those that were copied").count(), 2, "{out}");
    assert_eq!(out.matches(": 12000 records equal those of LC_ALL=C sort, byte for byte").count(), 4, "{out}");
    assert_eq!(out.matches(" rows equal those of the program join").count(), 4, "{out}");
    assert_eq!(out.matches(": 48 thumbnails are right").count(), 2, "{out}");
}

// If this failed, what a dead process had in work would be lost, or come twice.
#[test]
fn outputs_are_exact_when_a_process_without_data_is_killed() {
    let (is_good, out, err) =
        run(&["--all", "--form", "queues", "--check", "--kill", "--keys", "even", "--records", "8000"]);
    assert!(is_good, "{out}{err}");
    assert_eq!((out.matches(": killed a process with ").count(), out.lines().count()), (4, 8), "{out}");
    assert!(out.matches(" 0 pieces in work").count() < 4, "the killed processes had nothing in work: {out}");
}
