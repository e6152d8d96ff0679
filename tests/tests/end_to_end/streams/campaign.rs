//! The short forms of the campaigns against streams. `scripts/preload kills` and `scripts/preload connects` run the long ones.

use std::process::Command;

use ddss_testkit::skipped;

/// Kills of the short campaign: some in each mode and of each end.
const KILLS: &str = "60";
/// Connections of the short campaign: twice the warm-up.
const CONNECTS: &str = "4001";

/// Transfers of the short campaign: two of each mode.
const TRANSFERS: &str = "16";

fn campaign(name: &str, arguments: &[&str]) -> Option<String> {
    if !Command::new("cc").arg("--version").output().is_ok_and(|found| found.status.success()) {
        skipped(name, "no C compiler");
        return None;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_stream_campaign")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

// If this failed, a process would wait forever for a killed one, or would lose bytes that were written before the kill.
#[test]
fn survivors_of_killed_peers_end_with_every_byte_that_was_written() {
    const NAME: &str = "survivors_of_killed_peers_end_with_every_byte_that_was_written";
    let Some(said) = campaign(NAME, &["kills", KILLS]) else { return };
    assert!(said.starts_with(&format!("kills={KILLS} ")), "{said}");
}

// If this failed, a server would run out of descriptors or mappings after some thousand connections.
#[test]
fn connections_leave_no_descriptor_and_no_mapping() {
    const NAME: &str = "connections_leave_no_descriptor_and_no_mapping";
    let Some(said) = campaign(NAME, &["connects", CONNECTS]) else { return };
    assert!(said.starts_with(&format!("connects={CONNECTS} ")), "{said}");
}

// If this failed, two threads of a program that read and write one stream would wait forever, or bytes would be lost or mixed.
#[test]
fn transfers_in_both_directions_at_once_end_with_every_byte() {
    const NAME: &str = "transfers_in_both_directions_at_once_end_with_every_byte";
    let Some(said) = campaign(NAME, &["transfers", TRANSFERS]) else { return };
    assert!(said.starts_with(&format!("transfers={TRANSFERS} ")), "{said}");
}
