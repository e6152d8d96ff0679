//! The short form of the campaign of kills.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::Command;

// If this failed, a flow would lose messages, or never end, after enough deaths.
#[test]
fn no_message_is_lost_while_consumers_producers_and_daemons_are_killed() {
    let output = Command::new(env!("CARGO_BIN_EXE_river_campaign")).args(["--seconds", "6"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with(": 0 lost, 0 unexpected\n") && !said.contains("acknowledged=0 "), "{said}");
}
