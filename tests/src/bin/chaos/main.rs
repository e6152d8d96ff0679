//! Real processes under kills: three nodes, clients on each, one client killed four times a second and one daemon every
//! few seconds; then everything that anybody saw is checked, and whatever was acknowledged has to be there.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin chaos -- --seconds 60 [--json]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

mod check;
mod log;
mod worker;

use ddss::{Placement, Spec, Strategy};
use ddss_ipc::SharedMemory;
use ddss_tests::{Daemon, DaemonOptions, TempNode};
use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use worker::{BYTES, COUNTERS, Dice, VALUES, attach, name, open_all, whole};

const NODES: u16 = 3;
const WORKERS: u16 = 16;
const CLIENT_KILL_EVERY: Duration = Duration::from_millis(250);
const DAEMON_KILL_EVERY: Duration = Duration::from_secs(5);
/// How long everything runs before the first kill.
const QUIET: Duration = Duration::from_secs(2);

/// What the run did, besides what the checker found.
#[derive(Default)]
struct Run {
    quiet_per_second: f64,
    client_kills: u64,
    daemon_kills: u64,
    /// Workers that found no daemon, or not their segments, for as long as they could wait.
    stranded: u64,
}

struct Worker {
    number: u16,
    life: u16,
    child: Child,
}

struct Chaos {
    daemons: Vec<Daemon>,
    workers: Vec<Worker>,
    folder: TempNode,
    stop: SharedMemory,
}

impl Chaos {
    fn start() -> Result<Self, Box<dyn Error>> {
        let options: Vec<_> = (1..=NODES).map(DaemonOptions::new).collect::<Result<_, _>>()?;
        let listens: Vec<_> = options.iter().map(DaemonOptions::listen).collect();
        let mut daemons = Vec::new();
        for (index, mut option) in options.into_iter().enumerate() {
            for (other, listen) in listens.iter().enumerate().filter(|&(other, _)| other != index) {
                option = option.peer(&DaemonOptions::listening(other as u16 + 1, *listen));
            }
            daemons.push(option.pool_bytes(64 << 20).argument("--core").argument("none").start()?);
        }
        let folder = TempNode::new()?;
        let stop = SharedMemory::create_file(&folder.join("stop"), 4096)?;
        Ok(Self { daemons, workers: Vec::new(), folder, stop })
    }

