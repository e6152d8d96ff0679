//! A campaign against real processes: three nodes with clients on each, under kills, partitions, reboots or removals.
//!
//! By default it kills a client four times a second and a daemon every few seconds. Other modes partition one node
//! repeatedly, reboot nodes with loss of memory, or remove nodes. At the end it checks all observations, and that every
//! acknowledged put is there.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin chaos -- --seconds 60 [--copies 2] [--json]
//! cargo run --release -p ddss-tests --bin chaos -- --namespaces --operations 5000000 --floor 50000
//! cargo run --release -p ddss-tests --bin chaos -- --cut both      # or deaf, mute, slow
//! cargo run --release -p ddss-tests --bin chaos -- --reboots 20
//! cargo run --release -p ddss-tests --bin chaos -- --removals 20
//! cargo run -p ddss-tests --bin chaos -- --upgrade "$(scripts/previous-release)" [--rounds 2]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

mod check;
mod check_maps;
mod cluster;
mod kill_loop;
mod log;
mod maps;
mod partitions;
mod reboots;
mod removals;
mod upgrade;
mod worker;

use check::Verdict;
use cluster::{Cluster, NODES};
use kill_loop::{CLIENT_KILL_EVERY, DAEMON_KILL_EVERY, Until, WORKERS};
use partitions::How;
use serde_json::{Value, json};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use upgrade::Programs;

const USAGE: &str =
    "usage: chaos [--seconds N] [--operations N] [--copies 2] [--namespaces] [--floor CALLS-A-SECOND] [--json]
       chaos --cut both|deaf|mute|slow [--rounds N] [--json]
       chaos --reboots N [--json]
       chaos --removals N [--json]
       chaos --upgrade DIR-OF-THE-PREVIOUS-RELEASE [--rounds N] [--json]";
/// Time limit of a run with a number of operations instead of seconds.
const SECONDS_MAX: u64 = 3600;

/// Options of the command line.
struct Wish {
    seconds: Option<u64>,
    operations: Option<u64>,
    namespaces: bool,
    /// Nodes that store each segment.
    copies: u8,
    /// Calls a second before the first kill, below which the run proves too little.
    floor: u64,
    cut: Option<How>,
    rounds: u64,
    /// Nodes that are rebooted one after the other, with loss of memory.
    reboots: Option<u64>,
    /// Nodes that leave or are removed, one after the other.
    removals: Option<u64>,
    /// Directory with the programs of the previous release.
    upgrade: Option<PathBuf>,
    json: bool,
}

impl Wish {
    fn parse(words: &[String]) -> Option<Self> {
        let mut wish = Self {
            seconds: None,
            operations: None,
            namespaces: false,
            copies: 1,
            floor: 0,
            cut: None,
            rounds: 2,
            reboots: None,
            removals: None,
            upgrade: None,
            json: false,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--json" => wish.json = true,
                "--namespaces" => wish.namespaces = true,
                "--copies" => wish.copies = words.next()?.parse().ok().filter(|copies| matches!(copies, 1..=2))?,
                "--upgrade" => wish.upgrade = Some(words.next()?.into()),
                "--cut" => wish.cut = Some(How::parse(words.next()?)?),
                _ => {
                    let number = words.next()?.parse().ok()?;
                    match word {
                        "--seconds" => wish.seconds = Some(number),
                        "--operations" => wish.operations = Some(number),
                        "--floor" => wish.floor = number,
                        "--rounds" => wish.rounds = number,
                        "--reboots" => wish.reboots = Some(number),
                        "--removals" => wish.removals = Some(number),
                        _ => return None,
                    }
                }
            }
        }
        Some(wish)
    }

    fn until(&self) -> Until {
        let usual = if self.operations.is_some() { SECONDS_MAX } else { 20 };
        // Calls to dead nodes fail and count only during the run. The workers make some more calls at the end.
        let operations = self.operations.map_or(u64::MAX, |wanted| wanted + wanted / 50);
        Until { seconds: self.seconds.unwrap_or(usual), operations }
    }
}

/// Prints the result, as lines or as JSON.
fn print_result(json: bool, found: &[(&str, Value)]) {
    if json {
        let found = found.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        println!("{}", Value::Object(found.collect()));
        return;
    }
    for (name, value) in found {
        println!("{:<38}{value}", name.replace('_', " "));
    }
}

fn tell_verdict(verdict: &Verdict) -> Vec<(&'static str, Value)> {
    let Verdict { operations, failed, unknown, violations, lost, late } = verdict;
    for violation in violations.iter().take(20) {
        eprintln!("{violation}");
    }
    vec![
        ("operations", json!(operations)),
        ("failed", json!(failed)),
        ("indeterminate", json!(unknown)),
        ("violations", json!(violations.len())),
        ("lost", json!(lost)),
        ("late", json!(late)),
    ]
}

fn is_good(verdict: &Verdict) -> bool {
    verdict.violations.is_empty() && verdict.lost == 0 && verdict.late == 0
}

