//! Kills of consumers, producers and daemons of a queue: no message that a producer was told to be processed is lost, none comes
//! from nowhere, and at most one of those that come twice has no flag.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin river_campaign -- [--seconds 20] [--seed 1]
//! ```
//!
//! Two nodes, two producers, three consumers. Each process writes what it does into a file, before it does it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_river::{Queue, QueueOptions};
use ddss_testkit::{Daemon, Process, Random};

type Failed = Box<dyn Error>;

const NAME: &str = "campaign";
const CONSUMERS: usize = 3;
const PRODUCERS: usize = 2;
const CONSUMER_KILLS: Duration = Duration::from_millis(250);
const PRODUCER_KILLS: Duration = Duration::from_secs(1);
const DAEMON_KILLS: Duration = Duration::from_secs(5);
/// Messages that a producer puts before it waits for their acknowledgements.
const BATCH: u64 = 20;
/// Deadline of a call of a process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Kilobytes of a process's own memory at most: the send slots, a ring for each member, and the program.
const MEMORY_KIB_MAX: u64 = 200 << 10;
/// Lines that a failure repeats of each process, the newest first.
const LAST_LINES: usize = 4;
const ARGUMENTS: &str = "usage: river_campaign [--seconds N] [--seed N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["produce", id, folder, stop] => open(Path::new(folder))
            .and_then(|queue| explained(&queue, |queue| produce(id.parse()?, queue, Path::new(stop)))),
        ["consume", folder] => open(Path::new(folder)).and_then(|queue| explained(&queue, consume)),
        _ => settings(&words).and_then(|(seconds, seed)| run(Duration::from_secs(seconds), seed)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error {error}");
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn settings(words: &[&str]) -> Result<(u64, u64), Failed> {
    let (mut seconds, mut seed) = (20, 1);
    for pair in words.chunks(2) {
        match pair {
            ["--seconds", value] => seconds = value.parse()?,
            ["--seed", value] => seed = value.parse()?,
            _ => return Err(ARGUMENTS.into()),
        }
    }
    Ok((seconds, seed))
}

fn open(folder: &Path) -> Result<Queue, Failed> {
    let client = Client::connect_with(ConnectOptions::new().directory(folder).timeout(PATIENCE))?;
    let options = QueueOptions::new().message_bytes_max(64 << 10).members(16).timeout(PATIENCE);
    Ok(Queue::open(&client, NAME, options)?)
}

/// Content of a message: who made it, its number, and bytes that follow from both.
fn content(id: u64, number: u64) -> Vec<u8> {
    let words = [2, 40, 500, 8_000][(id + number) as usize % 4];
    [id.to_le_bytes(), number.to_le_bytes()].concat().repeat(words / 2)
}

/// Runs a process's part, and prints what the process knows of the queue if the part fails: members, connections, messages.
fn explained(queue: &Queue, part: impl FnOnce(&Queue) -> Result<(), Failed>) -> Result<(), Failed> {
    part(queue).inspect_err(|_| println!("state {queue:?}"))
}

/// Puts messages until a file exists.
fn produce(id: u64, queue: &Queue, stop: &Path) -> Result<(), Failed> {
    let (producer, mut number) = (queue.producer()?, 0);
    while !stop.exists() {
        for _ in 0..BATCH {
            println!("put {number}");
            producer.put(&content(id, number))?;
            number += 1;
        }
        producer.flush()?;
        println!("flushed {number}");
    }
    Ok(())
}

/// Takes messages until the queue ends.
fn consume(queue: &Queue) -> Result<(), Failed> {
    let mut consumer = queue.consumer()?;
    while let Some(message) = consumer.take()? {
        let word = |at: usize| message.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let (id, number) = word(0).zip(word(8)).ok_or("a short message")?;
        if message[..] != content(id, number) {
            println!("foreign {id} {number}");
        }
        println!("took {id} {number} {}", message.is_redelivered());
        message.acknowledge();
    }
    Ok(())
}

/// All processes of a campaign.
struct Campaign {
    nodes: [Daemon; 2],
    folder: tempfile::TempDir,
    random: Random,
    /// Living processes, and all that ever were.
    consumers: Vec<usize>,
    producers: Vec<(usize, u64)>,
    processes: Vec<Process>,
    kills: BTreeMap<&'static str, u64>,
    memory_kib: u64,
}

impl Campaign {
    fn start(&mut self, words: &[&str]) -> Result<usize, Failed> {
        let number = self.processes.len();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).arg(self.nodes[number % 2].folder());
        if words[0] == "produce" {
            command.arg(self.folder.path().join("stop"));
        }
        self.processes.push(Process::start(command, self.folder.path(), &format!("p{number}"))?);
        Ok(number)
    }

    fn start_consumer(&mut self) -> Result<usize, Failed> {
        self.start(&["consume"])
    }

    fn start_producer(&mut self) -> Result<(usize, u64), Failed> {
        let id = self.processes.len() as u64;
        Ok((self.start(&["produce", &id.to_string()])?, id))
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    /// Kills a process, and notes its memory before.
    fn kill(&mut self, number: usize, what: &'static str) -> Result<(), Failed> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.processes[number].pid())).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
        self.memory_kib = self.memory_kib.max(resident.map_or(0, |kib| kib.parse().unwrap_or(0)));
        *self.kills.entry(what).or_default() += 1;
        Ok(self.processes[number].kill()?)
    }

    fn disturb(&mut self, seconds: Duration) -> Result<(), Failed> {
        let begin = Instant::now();
        let mut next = [CONSUMER_KILLS, PRODUCER_KILLS, DAEMON_KILLS];
        while begin.elapsed() < seconds {
            if begin.elapsed() >= next[0] {
                next[0] += CONSUMER_KILLS;
                let index = self.below(CONSUMERS);
                self.kill(self.consumers[index], "consumers")?;
                self.consumers[index] = self.start_consumer()?;
            }
            if begin.elapsed() >= next[1] {
                next[1] += PRODUCER_KILLS;
                let index = self.below(PRODUCERS);
                self.kill(self.producers[index].0, "producers")?;
                self.producers[index] = self.start_producer()?;
            }
            if begin.elapsed() >= next[2] {
                next[2] += DAEMON_KILLS;
                let index = self.below(2);
                self.nodes[index].kill()?;
                self.nodes[index].restart()?;
                *self.kills.entry("daemons").or_default() += 1;
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Lets all processes end in order.
    fn end(&mut self) -> Result<(), Failed> {
        fs::write(self.folder.path().join("stop"), b"")?;
        // A process may have ended with an error while its daemon was dead: these surely live.
        for index in 0..CONSUMERS {
            self.consumers[index] = self.start_consumer()?;
        }
        let producers: Vec<usize> = self.producers.iter().map(|(number, _)| *number).collect();
        for number in producers {
            self.processes[number].wait(2 * PATIENCE)?.ok_or("a producer does not end")?;
        }
        let queue = open(self.nodes[0].folder())?;
        explained(&queue, |queue| {
            queue.close()?;
            for number in self.consumers.clone() {
                let status = self.processes[number].wait(2 * PATIENCE)?;
                if !status.ok_or("a consumer does not end")?.success() {
                    return Err(format!("process {number} failed").into());
                }
            }
            Ok(())
        })
    }

    /// Describes what is left when the campaign cannot end: the directory, and the last words of each process that was not killed.
    fn describe(&self) -> String {
        let client =
            Client::connect_with(ConnectOptions::new().directory(self.nodes[0].folder()).timeout(PATIENCE / 6));
        let directory = client.map(|client| Queue::inspect(&client, NAME));
        let last = |number: &usize| {
            let process = &self.processes[*number];
            let (said, pid) = (process.stdout(), process.pid());
            let words: Vec<&str> = said.lines().rev().take(LAST_LINES).collect();
            format!("process {number}, pid {pid}: {words:#?} {}\n", process.stderr())
        };
        let producers = self.producers.iter().map(|(number, _)| number);
        let words: String = producers.chain(&self.consumers).map(last).collect();
        format!("directory: {directory:?}\n{words}")
    }

    fn check(&self) -> Result<String, Failed> {
        let mut taken: BTreeMap<(u64, u64), [u64; 2]> = BTreeMap::new();
        let (mut put, mut flushed, mut errors) = (BTreeMap::new(), 0, 0);
        for (number, process) in self.processes.iter().enumerate() {
            let text = process.stdout();
            // The last line of a killed process may be in work.
            for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
                match line.split(' ').collect::<Vec<_>>()[..] {
                    ["put", last] => drop(put.insert(number as u64, last.parse::<u64>()?)),
                    ["took", id, message, flag] => {
                        taken.entry((id.parse()?, message.parse()?)).or_default()[usize::from(flag == "true")] += 1;
                    }
                    ["foreign", ..] => return Err(format!("other bytes: {line}").into()),
                    ["error", ..] => errors += 1,
                    _ => {}
                }
            }
        }
        for (number, process) in self.processes.iter().enumerate() {
            let text = process.stdout();
            let last = text.lines().filter_map(|line| line.strip_prefix("flushed ")).next_back();
            let last: u64 = last.map_or(Ok(0), str::parse)?;
            flushed += last;
            if let Some(lost) = (0..last).find(|message| !taken.contains_key(&(number as u64, *message))) {
                return Err(format!("lost: message {lost} of producer {number}").into());
            }
        }
        for ((id, message), [unflagged, _]) in &taken {
            if put.get(id).is_none_or(|last| message > last) {
                return Err(format!("unexpected: message {message} of producer {id}").into());
            }
            if *unflagged > 1 {
                return Err(format!("twice without a flag: message {message} of producer {id}").into());
            }
        }
        if self.memory_kib > MEMORY_KIB_MAX {
            return Err(format!("memory: a process has {} KiB", self.memory_kib).into());
        }
        let doubles = taken.values().filter(|[unflagged, flagged]| unflagged + flagged > 1).count();
        let (kills, memory) = (&self.kills, self.memory_kib);
        Ok(format!(
            "kills={kills:?} acknowledged={flushed} taken={} doubles={doubles} errors={errors} memory_kib={memory}: 0 lost, 0 unexpected",
            taken.len()
        ))
    }
}

fn run(seconds: Duration, seed: u64) -> Result<(), Failed> {
    let mut campaign = Campaign {
        nodes: Daemon::pair()?,
        folder: tempfile::tempdir()?,
        random: Random::new(seed),
        consumers: Vec::new(),
        producers: Vec::new(),
        processes: Vec::new(),
        kills: BTreeMap::new(),
        memory_kib: 0,
    };
    for _ in 0..CONSUMERS {
        let consumer = campaign.start_consumer()?;
        campaign.consumers.push(consumer);
    }
    for _ in 0..PRODUCERS {
        let producer = campaign.start_producer()?;
        campaign.producers.push(producer);
    }
    campaign.disturb(seconds)?;
    campaign.end().inspect_err(|_| println!("{}", campaign.describe()))?;
    println!("{}", campaign.check()?);
    Ok(())
}
