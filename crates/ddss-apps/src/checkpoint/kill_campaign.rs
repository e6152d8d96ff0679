//! Campaign: many processes commit checkpoints and are killed at random.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, NodeId, Placement, Segment};
use ddss_testkit::{Daemon, DaemonOptions, Process, Random, TempNode};

use super::state::State;
use super::worker::{CommitCounts, Member};
use crate::Error;

/// Maximum time until nodes are connected and processes have started.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// Time without any commit after which the campaign fails.
const STILL_MAX: Duration = Duration::from_secs(60);
/// Bytes for segments of one daemon.
const POOL_BYTES: u64 = 32 << 20;
/// Interval between two checks of all processes.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Placement of applications and processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// All on one node.
    OneNode,
    /// All segments on one node, all processes on another.
    OneHome,
    /// Segments and processes spread over all nodes.
    Spread,
}

impl Where {
    fn nodes(self) -> u16 {
        match self {
            Where::OneNode => 1,
            Where::OneHome => 2,
            Where::Spread => 3,
        }
    }

    fn home(self, application: usize) -> NodeId {
        match self {
            Where::OneNode => NodeId(1),
            Where::OneHome => NodeId(2),
            Where::Spread => NodeId(1 + (application % 3) as u16),
        }
    }

    fn node_of(self, process: usize) -> usize {
        match self {
            Where::OneNode | Where::OneHome => 0,
            Where::Spread => process % 3,
        }
    }
}

/// Parameters of a campaign.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The program that runs one process: with `worker FOLDER NAME ID` it joins application NAME, until it is killed.
    pub program: PathBuf,
    /// Number of processes.
    pub processes: usize,
    /// Number of processes of an application.
    pub together: usize,
    /// Placement of the processes.
    pub place: Where,
    /// Bytes of a state.
    pub bytes: usize,
    /// Number of commits that end the campaign.
    pub commits: u64,
    /// Number of kills before which the campaign does not end.
    pub kills: u64,
    /// Interval between two kills; a new process replaces the killed one.
    pub kill_every: Duration,
    /// Seed of the sequence of killed processes.
    pub seed: u64,
}

/// Results of a campaign.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Versions of all applications together: each is a commit.
    pub commits: u64,
    /// Processes that were killed.
    pub kills: u64,
    /// Commits that processes reported before they were killed; later commits are missing.
    pub reported: CommitCounts,
    /// States that no process committed. There must be none.
    pub violations: Vec<String>,
    /// Duration of the campaign.
    pub elapsed: Duration,
}

struct Worker {
    process: Process,
    application: usize,
}

