//! The short form of the campaign of kills, and the copies between two processes.

use std::process::Command;

/// Number of kills: some in each mode and of each end.
const KILLS: &str = "90";

// If this failed, a process would wait forever for a killed one, or read bytes that its peer has not written.
#[test]
fn survivor_of_a_killed_end_reads_a_prefix_and_ends() {
    let output = Command::new(env!("CARGO_BIN_EXE_wire_campaign")).arg(KILLS).output().expect("the campaign starts");
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{found}{}", String::from_utf8_lossy(&output.stderr));
    assert!(found.starts_with(&format!("kills={KILLS} ")), "{found}");
}

// If this failed, bytes that one process reads in place out of another one would be copied on the way.
#[test]
fn write_without_a_copy_makes_none_in_either_process() {
    let output = Command::new(env!("CARGO_BIN_EXE_wire_campaign")).arg("ledger").output().expect("the campaign starts");
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{found}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(found.trim_end(), "in_place=8388608 send_copied=0 read=8388608 receive_copied=0");
}
