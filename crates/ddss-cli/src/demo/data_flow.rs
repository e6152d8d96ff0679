//! The command `demo river`: four processes share messages, and one of them is slowed down while they work. First each has a part of its own,
//! then all take from one queue. At last one is killed.

use super::child::ChildProcess;
use super::cluster::DemoCluster;
use super::consumer::{MESSAGE_BYTES, NUMBER_BYTES, WORK_TIME, open};
use crate::error::CommandError;
use crate::output::table::Table;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const MEMBERS: u16 = 4;
/// Messages of each run.
const MESSAGES: u32 = 400;
/// Number of the process that is slowed down or killed.
const VICTIM: u16 = 4;
/// Messages that it has taken by then.
const TAKEN_BEFORE: usize = 10;
/// Times for which a process that is slowed down stands still, and goes on.
const STOPPED: Duration = Duration::from_millis(30);
const RUNNING: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Fate of the victim while the processes work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    SlowedDown,
    Killed,
}

/// A run of the four processes.
struct Run {
    name: &'static str,
    /// Queues: one for all, or one for each process.
    queues: u16,
    event: Event,
}

const RUNS: [Run; 3] = [
    Run { name: "a part for each", queues: MEMBERS, event: Event::SlowedDown },
    Run { name: "one queue", queues: 1, event: Event::SlowedDown },
    Run { name: "one is killed", queues: 1, event: Event::Killed },
];

/// Result of a run.
struct Outcome {
    taken: Vec<usize>,
    /// Messages that no process took.
    lost: usize,
    /// Messages that two processes took.
    twice: usize,
    elapsed: Duration,
}

pub(super) fn run(json: bool) -> Result<(), CommandError> {
    if !json {
        println!("{MEMBERS} processes on two nodes take {MESSAGES} messages, and need {WORK_TIME:?} for each.");
        println!("Process {VICTIM} is slowed down while they work: it stands still three quarters of the time.");
        println!("In the last run it is killed (SIGKILL) instead.\n");
    }
    let cluster = DemoCluster::start_nodes()?;
    let outcomes = RUNS.iter().enumerate().map(|(number, run)| run.start(&cluster, number)?.finish(&cluster));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    cluster.stop()?;
    if json {
        let rows: Vec<_> = RUNS.iter().zip(&outcomes).map(|(run, outcome)| outcome.as_json(run)).collect();
        println!("{}", json!({ "processes": MEMBERS, "messages": MESSAGES, "victim": VICTIM, "runs": rows }));
        return Ok(());
    }
    let mut table = Table::new(&["", "1", "2", "3", "4", "LOST", "TWICE", "TIME"]);
    table.align_right(&[1, 2, 3, 4, 5, 6, 7]);
    for (run, Outcome { taken, lost, twice, elapsed }) in RUNS.iter().zip(&outcomes) {
        let counts = taken.iter().chain([lost, twice]).map(ToString::to_string);
        let time = format!("{:.1} s", elapsed.as_secs_f64());
        table.row([run.name.to_owned()].into_iter().chain(counts).chain([time]).collect());
    }
    table.print_or("nothing was taken");
    println!("\nWith a queue, a slow process takes fewer messages and holds nobody up. What a dead one had not");
    println!("acknowledged comes to the others, flagged. The book's page on queues has the program.");
    Ok(())
}

/// A run whose processes have joined.
struct Started<'a> {
    run: &'a Run,
    number: usize,
    processes: Vec<ChildProcess>,
    files: Vec<PathBuf>,
}

impl Run {
    /// Returns the name of the queue of a process.
    fn queue(&self, number: usize, process: u16) -> String {
        format!("demo-{number}-{}", process % self.queues)
    }

    /// Starts the processes.
    fn start(&self, cluster: &DemoCluster, number: usize) -> Result<Started<'_>, CommandError> {
        let (mut processes, mut files) = (Vec::new(), Vec::new());
        for member in 0..MEMBERS {
            let file = cluster.folder(1).join(format!("taken-{number}-{member}"));
            let mut process = cluster.client(1 + member % 2)?;
            process.send(&format!("take {} {}", self.queue(number, member), file.display()))?;
            processes.push(process);
            files.push(file);
        }
        processes.iter_mut().try_for_each(|process| process.receive("joined").map(drop))?;
        Ok(Started { run: self, number, processes, files })
    }
}

