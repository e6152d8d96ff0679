//! Runs the processes of a program on two nodes, on inputs that it makes.

use super::blocks::{Block, names, part_path};
use super::check::check;
use super::images;
use super::job::{Form, Job, Keys, Program};
use super::member::BEGUN;
use super::records::{self, KeyNumbers};
use crate::Error;
use ddss::{Client, ConnectOptions};
use ddss_river::{UnitInfo, UnitOptions, UnitQueue, UnitStatus};
use ddss_testkit::{Daemon, Process};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time of a run at most.
const RUN_MAX: Duration = Duration::from_secs(300);
/// Time after which a unit of a process that was killed is done by another one.
const LEASE: Duration = Duration::from_secs(4);
/// Time in which a process stands still at most: less than its lease.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Time in which all processes notice one that has joined, on a busy machine.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// Time in which a process puts results before it is killed.
const RESULTS_TIME: Duration = Duration::from_millis(500);
/// Records for each picture: both are work for about the same time.
const RECORDS_A_PICTURE: u64 = 250;

/// Two nodes, and the program whose processes are the members.
pub struct Runner {
    daemons: [Daemon; 2],
    client: Client,
    program: PathBuf,
}

impl Runner {
    /// Starts the nodes.
    pub fn start(program: PathBuf) -> Result<Self, Error> {
        let daemons = Daemon::pair()?;
        let client = Client::connect_with(ConnectOptions::new().directory(daemons[0].folder()))?;
        Ok(Self { daemons, client, program })
    }

    /// Makes the inputs of a job, with this number of records in each part of each input.
    pub fn prepare(&self, job: &Job, records: u64) -> Result<(), Error> {
        let made = || -> std::io::Result<()> {
            for name in job.program.inputs().iter().chain(&["runs", "out"]) {
                fs::create_dir_all(job.folder(name))?;
            }
            match job.program {
                Program::Load => {
                    let pictures = (records / RECORDS_A_PICTURE).max(1) * u64::from(job.processes);
                    let folder = job.folder("images");
                    (0..pictures).try_for_each(|seed| images::write(&folder.join(format!("{seed:05}.png")), seed))
                }
                _ => write_records(job, records),
            }
        };
        made().map_err(Error::system(format!("making inputs in {}", job.directory.display())))
    }

    /// Creates the list of work of an input. Returns it with the pieces of work, of which it has none yet.
    fn list(&self, job: &Job, input: &str) -> Result<(UnitQueue, Vec<Vec<u8>>), Error> {
        let folder = job.folder(input);
        let units = || -> std::io::Result<Vec<Vec<u8>>> {
            if job.program == Program::Load {
                return Ok(names(&folder)?.into_iter().map(String::into_bytes).collect());
            }
            let mut units = Vec::new();
            for part in 0..job.processes {
                units.extend(Block::all(&folder, part)?.map(|block| block.encode().to_vec()));
            }
            Ok(units)
        };
        let units = units().map_err(Error::system(format!("reading {}", folder.display())))?;
        let options = UnitOptions::new().capacity(units.len() as u32).unit_bytes_max(64).lease(LEASE);
        Ok((UnitQueue::create(&self.client, &job.list(input), options)?, units))
    }

    /// Creates and fills the lists of work of a job, and runs its processes to their end.
    pub fn run(&self, job: &Job) -> Result<(), Error> {
        let inputs = if job.form == Form::Queues { job.program.inputs() } else { &[] };
        for input in inputs {
            let (list, units) = self.list(job, input)?;
            list.add(&units)?;
        }
        let mut members = self.start_members(job)?;
        members.iter_mut().try_for_each(|member| finish(job, member))
    }

