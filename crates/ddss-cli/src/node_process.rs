//! Node of the demonstration or of a measurement: a `ddssd` process that ends with this one.
//!
//! The hidden command `demo-node` asks the kernel for a signal at the end of its parent, and then becomes `ddssd`.

use crate::error::CommandError;
use clap::Args;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time of a regular stop; after it the node is killed.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Interval in which an end of the process is checked.
const STOP_CHECK: Duration = Duration::from_millis(2);
/// Prefix of the environment variables of DDSS: settings for other nodes than these.
const PREFIX: &str = "DDSS_";

/// Arguments of the hidden command.
#[derive(Args, Debug)]
pub(crate) struct DemoNodeOptions {
    /// Process that started this one.
    #[arg(long)]
    parent: i32,
    /// Arguments of `ddssd`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Ends this process, and the program that it becomes, with its parent.
pub(crate) fn tie_to_parent(parent: i32, signal: Signal) -> Result<(), CommandError> {
    let tie = || -> std::io::Result<()> { Ok(set_parent_process_death_signal(Some(signal))?) };
    tie().map_err(CommandError::system("tie a process to the program that started it"))?;
    if Pid::as_raw(getppid()) != parent {
        return Err(CommandError::Refused("the program that started this process has ended".to_owned()));
    }
    Ok(())
}

/// Returns the path of `ddssd`: beside this program, else the one that the shell would find.
pub(crate) fn daemon_program() -> Result<PathBuf, CommandError> {
    let beside = std::env::current_exe().map_err(CommandError::system("find the path of this program"))?;
    let beside = beside.with_file_name("ddssd");
    Ok(if beside.exists() { beside } else { "ddssd".into() })
}

/// Becomes a `ddssd` that ends with its parent.
pub(crate) fn run(options: &DemoNodeOptions) -> Result<(), CommandError> {
    tie_to_parent(options.parent, Signal::TERM)?;
    let error = Command::new(daemon_program()?).args(&options.arguments).exec();
    let next = "install it beside ddss, or build it with `cargo build --release --bin ddssd`";
    Err(CommandError::Demo(format!("cannot run the program ddssd: {error}; {next}")))
}

/// A running node, which is stopped when this value is dropped.
pub(crate) struct NodeProcess {
    child: Child,
    address: SocketAddr,
}

impl NodeProcess {
    /// Starts a node with its files in `folder`, and waits until it is ready.
    pub(crate) fn start(folder: &Path, arguments: &[String]) -> Result<Self, CommandError> {
        let program = std::env::current_exe().map_err(CommandError::system("find the path of this program"))?;
        let mut process = Command::new(program);
        process.args(["demo-node", "--parent"]).arg(std::process::id().to_string()).arg("--");
        process.arg("--dir").arg(folder).args(arguments).args(["--log", "error", "--drain-ms", "0"]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(PREFIX)) {
            process.env_remove(name);
        }
        // A service manager waits for this program, and not for its nodes.
        process.env_remove("NOTIFY_SOCKET");
        // A closed pipe as standard input: a minimal root file system has no /dev/null.
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().map_err(CommandError::system("start a node"))?;
        drop(child.stdin.take());
        let output = child.stdout.take().expect("standard output was asked for as a pipe");
        let mut ready = String::new();
        // A daemon that cannot start ends, and closes the pipe.
        let read = BufReader::new(output).read_line(&mut ready).map_err(CommandError::system("read from a node"));
        let address = ready.trim_end().rsplit_once(" listen ").and_then(|(_, address)| address.parse().ok());
        match (read, address) {
            (Ok(_), Some(address)) => Ok(Self { child, address }),
            (read, _) => {
                let _ = child.kill();
                let why = exit_reason(&mut child);
                let _ = child.wait();
                read.and(Err(CommandError::Node(why)))
            }
        }
    }

    /// Returns the address at which the node listens for other nodes.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills the node.
    pub(crate) fn kill(&mut self) -> Result<(), CommandError> {
        self.child.kill().map_err(CommandError::system("kill a node"))?;
        self.child.wait().map(drop).map_err(CommandError::system("wait for a process's end"))
    }

    /// Stops the node in the regular way.
    pub(crate) fn stop(mut self) -> Result<(), CommandError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), CommandError> {
        let wait = CommandError::system("wait for a process's end");
        if self.child.try_wait().map_err(&wait)?.is_none() {
            // Fails only if the process has ended already.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let end = Instant::now() + STOP_MAX;
        loop {
            match self.child.try_wait().map_err(&wait)? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => return Err(CommandError::Node(exit_reason(&mut self.child))),
                None if Instant::now() >= end => return self.kill(),
                None => std::thread::sleep(STOP_CHECK),
            }
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // A destructor cannot report the error.
        let _ = self.end();
    }
}

/// Returns the last output of an ended node in one line.
fn exit_reason(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // The text up to a read error is still useful.
        let _ = errors.read_to_string(&mut text);
    }
    let words = |line: &str| line.trim().trim_start_matches("ddssd: ").trim_start_matches("ddss: ").to_owned();
    text.lines().map(words).collect::<Vec<_>>().join("; ")
}
