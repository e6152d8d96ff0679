//! Runs of four ranks of which one is killed, and what has to hold after each.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_testkit::{Daemon, Process, Random, binary};
use rustix::process::{Pid, Signal, kill_process};

use crate::Failed;
use crate::plate::{RANKS, expected};

/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time in which a rank is killed, after all have joined.
const WINDOW: Duration = Duration::from_millis(200);
/// The same after all have started, in one of so many runs: in the join, or before it.
const EARLY_WINDOW: Duration = Duration::from_millis(300);
const EARLY_EACH: u64 = 10;
/// Steps of a run with restarts, and between two checkpoints: most of its time is in checkpoints.
const STEPS: u64 = 60;
const EVERY: u64 = 2;

pub(crate) struct Campaign {
    daemon: Daemon,
    client: Client,
    folder: tempfile::TempDir,
    random: Random,
    runs: u64,
}

/// Ranks that have said so much: process ids by rank, and those that have joined.
struct Ranks {
    pids: Vec<(usize, i32)>,
    joined: BTreeSet<usize>,
}

impl Ranks {
    fn of(out: &str) -> Self {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (mut pids, mut joined) = (Vec::new(), BTreeSet::new());
        for line in out.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(words) {
            match (line.first().map(String::as_str), line.get(1).and_then(|rank| rank.parse().ok())) {
                (Some("pid"), Some(rank)) => pids.extend(line[2].parse().ok().map(|pid| (rank, pid))),
                (Some("joined"), Some(rank)) => drop(joined.insert(rank)),
                _ => {}
            }
        }
        Self { pids, joined }
    }
}

