//! The short form of the campaign of kills.

use std::process::Command;

/// Kills: of each mode and each end some.
const KILLS: &str = "60";

// If this failed, a process would wait for ever for a killed one, or take bytes for its peer's that are not.
#[test]
fn survivor_of_a_killed_end_reads_a_prefix_and_ends() {
    let output = Command::new(env!("CARGO_BIN_EXE_wire_campaign")).arg(KILLS).output().expect("the campaign starts");
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{found}{}", String::from_utf8_lossy(&output.stderr));
    assert!(found.starts_with(&format!("kills={KILLS} ")), "{found}");
}
