//! What a good client notices while its neighbour attacks the daemon: its calls' times, quiet and attacked.
//!
//! The progress thread has a core to itself, as `ddssd` takes one where there are several; the client and the attacker share
//! another. So what the client waits for is what the attacker does to the daemon, and not which of three threads the
//! scheduler lets run on two cores.

use crate::liar::SECRET;
use crate::{ATTACKS, Attack};
use ddss::{Client, Segment, Spec};
use ddss_tests::Besieged;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use std::error::Error;
use std::time::{Duration, Instant};

/// What calls took, in microseconds.
struct Times {
    p50: f64,
    p99: f64,
    max: f64,
    calls: usize,
    failed: usize,
}

impl Times {
    fn measure(segment: &Segment, length: Duration) -> Times {
        let (mut all, mut failed) = (Vec::new(), 0);
        let end = Instant::now() + length;
        let mut bytes = [0; 64];
        while Instant::now() < end {
            let begin = Instant::now();
            let ended = match all.len() % 2 {
                0 => segment.get_into(0, &mut bytes),
                _ => segment.put(0, &bytes),
            };
            all.push(begin.elapsed().as_nanos() as f64 / 1000.0);
            failed += usize::from(ended.is_err());
        }
        all.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| all.get((all.len() as f64 * part) as usize).or(all.last()).copied().unwrap_or(0.0);
        Times { p50: at(0.5), p99: at(0.99), max: at(1.0), calls: all.len(), failed }
    }
}

/// Rounds of each kind; the middle one counts, since the scheduler has its say in each.
const ROUNDS: usize = 3;
/// One that only takes its share of the processors: what everybody who works on the machine does to everybody else.
pub(crate) const BURNS: &str = "burns";

/// What a neighbour notices in three situations, the middle one of some rounds.
struct Row {
    quiet: Times,
    burning: Times,
    attacked: Times,
    failed: usize,
    held: bool,
}

fn middle(mut rounds: Vec<Times>) -> Times {
    rounds.sort_unstable_by(|a, b| a.p99.total_cmp(&b.p99));
    rounds.swap_remove(rounds.len() / 2)
}

/// Calls while somebody does that; and whether it held.
fn beside(besieged: &Besieged, name: &str, segment: &Segment, seconds: u64) -> Result<(Times, bool), Box<dyn Error>> {
    let mut attacker = besieged.attack(name, seconds)?;
    // One that stands still does so at once.
    std::thread::sleep(Duration::from_millis(20));
    let times = Times::measure(segment, Duration::from_secs(seconds));
    let pid = rustix::process::Pid::from_child(&attacker);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
    Ok((times, attacker.wait()?.success()))
}

fn row(besieged: &Besieged, name: &str, segment: &Segment, seconds: u64) -> Result<Row, Box<dyn Error>> {
    let (mut quiet, mut burning, mut attacked, mut held) = (Vec::new(), Vec::new(), Vec::new(), true);
    for _ in 0..ROUNDS {
        quiet.push(Times::measure(segment, Duration::from_secs(seconds)));
        burning.push(beside(besieged, BURNS, segment, seconds)?.0);
        let (times, holds) = beside(besieged, name, segment, seconds)?;
        attacked.push(times);
        held &= holds;
    }
    let failed = quiet.iter().chain(&burning).chain(&attacked).map(|times| times.failed).sum();
    Ok(Row { quiet: middle(quiet), burning: middle(burning), attacked: middle(attacked), failed, held })
}

/// `[--seconds N] [--only NAME] [--json]`: for each attack, N seconds quiet, N beside somebody who only burns a
/// processor, and N attacked, three times in turn.
pub(crate) fn siege(words: &[String]) -> Result<(), String> {
    let (mut seconds, mut only, mut json) = (1, None, false);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match (word, words.clone().next()) {
            ("--json", _) => json = true,
            ("--seconds", Some(number)) => {
                seconds = number.parse().map_err(|error| format!("{number}: {error}"))?;
                words.next();
            }
            ("--only", Some(name)) => {
                only = Some(name.to_owned());
                words.next();
            }
            _ => return Err("usage: hostile siege [--seconds N] [--only NAME] [--json]".to_owned()),
        }
    }
    run(seconds, only.as_deref(), json).map_err(|error| error.to_string())
}

/// Moves this process, and whoever it starts, to one core; says which other one is left for the service.
fn take_a_core() -> Result<Option<usize>, Box<dyn Error>> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let (Some(ours), Some(service)) = (cores.next(), cores.next()) else {
        eprintln!("there is one core only: all of them share it");
        return Ok(None);
    };
    let mut one = CpuSet::new();
    one.set(ours);
    sched_setaffinity(None, &one)?;
    Ok(Some(service))
}

fn run(seconds: u64, only: Option<&str>, json: bool) -> Result<(), Box<dyn Error>> {
    eprintln!("starting a daemon; if it is not built yet, that takes minutes");
    let service = take_a_core()?;
    let besieged = Besieged::start(SECRET, &std::env::current_exe()?, service)?;
    let client = Client::builder().folder(besieged.daemon.folder()).near(false).connect()?;
    let segment = client.allocate("neighbour", Spec::new(4096))?;
    Times::measure(&segment, Duration::from_millis(200));
    if !json {
        println!("{:<38} p99 in us: quiet, beside one who burns a processor, attacked", "");
    }
    let mut through = Vec::new();
    for &Attack { name, .. } in ATTACKS.iter().filter(|attack| only.is_none_or(|only| only == attack.name)) {
        let Row { quiet, burning, attacked, failed, held } = row(&besieged, name, &segment, seconds)?;
        if !held {
            through.push(name);
        }
        let (to_quiet, to_burning) = (attacked.p99 / quiet.p99, attacked.p99 / burning.p99);
        if json {
            let row = json!({
                "attack": name, "quiet_p50_us": quiet.p50, "quiet_p99_us": quiet.p99, "burning_p50_us": burning.p50,
                "burning_p99_us": burning.p99, "attacked_p50_us": attacked.p50, "attacked_p99_us": attacked.p99,
                "attacked_max_us": attacked.max, "p99_to_quiet": to_quiet, "p99_to_burning": to_burning,
                "calls": attacked.calls, "failed": failed, "attack_held": held,
            });
            println!("{row}");
            continue;
        }
        println!(
            "{name:<38} {:>8.1} {:>8.1} {:>8.1}  ({to_quiet:.2} x quiet, {to_burning:.2} x burning)  failed {failed}{}",
            quiet.p99,
            burning.p99,
            attacked.p99,
            if held { "" } else { "  SOMETHING GOT THROUGH" }
        );
    }
    if through.is_empty() { Ok(()) } else { Err(format!("something got through: {}", through.join(", ")).into()) }
}