impl Campaign {
    /// Runs the campaign.
    pub fn run(&self) -> Result<Outcome, Error> {
        let (mut daemons, begin) = (self.daemons()?, Instant::now());
        let folders: Vec<PathBuf> = daemons.iter().map(|daemon| daemon.folder().to_path_buf()).collect();
        let (client, scratch) = (patient(&folders[0])?, TempNode::new()?);
        let applications = self.applications(&client)?;
        // Nodes that are not connected yet would refuse the first processes.
        folders.iter().try_for_each(|folder| meet(folder, applications.len()))?;
        let mut outcome = Outcome::default();
        let mut started = 0;
        let mut start = |slot: usize| -> Result<Worker, Error> {
            started += 1;
            let (application, folder) = (slot / self.together.max(1), &folders[self.place.node_of(slot)]);
            let mut command = Command::new(&self.program);
            command.arg("worker").arg(folder).args([name(application), started.to_string()]);
            let process = Process::start(command, scratch.path(), &format!("worker-{started}"))?;
            Ok(Worker { process, application })
        };
        let mut workers = (0..self.processes).map(&mut start).collect::<Result<Vec<_>, _>>()?;
        let mut random = Random::new(self.seed);
        let (mut next_kill, mut last_commit) = (Instant::now() + self.kill_every, Instant::now());
        let is_enough = |outcome: &Outcome| outcome.commits >= self.commits && outcome.kills >= self.kills;
        while !is_enough(&outcome) && outcome.violations.is_empty() {
            thread::sleep(LOOK_EVERY);
            let commits = commits(&applications)?;
            if commits > outcome.commits {
                (outcome.commits, last_commit) = (commits, Instant::now());
            } else if last_commit.elapsed() > STILL_MAX {
                outcome.violations.push(format!("no commit in {STILL_MAX:?}"));
            }
            for (slot, worker) in workers.iter_mut().enumerate() {
                if worker.process.wait(Duration::ZERO)?.is_some() {
                    let application = worker.application;
                    outcome.violations.push(format!("application {application}: {}", worker.process.stderr().trim()));
                    *worker = start(slot)?;
                }
            }
            if Instant::now() >= next_kill {
                let slot = random.below(workers.len() as u64) as usize;
                outcome.reported = outcome.reported.with(end(&mut workers[slot])?);
                outcome.kills += 1;
                workers[slot] = start(slot)?;
                next_kill = Instant::now() + self.kill_every.mul_f64(0.5 + random.unit());
            }
        }
        for worker in &mut workers {
            outcome.reported = outcome.reported.with(end(worker)?);
        }
        outcome.commits = commits(&applications)?;
        outcome.violations.extend(applications.iter().filter_map(|segment| last_look(segment).err()));
        outcome.elapsed = begin.elapsed();
        daemons.clear();
        Ok(outcome)
    }

    fn daemons(&self) -> Result<Vec<Daemon>, Error> {
        let mut daemons: Vec<Daemon> = Vec::new();
        for node in 1..=self.place.nodes() {
            let options = DaemonOptions::new(node)?.pool_bytes(POOL_BYTES);
            let options = match daemons.first() {
                None if self.place.nodes() == 1 => options,
                None => options.clustered(),
                Some(first) => options.joins(first.listen()),
            };
            daemons.push(options.start()?);
        }
        Ok(daemons)
    }

    fn applications(&self, client: &Client) -> Result<Vec<Segment>, Error> {
        let begin = Instant::now();
        let count = self.processes.div_ceil(self.together.max(1));
        let allocate = |index: usize| loop {
            let placement = Placement::Node(self.place.home(index));
            match Member::allocate(client, &name(index), self.bytes, placement) {
                Err(error) if begin.elapsed() > BEGIN_MAX => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
                allocated => return allocated,
            }
        };
        (0..count).map(allocate).collect()
    }
}

fn name(application: usize) -> String {
    format!("application/{application}")
}

fn patient(folder: &Path) -> Result<Client, Error> {
    Ok(Client::connect_with(ConnectOptions::new().directory(folder).timeout(BEGIN_MAX))?)
}

/// Waits until a node can open all applications.
fn meet(folder: &Path, applications: usize) -> Result<(), Error> {
    let (client, begin) = (patient(folder)?, Instant::now());
    (0..applications).try_for_each(|application| {
        loop {
            match client.segment(&name(application)).open() {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > BEGIN_MAX => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    })
}

fn commits(applications: &[Segment]) -> Result<u64, Error> {
    applications.iter().try_fold(0, |sum, segment| Ok(sum + segment.stat()?.stamp.version.0))
}

/// Kills a process, and reads what it reported last.
fn end(worker: &mut Worker) -> Result<CommitCounts, Error> {
    worker.process.kill()?;
    let words = worker.process.stdout();
    // Text behind the last line end was cut off.
    let line = words.rsplit_once('\n').and_then(|(whole, _)| whole.lines().last()).unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Ok(match numbers[..] {
        [commits, conflicts, failures, restarts, chains] => {
            CommitCounts { commits, conflicts, failures, restarts, chains }
        }
        _ => CommitCounts::default(),
    })
}

fn last_look(segment: &Segment) -> Result<State, String> {
    let value = segment.get(..).map_err(|error| error.to_string())?;
    State::decode(&value, value.version()).map_err(|error| error.to_string())
}