impl Started<'_> {
    /// Puts the messages, and slows the victim down or kills it. Waits until all messages are acknowledged.
    fn finish(mut self, cluster: &DemoCluster) -> Result<Outcome, CommandError> {
        let (began, folder, queues) = (Instant::now(), cluster.folder(1), self.run.queues);
        let names: Vec<String> = (0..queues).map(|process| self.run.queue(self.number, process)).collect();
        std::thread::scope(|scope| {
            let put = |(first, name): (u32, &String)| -> Result<(), CommandError> {
                let queue = open(&folder, name)?;
                let producer = queue.producer()?;
                for number in (first..MESSAGES).step_by(queues.into()) {
                    producer.put(&number.to_le_bytes().repeat(MESSAGE_BYTES / NUMBER_BYTES))?;
                }
                Ok(queue.close()?)
            };
            let putting: Vec<_> = (0..).zip(&names).map(|each| scope.spawn(move || put(each))).collect();
            self.disturb(|| putting.iter().all(std::thread::ScopedJoinHandle::is_finished))?;
            putting.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| CommandError::Demo("a thread of the demonstration panicked".to_owned()))?
            })
        })?;
        let elapsed = began.elapsed();
        for (process, number) in self.processes.drain(..).zip(1..) {
            if self.run.event == Event::Killed && number == VICTIM {
                continue;
            }
            let mut process = process;
            process.receive("ended")?;
            process.finish()?;
        }
        self.count(elapsed)
    }

    /// Slows the victim down from its first messages on until `has_ended`, or kills it.
    fn disturb(&mut self, has_ended: impl Fn() -> bool) -> Result<(), CommandError> {
        let at = usize::from(VICTIM) - 1;
        while !has_ended() && self.numbers(at)?.len() < TAKEN_BEFORE {
            std::thread::sleep(LOOK_EVERY);
        }
        if self.run.event == Event::Killed {
            return self.processes[at].kill();
        }
        let signal = |signal| {
            let process = Pid::from_raw(self.processes[at].id().cast_signed());
            let sent = process.map_or(Ok(()), |process| kill_process(process, signal));
            sent.map_err(|error| CommandError::system("stop a process of the demonstration")(error.into()))
        };
        while !has_ended() {
            signal(Signal::STOP)?;
            std::thread::sleep(STOPPED);
            signal(Signal::CONT)?;
            std::thread::sleep(RUNNING);
        }
        Ok(())
    }

    /// Returns the numbers of the messages that a process has taken.
    fn numbers(&self, process: usize) -> Result<Vec<u32>, CommandError> {
        let bytes = match std::fs::read(&self.files[process]) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(CommandError::system("read the numbers of messages"))?,
        };
        let number = |bytes: &[u8]| u32::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        Ok(bytes.chunks_exact(NUMBER_BYTES).map(number).collect())
    }

    fn count(&self, elapsed: Duration) -> Result<Outcome, CommandError> {
        let (mut taken, mut counts) = (Vec::new(), vec![0_u32; MESSAGES as usize]);
        for process in 0..self.files.len() {
            let numbers = self.numbers(process)?;
            for number in &numbers {
                let count = counts.get_mut(*number as usize);
                *count.ok_or_else(|| CommandError::Demo(format!("no message {number} was put")))? += 1;
            }
            taken.push(numbers.len());
        }
        let of = |is: fn(u32) -> bool| counts.iter().filter(|count| is(**count)).count();
        Ok(Outcome { taken, lost: of(|count| count == 0), twice: of(|count| count > 1), elapsed })
    }
}

impl Outcome {
    fn as_json(&self, run: &Run) -> Value {
        let event = if run.event == Event::Killed { "killed" } else { "slowed_down" };
        json!({ "run": run.name, "queues": run.queues, "event": event, "taken": self.taken, "lost": self.lost,
            "twice": self.twice, "seconds": self.elapsed.as_secs_f64() })
    }
}