fn kill(wish: &Wish) -> Result<bool, Box<dyn Error>> {
    eprintln!("starting {NODES} daemons; if they are not built yet, that takes minutes");
    let mut field = Cluster::start(wish.namespaces, wish.copies)?;
    eprintln!("{WORKERS} clients, one killed every {CLIENT_KILL_EVERY:?}, a daemon every {DAEMON_KILL_EVERY:?}");
    let run = kill_loop::torment(&mut field, wish.until(), wish.copies)?;
    let verdict = field.judge()?;
    let moved_homes = field.moved_homes()?;
    // A run that did too little proves nothing.
    let enough = (wish.copies == 1 || moved_homes > 0)
        && verdict.operations as f64 > 1000.0 * run.seconds
        && run.client_kills as f64 >= 2.0 * run.seconds
        && run.daemon_kills as f64 >= (run.seconds / 10.0).floor()
        && verdict.operations >= wish.operations.unwrap_or(0)
        && run.quiet_per_second >= wish.floor as f64;
    let mut found = vec![
        ("seconds", json!(run.seconds.round())),
        ("namespaces", json!(wish.namespaces)),
        ("copies", json!(wish.copies)),
        ("operations_per_second_before_faults", json!(run.quiet_per_second.round())),
        ("client_kills", json!(run.client_kills)),
        ("daemon_kills", json!(run.daemon_kills)),
        ("homes_that_moved", json!(moved_homes)),
        ("stranded", json!(run.stranded)),
    ];
    found.extend(tell_verdict(&verdict));
    found.push(("enough", json!(enough)));
    print_result(wish.json, &found);
    Ok(is_good(&verdict) && run.stranded == 0 && enough)
}

fn cut(wish: &Wish, how: How) -> Result<bool, Box<dyn Error>> {
    eprintln!("starting {NODES} daemons on network; if they are not built yet, that takes minutes");
    let mut field = Cluster::start(true, 1)?;
    let run = partitions::cut(&mut field, how, wish.rounds as u32)?;
    let verdict = field.judge()?;
    let rounds: Vec<Value> = run
        .rounds
        .iter()
        .map(|round| {
            json!({
                "calm_per_second": round.calm.round(), "cut_per_second": round.cut.round(),
                "kept_percent": (round.kept() * 100.0).round(), "whole_after_s": (round.whole_s * 100.0).round() / 100.0,
            })
        })
        .collect();
    let kept: Vec<f64> = run.rounds.iter().map(partitions::Round::kept).collect();
    let mean = kept.iter().sum::<f64>() / kept.len().max(1) as f64;
    let mut found = vec![
        ("cut", json!(format!("{how:?}"))),
        ("kept_percent_between_the_others", json!((mean * 100.0).round())),
        ("stranded", json!(run.stranded)),
        ("rounds", json!(rounds)),
    ];
    found.extend(tell_verdict(&verdict));
    print_result(wish.json, &found);
    Ok(is_good(&verdict) && run.stranded == 0)
}

fn reboot(wish: &Wish, rounds: u64) -> Result<bool, Box<dyn Error>> {
    eprintln!("starting {NODES} daemons; if they are not built yet, that takes minutes");
    let mut field = Cluster::start(wish.namespaces, 2)?;
    let run = reboots::reboot(&mut field, rounds)?;
    let verdict = field.judge()?;
    let mut found = vec![
        ("reboots_that_lost_memory", json!(run.reboots)),
        ("slowest_until_in_sync_s", json!((run.slowest_s * 10.0).round() / 10.0)),
        ("stranded", json!(run.stranded)),
    ];
    found.extend(tell_verdict(&verdict));
    print_result(wish.json, &found);
    Ok(is_good(&verdict) && run.stranded == 0)
}

fn remove(wish: &Wish, rounds: u64) -> Result<bool, Box<dyn Error>> {
    eprintln!("starting {NODES} daemons; if they are not built yet, that takes minutes");
    let mut field = Cluster::start(false, 2)?;
    let run = removals::remove(&mut field, rounds)?;
    let verdict = field.judge()?;
    let mut found = vec![
        ("left", json!(run.left)),
        ("removed_alive", json!(run.removed_alive)),
        ("removed_dead_and_returned", json!(run.removed_dead)),
        ("slowest_until_in_sync_s", json!((run.slowest_s * 10.0).round() / 10.0)),
        ("stranded", json!(run.stranded)),
    ];
    found.extend(tell_verdict(&verdict));
    print_result(wish.json, &found);
    Ok(is_good(&verdict) && run.stranded == 0)
}

fn upgrade(wish: &Wish, folder: &Path) -> Result<bool, Box<dyn Error>> {
    let previous = Programs::below(folder);
    eprintln!("starting {NODES} daemons of the previous release");
    let mut field = Cluster::start_program(&previous.ddssd, false, 2)?;
    let run = upgrade::upgrade(&mut field, &previous, wish.rounds)?;
    let verdict = field.judge()?;
    let mut found = vec![
        ("upgraded", json!(run.upgraded)),
        ("taken_back", json!(run.taken_back)),
        ("protocol_after_each", json!(run.levels)),
        ("stranded", json!(run.stranded)),
    ];
    found.extend(tell_verdict(&verdict));
    print_result(wish.json, &found);
    Ok(is_good(&verdict) && run.stranded == 0)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.first().map(String::as_str) {
        Some("worker") => worker::run(&words[1..]).map(|()| true),
        _ => {
            let Some(wish) = Wish::parse(&words) else {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            };
            match (&wish.upgrade, wish.cut, wish.reboots, wish.removals) {
                (Some(folder), ..) => upgrade(&wish, folder),
                (None, Some(how), ..) => cut(&wish, how),
                (None, None, Some(rounds), _) => reboot(&wish, rounds),
                (None, None, None, Some(rounds)) => remove(&wish, rounds),
                (None, None, None, None) => kill(&wish),
            }
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