impl Campaign {
    pub(crate) fn new(seed: u64) -> Result<Self, Failed> {
        let daemon = Daemon::start(1)?;
        let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE))?;
        Ok(Self { daemon, client, folder: tempfile::tempdir()?, random: Random::new(seed), runs: 0 })
    }

    fn start(&mut self, options: &[&str], task: &[String]) -> Result<Process, Failed> {
        self.runs += 1;
        let mut command = Command::new(binary("ddss")?);
        command.args(["dsm", "run", "-n", &RANKS.to_string()]).args(options).arg("--").arg(std::env::current_exe()?);
        command.arg("rank").args(task).env("DDSS_DIR", self.daemon.folder());
        Ok(Process::start(command, self.folder.path(), "run")?)
    }

    /// Kills a rank after some time. Returns its number, and whether it had joined.
    fn kill(&mut self, run: &Process, within: Duration) -> Result<(usize, bool), Failed> {
        std::thread::sleep(Duration::from_micros(self.random.below(within.as_micros() as u64)));
        let ranks = Ranks::of(&run.stdout());
        // The last ones, if the ranks were started again.
        let living = &ranks.pids[ranks.pids.len() - RANKS..];
        let (rank, pid) = living[self.random.below(RANKS as u64) as usize];
        let pid = Pid::from_raw(pid).ok_or("no process")?;
        // Its line may follow while it is killed.
        let had_joined = ranks.joined.contains(&rank);
        // It may have ended.
        let _ = kill_process(pid, Signal::KILL);
        Ok((rank, had_joined))
    }

    /// Waits until so many ranks have started.
    fn started(run: &mut Process, ranks: usize) -> Result<(), Failed> {
        Ok(run.wait_until(PATIENCE, |run| Ranks::of(&run.stdout()).pids.len() >= ranks)?)
    }

    fn ended(run: &mut Process) -> Result<Option<i32>, Failed> {
        let status = run.wait(PATIENCE)?;
        let status = status.ok_or_else(|| format!("it hangs: {}{}", run.stdout(), run.stderr()))?;
        Ok(status.code())
    }

    /// Checks that nothing is left: no process of a rank, no name, no checkpoint, no file of the daemon.
    fn check_remains(&self, out: &str, before: &[String]) -> Result<(), Failed> {
        let end = Instant::now() + PATIENCE;
        loop {
            let living = Ranks::of(out).pids.into_iter().filter(|(_, pid)| Path::new(&format!("/proc/{pid}")).exists());
            let living: Vec<_> = living.collect();
            let names = self.client.list("").map(|found| Ok(found?.name)).collect::<Result<Vec<_>, ddss::Error>>()?;
            let files = self.files()?;
            if living.is_empty() && names.is_empty() && files == before {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("left: processes {living:?}, names {names:?}, files {files:?}").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn files(&self) -> Result<Vec<String>, Failed> {
        let mut names = Vec::new();
        for file in fs::read_dir(self.daemon.folder())? {
            names.push(file?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Kills a rank of each run: the others name it.
    pub(crate) fn end(&mut self, kills: u64) -> Result<String, Failed> {
        let (mut named, mut before_join) = (0, 0);
        for kill in 0..kills {
            let before = self.files()?;
            let mut run = self.start(&[], &[])?;
            let within = if kill % EARLY_EACH == 0 {
                Self::started(&mut run, RANKS)?;
                EARLY_WINDOW
            } else {
                run.wait_until(PATIENCE, |run| Ranks::of(&run.stdout()).joined.len() == RANKS)?;
                WINDOW
            };
            let (victim, had_joined) = self.kill(&run, within)?;
            let code = Self::ended(&mut run)?;
            let (out, err) = (run.stdout(), run.stderr());
            let fail = |why: &str| format!("kill {kill} of rank {victim}: {why}\n{out}{err}");
            if code != Some(1) || !err.contains(&format!("rank {victim} was killed by signal 9")) {
                return Err(fail("the command does not name it").into());
            }
            let lost = format!("rank {victim} is lost, and the space with it");
            let says = |rank: usize| out.lines().find_map(|line| line.strip_prefix(&format!("rank {rank}: ")));
            for rank in (0..RANKS).filter(|rank| *rank != victim) {
                match says(rank) {
                    Some(words) if words.starts_with(&lost) => named += 1,
                    // Nobody knows of a rank that never came, and the command ends those that wait for it.
                    None if !had_joined && err.contains(&format!("rank {rank} did not end, and was killed")) => {}
                    said => return Err(fail(&format!("rank {rank} says {said:?}")).into()),
                }
            }
            before_join += u64::from(!had_joined);
            self.check_remains(&out, &before)?;
        }
        Ok(format!(
            "{kills} kills, {before_join} of them before the rank had joined; {named} times the others named it: nothing hung, nothing was left"
        ))
    }

    /// Kills ranks of runs that start again, twice in some: the result is that of one process.
    pub(crate) fn restart(&mut self, kills: u64) -> Result<String, Failed> {
        let task = [STEPS.to_string(), EVERY.to_string()];
        let result = format!("result {} {}", expected(STEPS), STEPS * RANKS as u64);
        let before = self.files()?;
        let begin = Instant::now();
        let mut run = self.start(&[], &task)?;
        let code = Self::ended(&mut run)?;
        let span = begin.elapsed();
        if code != Some(0) || !run.stdout().contains(&result) {
            return Err(format!("undisturbed: {code:?}, expected {result}\n{}{}", run.stdout(), run.stderr()).into());
        }
        let (mut killed, mut restarts, mut restored) = (0, 0, 0);
        while killed < kills {
            let mut run = self.start(&["--restart", "9"], &task)?;
            for life in 1..=1 + self.random.below(3) {
                // The run may have ended before.
                if Self::started(&mut run, RANKS * life as usize).is_err() {
                    break;
                }
                // A rank that dies before it has joined costs the command ten seconds.
                let joins = RANKS * life as usize;
                let has_joined = run.wait_until(PATIENCE, |run| run.stdout().matches("joined ").count() >= joins);
                if has_joined.is_err() {
                    break;
                }
                self.kill(&run, span)?;
                killed += 1;
            }
            let code = Self::ended(&mut run)?;
            let (out, err) = (run.stdout(), run.stderr());
            let results: Vec<&str> = out.lines().filter(|line| line.starts_with("result")).collect();
            if code != Some(0) || results.is_empty() || results.iter().any(|line| *line != result) {
                return Err(format!("after {killed} kills: {code:?}, expected {result}\n{out}{err}").into());
            }
            restarts += err.matches("ddss: the space has ended: ").count();
            restored += out.lines().filter(|line| line.starts_with("joined 0 ") && *line != "joined 0 0").count();
            self.check_remains(&out, &before)?;
        }
        if kills >= 20 && restored == 0 {
            return Err(format!("{restarts} restarts, and none from a checkpoint").into());
        }
        Ok(format!(
            "{killed} kills, {restarts} restarts, {restored} of them from a checkpoint: the result is that of one process"
        ))
    }
}
