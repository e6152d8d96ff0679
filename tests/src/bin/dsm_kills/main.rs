//! Kills one rank of four, at any moment: all others name it, nothing hangs and nothing is left. With `--restart` a stencil with
//! checkpoints goes on, and its result equals that of an undisturbed run.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin dsm_kills -- [--kills 50] [--seed 1] [--restart]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

mod plate;
mod rank;
mod run;

use std::error::Error;
use std::process::ExitCode;

use run::Campaign;

type Failed = Box<dyn Error>;

const ARGUMENTS: &str = "usage: dsm_kills [--kills N] [--seed N] [--restart]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["rank"] => rank::play(u64::MAX, 0),
        ["rank", steps, every] => {
            steps.parse().map_err(Failed::from).and_then(|steps| rank::play(steps, every.parse()?))
        }
        _ => campaign(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn campaign(mut words: &[&str]) -> Result<(), Failed> {
    let (mut kills, mut seed, mut restarts) = (50, 1, false);
    loop {
        words = match words {
            [] => break,
            ["--kills", value, rest @ ..] => {
                kills = value.parse()?;
                rest
            }
            ["--seed", value, rest @ ..] => {
                seed = value.parse()?;
                rest
            }
            ["--restart", rest @ ..] => {
                restarts = true;
                rest
            }
            _ => return Err(ARGUMENTS.into()),
        };
    }
    let mut campaign = Campaign::new(seed)?;
    println!("{}", if restarts { campaign.restart(kills)? } else { campaign.end(kills)? });
    Ok(())
}
