//! Instructions, counted by valgrind.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Rounds of the shorter and of the longer run: both contain the program's start and end.
const ROUNDS: [u64; 2] = [200, 1200];

/// Reason why nothing was counted.
#[derive(Debug)]
pub enum CountError {
    /// valgrind cannot be started here, so the test is skipped.
    NoValgrind(io::Error),
    /// The program or valgrind failed.
    Failed(String),
}

impl fmt::Display for CountError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CountError::NoValgrind(error) => write!(formatter, "valgrind cannot be started: {error}"),
            CountError::Failed(what) => write!(formatter, "counting failed: {what}"),
        }
    }
}

impl std::error::Error for CountError {}

/// Counts the instructions of one round of a workload: `program` runs with `words`, and the number of rounds behind
/// them. `options` are further options of callgrind.
pub fn instructions(program: &Path, words: &[&str], options: &[&str]) -> Result<f64, CountError> {
    let [short, long] = ROUNDS.map(|rounds| collected(program, words, options, rounds));
    let more = long?.saturating_sub(short?);
    Ok(more as f64 / (ROUNDS[1] - ROUNDS[0]) as f64)
}

fn collected(program: &Path, words: &[&str], options: &[&str], rounds: u64) -> Result<u64, CountError> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(options).arg(program).args(words);
    command.arg(rounds.to_string()).stdin(Stdio::null());
    let output = command.output().map_err(CountError::NoValgrind)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(CountError::Failed(format!("{}: {said}", output.status)));
    }
    parse(&said).ok_or_else(|| CountError::Failed(format!("valgrind said nothing of a sum: {said}")))
}

/// Parses the total at the end of callgrind's output: `==7== Collected : 12345`.
fn parse(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected : "))?;
    line.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the guard would compare process ids.
    #[test]
    fn instruction_total_is_parsed_from_callgrind_output() {
        let said = "==123== Callgrind, a call-graph generating cache profiler\n==123== \n==123== Collected : 4567890\n";
        assert_eq!(parse(said), Some(4_567_890));
        assert_eq!(parse("==123== nothing"), None);
    }
}
