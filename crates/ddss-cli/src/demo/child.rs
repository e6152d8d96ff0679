//! A process of the demonstration, and how it is spoken with: a line to it, a line of JSON back.

use crate::error::CommandError;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One process, seen from the demonstration. It is killed when this value is dropped.
pub(super) struct Actor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts this program once more, as `command` with these arguments.
    pub(super) fn start<S: AsRef<OsStr>>(
        command: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Self, CommandError> {
        let program = std::env::current_exe().map_err(CommandError::system("find the program itself"))?;
        let mut process = Command::new(program);
        process.arg(command).args(arguments);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().map_err(CommandError::system("start a process of the demonstration"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.expect("standard output was asked for as a pipe"));
        Ok(Self { child, input, output })
    }

    /// Tells it what to do next.
    pub(super) fn say(&mut self, line: &str) -> Result<(), CommandError> {
        let input = self.input.as_mut().expect("standard input was asked for as a pipe");
        let said = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        // Who has ended cannot be told anything; why it ended says more than that.
        said.map_err(|_| CommandError::Demo(self.why_it_ended()))
    }

    /// Waits for it to have done something. Its own calls have deadlines, so it says something or ends.
    pub(super) fn hear(&mut self, done: &str) -> Result<Value, CommandError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(CommandError::system("hear a process of the demonstration"))?;
        match serde_json::from_str::<Value>(&line) {
            Ok(value) if value["done"] == done => Ok(value),
            Ok(value) => Err(CommandError::Demo(format!("a process said {value} instead of {done:?}"))),
            Err(_) => Err(CommandError::Demo(self.why_it_ended())),
        }
    }

    /// Tells it to do something, and waits until it has.
    pub(super) fn ask(&mut self, line: &str, done: &str) -> Result<Value, CommandError> {
        self.say(line)?;
        self.hear(done)
    }

    pub(super) fn kill(&mut self) -> Result<(), CommandError> {
        self.child.kill().map_err(CommandError::system("kill a process of the demonstration"))?;
        self.child.wait().map(drop).map_err(CommandError::system("wait for a process's end"))
    }

    /// Lets it end by itself.
    pub(super) fn end(mut self) -> Result<(), CommandError> {
        self.input = None;
        let status = self.child.wait().map_err(CommandError::system("wait for a process's end"))?;
        if status.success() { Ok(()) } else { Err(CommandError::Demo(self.why_it_ended())) }
    }

    fn why_it_ended(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            // What it said last is all there is to tell.
            let _ = errors.read_to_string(&mut text);
        }
        let lines: Vec<&str> = text.lines().map(|line| line.trim().trim_start_matches("ddss: ")).collect();
        format!("a process of the demonstration ended: {}", lines.join("; "))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Most have ended by now; that is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that something is done; the other side of [`Actor::hear`].
pub(super) fn tell(what: &Value) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}").and_then(|()| out.flush()).map_err(CommandError::system("tell the demonstration"))
}

/// The next thing to do; nothing at the end of standard input.
pub(super) fn told() -> Result<Option<String>, CommandError> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).map_err(CommandError::system("hear the demonstration"))?;
    Ok((read > 0).then(|| line.trim().to_owned()))
}
