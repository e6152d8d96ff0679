//! Runs the checkpoint campaign, in which processes are killed at random; see `checkpoint --help`.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use ddss::{Client, ConnectOptions};
use ddss_apps::checkpoint::{Campaign, CommitCounts, Member, Where};

const USAGE: &str = "\
usage: checkpoint [--commits N] [--kills N] [--processes N] [--together N] [--place one-node|one-home|spread]
                  [--bytes N] [--kill-every-ms N] [--seed N]

Starts nodes and processes that commit checkpoints, kills a process every so often, and checks that each restart is from a
state that somebody committed. Prints what happened; the exit status is 1 if any was not.";
/// Commits between two reports. Anything but a commit is reported immediately: a process far from its state is killed
/// long before it has made this many commits.
const REPORT_EVERY: u64 = 64;
/// Maximum working time of a process before it commits.
const WORK: Duration = Duration::from_micros(20);
/// Timeout of a call on a machine with many processes.
const CALL_MAX: Duration = Duration::from_secs(60);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut out = io::stdout().lock();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", folder, name, id] => worker(folder, name, id.parse()?),
        ["--help" | "-h"] => Ok(writeln!(out, "{USAGE}").map(|()| ExitCode::SUCCESS)?),
        ref options => {
            let outcome = campaign(options)?.run()?;
            let CommitCounts { conflicts, failures, restarts, chains, .. } = outcome.reported;
            writeln!(
                out,
                "{} commits in {:.1} s; {} processes killed; reported: {conflicts} conflicts, {failures} failures, \
                 {restarts} restarts, {chains} with the state before; {} violations",
                outcome.commits,
                outcome.elapsed.as_secs_f64(),
                outcome.kills,
                outcome.violations.len(),
            )?;
            for violation in &outcome.violations {
                writeln!(out, "violation: {violation}")?;
            }
            Ok(ExitCode::from(u8::from(!outcome.violations.is_empty())))
        }
    }
}

fn campaign(options: &[&str]) -> Result<Campaign, Box<dyn Error>> {
    let mut campaign = Campaign {
        program: env::current_exe()?,
        processes: 8,
        together: 4,
        place: Where::Spread,
        bytes: 1024,
        commits: 1_000_000,
        kills: 100,
        kill_every: Duration::from_millis(50),
        seed: 1,
    };
    for pair in options.chunks(2) {
        let [option, value] = pair else { return Err(USAGE.into()) };
        match *option {
            "--commits" => campaign.commits = value.parse()?,
            "--kills" => campaign.kills = value.parse()?,
            "--processes" => campaign.processes = value.parse::<usize>()?.max(1),
            "--together" => campaign.together = value.parse::<usize>()?.max(1),
            "--bytes" => campaign.bytes = value.parse()?,
            "--kill-every-ms" => campaign.kill_every = Duration::from_millis(value.parse()?),
            "--seed" => campaign.seed = value.parse()?,
            "--place" => {
                campaign.place = match *value {
                    "one-node" => Where::OneNode,
                    "one-home" => Where::OneHome,
                    "spread" => Where::Spread,
                    _ => return Err(USAGE.into()),
                }
            }
            _ => return Err(USAGE.into()),
        }
    }
    Ok(campaign)
}

/// Runs one process until it is killed.
fn worker(folder: &str, name: &str, id: u64) -> Result<ExitCode, Box<dyn Error>> {
    let client = Client::connect_with(ConnectOptions::new().directory(folder).timeout(CALL_MAX))?;
    let mut member = Member::join(client.segment(name).open()?, id)?;
    let mut out = io::stdout().lock();
    loop {
        let before = member.tally();
        for _ in 0..REPORT_EVERY {
            member.turn(WORK)?;
            if member.tally().restarts > before.restarts {
                break;
            }
        }
        let CommitCounts { commits, conflicts, failures, restarts, chains } = member.tally();
        writeln!(out, "{commits} {conflicts} {failures} {restarts} {chains}")?;
        out.flush()?;
    }
}