    /// One after the other on each node; Strict, since that promises the most.
    fn make_segments(&self) -> Result<(), Box<dyn Error>> {
        let client = attach(self.daemons[0].folder(), Strategy::Auto, false)?;
        let begin = Instant::now();
        for index in 0..VALUES + COUNTERS {
            let home = ddss::NodeId(index as u16 % NODES + 1);
            let mut spec = Spec::new(BYTES as u64);
            spec.placement = Placement::Node(home);
            loop {
                match client.allocate(&name(index), spec) {
                    Ok(_) => break,
                    Err(error) if begin.elapsed() > Duration::from_secs(30) => return Err(error.into()),
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
        Ok(())
    }

    fn log_of(&self, number: u16, life: u16) -> PathBuf {
        self.folder.join(&format!("log-{number}-{life}"))
    }

    fn spawn(&self, number: u16, life: u16) -> Result<Worker, Box<dyn Error>> {
        let daemon = &self.daemons[usize::from(number % NODES)];
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg(daemon.folder()).arg(self.log_of(number, life)).arg(self.folder.join("stop"));
        let child = command.arg(number.to_string()).arg(life.to_string()).spawn()?;
        Ok(Worker { number, life, child })
    }

    fn records(&self) -> Result<u64, Box<dyn Error>> {
        let mut sum = 0;
        for worker in &self.workers {
            sum += log::Log::open(&self.log_of(worker.number, worker.life))?.records()?.len() as u64;
        }
        Ok(sum)
    }

    fn torment(&mut self, seconds: u64) -> Result<Run, Box<dyn Error>> {
        let mut run = Run::default();
        let mut dice = Dice(seconds ^ 0x5eed);
        for number in 0..WORKERS {
            let worker = self.spawn(number, 0)?;
            self.workers.push(worker);
        }
        std::thread::sleep(QUIET / 2);
        let (before, since) = (self.records()?, Instant::now());
        std::thread::sleep(QUIET / 2);
        run.quiet_per_second = (self.records()? - before) as f64 / since.elapsed().as_secs_f64();
        let begin = Instant::now();
        let (mut next_client, mut next_daemon) = (begin, begin + DAEMON_KILL_EVERY / 2);
        while begin.elapsed() < Duration::from_secs(seconds) {
            if Instant::now() >= next_daemon {
                let index = dice.below(NODES.into()) as usize;
                self.daemons[index].kill()?;
                std::thread::sleep(Duration::from_millis(dice.below(500)));
                self.daemons[index].start_again()?;
                run.daemon_kills += 1;
                next_daemon += DAEMON_KILL_EVERY;
            }
            let index = dice.below(WORKERS.into()) as usize;
            self.workers[index].child.kill()?;
            self.workers[index].child.wait()?;
            let (number, life) = (self.workers[index].number, self.workers[index].life + 1);
            self.workers[index] = self.spawn(number, life)?;
            run.client_kills += 1;
            next_client += CLIENT_KILL_EVERY;
            std::thread::sleep(next_client.saturating_duration_since(Instant::now()));
        }
        self.stop.store(0, 1, Ordering::Release)?;
        for worker in &mut self.workers {
            if !worker.child.wait()?.success() {
                run.stranded += 1;
            }
        }
        Ok(run)
    }

    fn judge(&self) -> Result<check::Verdict, Box<dyn Error>> {
        let client = attach(self.daemons[0].folder(), Strategy::Auto, false)?;
        let mut last = Vec::new();
        for (index, segment) in open_all(&client)?.into_iter().enumerate() {
            let mut bytes = [0; BYTES];
            let stamp = segment.get_into(0, &mut bytes)?;
            let word = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            last.push((stamp.version.0, if index < VALUES { whole(&bytes) } else { word }));
        }
        let mut logs = HashMap::new();
        for worker in &self.workers {
            for life in 0..=worker.life {
                let log = log::Log::open(&self.log_of(worker.number, life))?;
                logs.insert(u64::from(worker.number) << 16 | u64::from(life), log.records()?);
            }
        }
        Ok(check::check(&logs, &last))
    }
}

fn run(seconds: u64, json: bool) -> Result<bool, Box<dyn Error>> {
    eprintln!("starting {NODES} daemons; if they are not built yet, that takes minutes");
    let mut chaos = Chaos::start()?;
    chaos.make_segments()?;
    eprintln!(
        "{WORKERS} clients for {seconds} s, one killed every {CLIENT_KILL_EVERY:?}, a daemon every {DAEMON_KILL_EVERY:?}"
    );
    let run = chaos.torment(seconds)?;
    let verdict = chaos.judge()?;
    // A run that did too little proves nothing.
    let enough =
        verdict.operations > 1000 * seconds && run.client_kills >= 2 * seconds && run.daemon_kills >= seconds / 10;
    let check::Verdict { operations, failed, unknown, violations, lost, late } = &verdict;
    let Run { quiet_per_second, client_kills, daemon_kills, stranded } = run;
    if json {
        let found = serde_json::json!({
            "seconds": seconds, "operations": operations, "failed": failed, "indeterminate": unknown,
            "operations_per_second_before_faults": quiet_per_second.round(), "client_kills": client_kills,
            "daemon_kills": daemon_kills, "stranded": stranded, "violations": violations.len(), "lost": lost, "late": late, "enough": enough,
        });
        println!("{found}");
    } else {
        println!("operations            {operations} ({quiet_per_second:.0} a second before the first kill)");
        println!("failed, unknown       {failed}, {unknown}");
        println!("client kills          {client_kills}");
        println!("daemon kills          {daemon_kills}");
        println!("stranded clients      {stranded}");
        println!("violations            {}", violations.len());
        println!("lost                  {lost}");
        println!("late                  {late}");
        if !enough {
            println!("too little was done to prove anything");
        }
    }
    for violation in violations.iter().take(20) {
        eprintln!("{violation}");
    }
    Ok(violations.is_empty() && *lost == 0 && *late == 0 && stranded == 0 && enough)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.first().map(String::as_str) {
        Some("worker") => worker::run(&words[1..]).map(|()| true),
        _ => {
            let mut seconds = 20;
            let mut json = false;
            let mut rest = words.iter();
            while let Some(word) = rest.next() {
                match (word.as_str(), rest.clone().next().and_then(|number| number.parse().ok())) {
                    ("--json", _) => json = true,
                    ("--seconds", Some(number)) => {
                        seconds = number;
                        rest.next();
                    }
                    _ => {
                        eprintln!("usage: chaos [--seconds N] [--json]");
                        return ExitCode::from(2);
                    }
                }
            }
            run(seconds, json)
        }
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::FAILURE
        }
    }
}
