//! Runs of the command `ddss` with captured output.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Error, binary};

/// Exit code and output of a finished command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit code; -1 if a signal killed the command.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `ddss` with these arguments for the daemon in `folder`, whose state directory is below it, and gives it
/// `input`.
pub fn run_ddss(folder: &Path, words: &[&str], input: &str) -> Result<CommandOutput, Error> {
    let mut command = Command::new(binary("ddss")?);
    command.args(words).env("DDSS_DIR", folder).env("DDSS_STATE_DIR", folder.join("state"));
    if folder.is_dir() {
        command.current_dir(folder);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::system("starting ddss"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // The write fails if the command has already ended.
        drop(stdin.write_all(input.as_bytes()));
    }
    let output = child.wait_with_output().map_err(Error::system("waiting for ddss"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(CommandOutput { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) })
}
