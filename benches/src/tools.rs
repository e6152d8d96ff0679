//! Programs whose output describes a measurement.

use std::process::Command;

/// Returns the compiler's name and version.
pub fn compiler() -> String {
    command_output("rustc", &["--version"])
}

/// Returns what a program prints in the directory of this crate; nothing if the program is missing.
pub(crate) fn command_output(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
