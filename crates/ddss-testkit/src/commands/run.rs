//! What the command `ddss` answers to words, held against what it promises to everybody.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Error, binary};

/// What a command said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// What it wrote to standard output.
    pub out: String,
    /// What it wrote to standard error.
    pub err: String,
}

/// Runs `ddss` with these words for the daemon in `folder`, whose state folder is in it, and gives it `input`.
pub fn say(folder: &Path, words: &[&str], input: &str) -> Result<Said, Error> {
    let mut command = Command::new(binary("ddss")?);
    command.args(words).env("DDSS_DIR", folder).env("DDSS_STATE_DIR", folder.join("state"));
    if folder.is_dir() {
        command.current_dir(folder);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::system("starting ddss"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that has ended already does not want it.
        drop(stdin.write_all(input.as_bytes()));
    }
    let output = child.wait_with_output().map_err(Error::system("waiting for ddss"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) })
}
