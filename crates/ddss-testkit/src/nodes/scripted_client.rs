//! A client process that executes the calls of its test.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// A running client process. Dropping the value kills it.
#[derive(Debug)]
pub struct ScriptedClient {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ScriptedClient {
    /// Starts `program` (a test finds it as `env!("CARGO_BIN_EXE_client")`) as a client of the daemon in `folder`.
    /// Returns the program's first line as an error if it cannot attach.
    pub fn start(program: &str, folder: &Path, strategy: &str) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg(folder).arg(strategy).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::system(format!("starting {program}")))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let input = input.expect("standard input was asked for as a pipe");
        let output = BufReader::new(output.expect("standard output was asked for as a pipe"));
        let mut client = Self { child, input, output };
        let said = client.read_reply()?;
        if said == "ok attached" { Ok(client) } else { Err(Error::Said { program: PathBuf::from(program), said }) }
    }

    /// Sends one command and returns the client's answer. Its calls have deadlines, so the client either answers or
    /// ends.
    pub fn ask(&mut self, line: &str) -> Result<String, Error> {
        let told = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        told.map_err(Error::system(format!("telling a client to {line}")))?;
        self.read_reply()
    }

    fn read_reply(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Error::system("hearing a client"))?;
        Ok(line.trim_end().to_owned())
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the client, as `kill -STOP` does.
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    /// Continues the client after [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).map_err(|error| Error::system("signalling a client")(error.into()))
    }

    /// Kills the client as `kill -9` does.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().map_err(Error::system("killing a client"))?;
        self.child.wait().map(drop).map_err(Error::system("waiting for a client"))
    }
}

impl Drop for ScriptedClient {
    fn drop(&mut self) {
        // An error means that the client has already ended.
        let _ = self.kill();
    }
}
