//! Child process of the demonstration: a command line to its standard input, a line of JSON back.

use crate::error::CommandError;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A child process, which is killed when this value is dropped.
pub(super) struct ChildProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl ChildProcess {
    /// Starts this program once more, as `command` with these arguments.
    pub(super) fn start<S: AsRef<OsStr>>(
        command: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Self, CommandError> {
        let program = std::env::current_exe().map_err(CommandError::system("find the path of this program"))?;
        let mut process = Command::new(program);
        process.arg(command).args(arguments);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().map_err(CommandError::system("start a process of the demonstration"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.expect("standard output was asked for as a pipe"));
        Ok(Self { child, input, output })
    }

    /// Sends a command.
    pub(super) fn send(&mut self, line: &str) -> Result<(), CommandError> {
        let input = self.input.as_mut().expect("standard input was asked for as a pipe");
        let sent = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        // The write fails if the child has ended; the reason for its end is the better message.
        sent.map_err(|_| CommandError::Demo(self.exit_reason()))
    }

    /// Waits for a reply. The child's calls have deadlines, so it replies or ends.
    pub(super) fn receive(&mut self, done: &str) -> Result<Value, CommandError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(CommandError::system("read from a process of the demonstration"))?;
        match serde_json::from_str::<Value>(&line) {
            Ok(value) if value["done"] == done => Ok(value),
            Ok(value) => {
                Err(CommandError::Demo(format!("a process of the demonstration replied {value} instead of {done:?}")))
            }
            Err(_) => Err(CommandError::Demo(self.exit_reason())),
        }
    }

    /// Sends a command and waits for its reply.
    pub(super) fn request(&mut self, line: &str, done: &str) -> Result<Value, CommandError> {
        self.send(line)?;
        self.receive(done)
    }

    /// Returns the process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn kill(&mut self) -> Result<(), CommandError> {
        self.child.kill().map_err(CommandError::system("kill a process of the demonstration"))?;
        self.child.wait().map(drop).map_err(CommandError::system("wait for a process's end"))
    }

    /// Closes the standard input of the child and waits for its end.
    pub(super) fn finish(mut self) -> Result<(), CommandError> {
        self.input = None;
        let status = self.child.wait().map_err(CommandError::system("wait for a process's end"))?;
        if status.success() { Ok(()) } else { Err(CommandError::Demo(self.exit_reason())) }
    }

    fn exit_reason(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            // The text up to a read error is still useful.
            let _ = errors.read_to_string(&mut text);
        }
        let lines: Vec<&str> = text.lines().map(|line| line.trim().trim_start_matches("ddss: ")).collect();
        format!("a process of the demonstration ended: {}", lines.join("; "))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // Both calls fail if the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a reply to [`ChildProcess::receive`] in the parent.
pub(super) fn reply(what: &Value) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    // One write: other processes may write to the same pipe.
    out.write_all(format!("{what}\n").as_bytes())
        .and_then(|()| out.flush())
        .map_err(CommandError::system("reply to the demonstration"))
}

/// Reads the next command; `None` at the end of standard input.
pub(super) fn next_command() -> Result<Option<String>, CommandError> {
    let mut line = String::new();
    let read =
        std::io::stdin().read_line(&mut line).map_err(CommandError::system("read a command of the demonstration"))?;
    Ok((read > 0).then(|| line.trim().to_owned()))
}