    /// Runs the processes of a job with queues, and kills another one, which has joined them and works on a piece of the last input.
    /// It holds no data. Returns the pieces that it had in work.
    pub fn run_with_a_kill(&self, job: &Job) -> Result<usize, Error> {
        let mut last = None;
        for input in job.program.inputs() {
            let (list, units) = self.list(job, input)?;
            let is_last = job.program.inputs().last() == Some(input);
            let (now, later) = units.split_at(if is_last { units.len().div_ceil(2) } else { units.len() });
            list.add(now)?;
            last = Some((list, later.to_vec()));
        }
        let (list, later) = last.ok_or_else(|| Error::Wrong(format!("{} has no input", job.program)))?;
        // While one unit is in work here, the flow does not end.
        let unit = list.claim()?.ok_or_else(|| Error::Wrong(format!("{} has no work", job.flow())))?;
        let mut members = self.start_members(job)?;
        members[0].wait_until(RUN_MAX, |member| member.stdout().contains(BEGUN))?;
        let mut joiner = self.start_member(job, job.processes)?;
        joiner.wait_until(RUN_MAX, |member| member.stdout().contains(BEGUN))?;
        // The others connect to it, and then leave it the rest of the work.
        std::thread::sleep(CONNECT_TIME);
        members.iter().try_for_each(Process::pause)?;
        list.add(&later)?;
        let (mut found, end) = (0, Instant::now() + PAUSE_MAX);
        joiner.wait_until(RUN_MAX, |member| {
            let (in_work, has_open) = Self::units_of(&list, member.pid());
            found = in_work;
            found > 0 || !has_open || Instant::now() > end
        })?;
        // A part of its results gets to the others, which then get all of them again.
        std::thread::sleep(RESULTS_TIME);
        joiner.kill()?;
        members.iter().try_for_each(Process::resume)?;
        unit.give_back()?;
        members.iter_mut().try_for_each(|member| finish(job, member))?;
        Ok(found)
    }

    /// Returns the units that a process has in work, and whether there are open ones.
    fn units_of(list: &UnitQueue, process: u32) -> (usize, bool) {
        let units: Vec<_> = list.list().into_iter().flatten().flatten().collect();
        let is_its = |unit: &&UnitInfo| unit.status == UnitStatus::Claimed && unit.process == process;
        (units.iter().filter(is_its).count(), units.iter().any(|unit| unit.status == UnitStatus::Open))
    }

    fn start_members(&self, job: &Job) -> Result<Vec<Process>, Error> {
        (0..job.processes).map(|number| self.start_member(job, number)).collect()
    }

    fn start_member(&self, job: &Job, number: u16) -> Result<Process, Error> {
        let daemon = &self.daemons[usize::from(number) % 2];
        let mut command = Command::new(&self.program);
        let Job { program, form, keys, processes, directory } = job;
        let words = [program.to_string(), form.to_string(), keys.to_string(), processes.to_string()];
        command.arg("member").args(words).arg(directory).arg(daemon.folder());
        Ok(Process::start(command, &job.directory, &format!("member-{number}"))?)
    }

    /// Compares the output of a job with the result of other programs. Returns what was compared.
    pub fn check(&self, job: &Job) -> Result<String, Error> {
        check(job)
    }
}

fn finish(job: &Job, member: &mut Process) -> Result<(), Error> {
    match member.wait(RUN_MAX)? {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(Error::Wrong(format!("a process of {} failed: {}", job.flow(), member.stderr()))),
        None => Err(Error::Wrong(format!("{} did not end within {RUN_MAX:?}", job.flow()))),
    }
}

/// Writes records. Each fourth key of the input `build` comes twice, and half of the even keys of `probe` have no partner.
fn write_records(job: &Job, records: u64) -> std::io::Result<()> {
    let all = records * u64::from(job.processes);
    for (input, number) in job.program.inputs().iter().zip(0_u64..) {
        for part in 0..job.processes {
            let (path, first) = (part_path(&job.folder(input), part), u64::from(part) * records);
            let serial = number * all + first;
            if *input == "build" {
                records::write(&path, serial, (first..first + records).map(|at| at - u64::from(at % 4 == 1)))?;
                continue;
            }
            let keys = if job.keys == Keys::Even { 2 * all } else { all };
            let mut numbers = KeyNumbers::new(serial, job.keys, keys);
            records::write(&path, serial, (0..records).map(|_| numbers.next()))?;
        }
    }
    Ok(())
}
