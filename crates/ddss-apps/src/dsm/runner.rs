//! Runs the ranks of a program under each protocol.

use super::elements::Elements;
use super::job::{Job, Size};
use crate::Error;
use ddss_dsm::{Ordering, Protocol, Stamps};
use ddss_testkit::{Daemon, Process, binary};
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time of a run at most.
const RUN_MAX: Duration = Duration::from_secs(900);

/// Number of ranks, and the protocol between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Number of ranks.
    pub ranks: u16,
    /// Protocol.
    pub protocol: Protocol,
    /// Ordering of diffs and fetches.
    pub ordering: Ordering,
    /// Stamps of one-sided diffs.
    pub stamps: Stamps,
}

impl Settings {
    /// Returns all settings that differ for so many ranks: each protocol and ordering. Stamps make a difference where diffs are
    /// written one-sided and ordered by stamps.
    pub fn all(ranks: u16) -> impl Iterator<Item = Self> {
        let of = move |protocol: Protocol| {
            let each = move |ordering, stamps| Self { ranks, protocol, ordering, stamps };
            let mut all = vec![each(Ordering::Stamped, Stamps::PerHome), each(Ordering::Placed, Stamps::PerHome)];
            if protocol.writes_one_sided() {
                all.push(each(Ordering::Stamped, Stamps::PerPage));
            }
            all
        };
        Protocol::ALL.into_iter().flat_map(of)
    }

    /// Returns the name of protocol and ordering, such as `newgendsm-stamped`.
    pub fn way(&self) -> String {
        let [_, protocol, ordering, _] = self.words();
        format!("{protocol}-{ordering}")
    }

    /// Returns the words of `ddss dsm run`: ranks, protocol, ordering and stamps.
    fn words(&self) -> [String; 4] {
        let protocol = match self.protocol {
            Protocol::Async => "async",
            Protocol::Ardmar => "ardmar",
            Protocol::Draw => "draw",
            Protocol::NewGenDsm => "newgendsm",
        };
        let ordering = if self.ordering == Ordering::Stamped { "stamped" } else { "placed" };
        let stamps = if self.stamps == Stamps::PerHome { "home" } else { "page" };
        [self.ranks.to_string(), protocol.to_owned(), ordering.to_owned(), stamps.to_owned()]
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ranks, protocol, ordering, stamps] = self.words();
        write!(f, "{ranks} ranks, {protocol}, {ordering}, a stamp a {stamps}")
    }
}

/// Output of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The result, the same for each number of ranks and each protocol.
    pub result: String,
    /// Sums of the counters of all ranks.
    pub counts: String,
}

impl Outcome {
    /// Returns the time of the handlers of all ranks, the last of the counts.
    pub fn handlers(&self) -> Duration {
        let last = self.counts.rsplit(' ').next().and_then(|ns| ns.parse().ok());
        Duration::from_nanos(last.unwrap_or(0))
    }
}

/// A node, and the program whose processes are the ranks.
pub struct Runner {
    daemon: Daemon,
    program: PathBuf,
}

impl Runner {
    /// Starts the node.
    pub fn start(program: PathBuf) -> Result<Self, Error> {
        Ok(Self { daemon: Daemon::start(1)?, program })
    }

    /// Runs the ranks of a program to their end, by `ddss dsm run`.
    pub fn run(&self, job: Job, settings: Settings) -> Result<Outcome, Error> {
        let [ranks, protocol, ordering, stamps] = settings.words();
        let mut command = Command::new(binary("ddss")?);
        command.env("DDSS_DIR", self.daemon.folder()).args(["dsm", "run", "-n", &ranks, "--protocol", &protocol]);
        command.args(["--ordering", &ordering, "--stamps", &stamps, "--"]).arg(&self.program);
        command.arg(job.program.to_string());
        if job.size == Size::Small {
            command.arg("--small");
        }
        if job.has_check {
            command.arg("--check");
        }
        if job.elements == Elements::PageFaults {
            command.arg("--transparent");
        }
        let mut run = Process::start(command, self.daemon.folder(), "run")?;
        let what = || format!("{}, {settings}", job.program);
        match run.wait(RUN_MAX)? {
            Some(status) if status.success() => {}
            Some(_) => return Err(Error::Wrong(format!("{} failed: {}", what(), run.stderr()))),
            None => return Err(Error::Wrong(format!("{} did not end within {RUN_MAX:?}", what()))),
        }
        match run.stdout().lines().collect::<Vec<_>>()[..] {
            [result, counts] => Ok(Outcome { result: result.to_owned(), counts: counts.to_owned() }),
            ref lines => Err(Error::Wrong(format!("{} printed {} lines instead of 2", what(), lines.len()))),
        }
    }
}
