//! How long calls wait for a takeover: the home of a segment with two copies is killed, once where it leads the cluster, and
//! once where it does not.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin takeover -- [--rounds 5] [--json]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, run_ddss};
use serde_json::{Value, json};
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time of puts before the home is killed.
const CALM: Duration = Duration::from_millis(500);
const NAME: &str = "kept";

fn json_of(daemon: &Daemon, words: &[&str]) -> Result<Value, Box<dyn Error>> {
    let said = run_ddss(daemon.folder(), &[words, &["--json"]].concat(), "")?;
    Ok(serde_json::from_str(&said.out).unwrap_or(Value::Null))
}

fn until(what: &str, mut good: impl FnMut() -> Result<bool, Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let end = Instant::now() + PATIENCE;
    while !good()? {
        if Instant::now() >= end {
            return Err(format!("not in time: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Three nodes that are voters. The first one leads.
fn cluster() -> Result<Vec<Daemon>, Box<dyn Error>> {
    let mut daemons = vec![DaemonOptions::new(1)?.clustered().start()?];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node)?.joins(daemons[0].listen()).start()?);
    }
    until("three voters", || {
        let status = json_of(&daemons[0], &["cluster", "status"])?;
        let alive = |node: &Value| node["alive"] == true && node["voter"] == true;
        let nodes = status["nodes"].as_array();
        Ok(status["leader"] == 1 && nodes.is_some_and(|nodes| nodes.len() == 3 && nodes.iter().all(alive)))
    })?;
    Ok(daemons)
}

/// Kills the home while a client of the third node puts, and returns the longest put.
fn round(home: usize) -> Result<Duration, Box<dyn Error>> {
    let mut daemons = cluster()?;
    let connect =
        |daemon: &Daemon| Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE));
    connect(&daemons[home])?.segment(NAME).allocate(Spec::new(64).copies(2))?;
    until("in sync", || Ok(json_of(&daemons[2], &["stat", NAME])?["replica"]["state"] == "in sync"))?;
    let segment = connect(&daemons[2])?.segment(NAME).open()?;
    let (begin, mut longest, mut killed, mut number) = (Instant::now(), Duration::ZERO, None, 0_u64);
    while killed.is_none_or(|killed: Instant| killed.elapsed() < CALM) {
        if killed.is_none() && begin.elapsed() > CALM {
            daemons[home].kill()?;
            killed = Some(Instant::now());
        }
        let call = Instant::now();
        number += 1;
        segment.put(0, &number.to_le_bytes())?;
        longest = longest.max(call.elapsed());
    }
    let found = segment.get(0..8)?;
    if found[..] != number.to_le_bytes() {
        return Err(format!("put number {number} was acknowledged, and is not there").into());
    }
    Ok(longest)
}

fn run(rounds: usize, as_json: bool) -> Result<(), Box<dyn Error>> {
    eprintln!("starting daemons; if they are not built yet, that takes minutes");
    for (home, what) in [(1, "the home does not lead"), (0, "the home leads the cluster")] {
        let mut longest = Vec::new();
        for _ in 0..rounds {
            longest.push(round(home)?.as_secs_f64());
        }
        longest.sort_by(f64::total_cmp);
        let (least, median, most) = (longest[0], longest[rounds / 2], longest[rounds - 1]);
        if as_json {
            println!(
                "{}",
                json!({ "home": what, "rounds": rounds, "least_s": least, "median_s": median, "most_s": most })
            );
        } else {
            println!("{what:<28} longest put: {least:.2} to {most:.2} s, median {median:.2} s ({rounds} rounds)");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let (mut rounds, mut as_json) = (5, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => as_json = true,
            "--rounds" => rounds = words.next().and_then(|count| count.parse().ok()).unwrap_or(0),
            _ => rounds = 0,
        }
        if rounds == 0 {
            eprintln!("usage: takeover [--rounds N] [--json]");
            return ExitCode::from(2);
        }
    }
    match run(rounds, as_json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("takeover: {error}");
            ExitCode::FAILURE
        }
    }
}
