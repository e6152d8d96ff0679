//! Overload of two nodes: bounded memory, and every call ends.

use std::process::Command;

// If this failed, overload would end a daemon by lack of memory, or a call would never return.
#[test]
fn overload_stays_within_memory_and_every_call_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overload"));
    let output = command.args(["--seconds", "3", "--json"]).output().expect("it was just built");
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{why}");
    let found: serde_json::Value = serde_json::from_str(&said).expect("it says what it found");
    // A call that waits in vain ends as timed out, or as indeterminate if a busy daemon replies too late.
    let in_vain = ["timed_out", "indeterminate"].map(|end| found[end].as_u64().unwrap_or_default());
    assert!(in_vain.iter().sum::<u64>() > 0, "nobody waited in vain: {said}");
}
