//! Campaigns against streams of the preload library: killed processes, connections by the million, transfers both ways at once.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin stream_campaign -- kills [COUNT] [SEED]
//! cargo run --release -p ddss-tests --bin stream_campaign -- connects [COUNT]
//! cargo run --release -p ddss-tests --bin stream_campaign -- transfers [COUNT] [SEED]
//! ```
//!
//! The programs under the library are C: they call libc, which the library replaces, and know nothing of it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

mod connects;
mod end;
mod kills;
mod transfers;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// Time limit for the end of a process. A slower process counts as hanging.
const DEADLINE: Duration = Duration::from_secs(60);
const KILLS: u64 = 10_000;
const CONNECTS: u64 = 1_000_000;
const TRANSFERS: u64 = 100;

/// The compiled program, and the library that it runs under.
pub(crate) struct Programs {
    folder: TempDir,
    library: PathBuf,
}

impl Programs {
    fn build() -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/stream_campaign/peer.c");
        let program = folder.path().join("peer");
        let compiled = Command::new("cc").args(["-O2", "-w", "-pthread", "-o"]).arg(program).arg(source).status();
        match compiled {
            Ok(status) if status.success() => (),
            found => return Err(format!("the C compiler cc fails ({found:?}); install gcc")),
        }
        let library = ddss_testkit::preload_library().map_err(|error| error.to_string())?;
        Ok(Self { folder, library })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the program with its output in a pipe.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Killed, String> {
        let mut command = Command::new(self.folder.path().join("peer"));
        command.args(arguments).env("LD_PRELOAD", &self.library).stdout(Stdio::piped());
        command.spawn().map(Killed).map_err(|error| format!("cannot start the program: {error}"))
    }
}

/// A process that is killed when this value is dropped.
pub(crate) struct Killed(pub(crate) Child);

impl Killed {
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        rustix::process::kill_process(Pid::from_child(&self.0), signal).map_err(|error| error.to_string())
    }

    /// Waits until the process ends. The error says that it hangs.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<bool, String> {
        let end = Instant::now() + limit;
        loop {
            match self.0.try_wait().map_err(|error| error.to_string())? {
                Some(status) => return Ok(status.success()),
                None if Instant::now() > end => return Err(format!("a process hangs for {limit:?}")),
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default| match arguments.get(place) {
        Some(text) => text.parse::<u64>().map_err(|_| format!("{text} is no number")),
        None => Ok(default),
    };
    let run = |run: fn(&Programs, u64, u64) -> Result<String, String>, default| {
        let (count, seed) = (number(1, default)?, number(2, 1)?);
        run(&Programs::build()?, count, seed)
    };
    let found = match arguments.first().map(String::as_str) {
        Some("kills") => run(kills::run, KILLS),
        Some("connects") => run(|programs, count, _| connects::run(programs, count), CONNECTS),
        Some("transfers") => run(transfers::run, TRANSFERS),
        _ => Err("usage: stream_campaign kills|connects|transfers [COUNT] [SEED]".to_owned()),
    };
    match found {
        Ok(found) => println!("{found}"),
        Err(error) => {
            eprintln!("FAILED: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
