//! The command `dsm run`: the ranks of a space.

use super::check::Traces;
use super::spaces::{has_checkpoint, release_checkpoints, release_name};
use crate::arguments::dsm::{DsmRankOptions, DsmRunOptions};
use crate::commands::programs::started::{Started, ending};
use crate::connect::connect;
use crate::error::CommandError;
use crate::node_process::tie_to_parent;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time in which the other ranks notice that one has failed, and end by themselves.
const END_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at the ranks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Becomes a program that ends with the command that started it.
pub(crate) fn become_rank(options: &DsmRankOptions) -> Result<(), CommandError> {
    tie_to_parent(options.parent, Signal::KILL)?;
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(CommandError::InvalidInput("name a program to run".to_owned()));
    };
    let failed = Command::new(name).args(arguments).exec();
    Err(CommandError::File { tried: "run", path: PathBuf::from(name), source: failed })
}

pub(super) fn run_ranks(options: &DsmRunOptions) -> Result<(), CommandError> {
    // Fails with the next step if no daemon runs there, before any process is started.
    let client = connect(&options.place)?;
    let (first, last) = options.ranks.unwrap_or((0, options.count - 1));
    if last >= options.count {
        let wrong =
            format!("rank {last} is none of a space of {} ranks: the last one is {}", options.count, options.count - 1);
        return Err(CommandError::InvalidInput(wrong));
    }
    let space = options.space.clone().map_or_else(own_name, Ok)?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CommandError::system("listen to signals"))?;
    let (mut restarts, mut checked) = (0, Ok(()));
    let ended = loop {
        let traces = options.check.then(|| Traces::create(restarts)).transpose()?;
        let ended = start_and_watch(options, &space, first..=last, &mut signals, traces.as_ref());
        // A race in an attempt that is repeated is a race.
        checked = checked.and(traces.map_or(Ok(()), |traces| traces.report(ended.is_ok())));
        if options.ranks.is_none() {
            release_name(&client, &space);
        }
        match ended {
            Err(CommandError::Refused(why)) if restarts < options.restart => {
                restarts += 1;
                eprintln!("ddss: {why}: restart {restarts} of {}", options.restart);
            }
            // What ended the ranks comes first, and a race may be the reason.
            ended => break ended.and(checked),
        }
    };
    if options.space.is_none() {
        // Nobody knows this name, and so nobody could go on from its checkpoint. Why the ranks have ended comes first.
        let released = release_checkpoints(&client, &space);
        return match (ended, released) {
            (Err(ended), Err(error)) => {
                eprintln!("ddss: cannot remove the checkpoints of {space}: {error}");
                Err(ended)
            }
            (ended, released) => ended.and(Ok(released?)),
        };
    }
    match ended {
        Err(CommandError::Refused(why)) if has_checkpoint(&client, &space) => {
            Err(CommandError::Refused(format!("{why}; the same command goes on from the last checkpoint")))
        }
        ended => ended,
    }
}

/// Returns a name that no other run has: those of a cluster would share a space, and a checkpoint.
fn own_name() -> Result<String, CommandError> {
    let mut bytes = [0; 8];
    let filled = getrandom::fill(&mut bytes).map_err(std::io::Error::other);
    filled.map_err(CommandError::system("draw a name for the space"))?;
    Ok(format!("run-{:016x}", u64::from_le_bytes(bytes)))
}

fn start_and_watch(
    options: &DsmRunOptions,
    space: &str,
    numbers: RangeInclusive<u16>,
    signals: &mut Signals,
    traces: Option<&Traces>,
) -> Result<(), CommandError> {
    let mut ranks = Vec::new();
    for rank in numbers {
        ranks.push(start(options, space, rank, traces)?);
    }
    watch(&mut ranks, signals)
}

fn start(options: &DsmRunOptions, space: &str, rank: u16, traces: Option<&Traces>) -> Result<Started, CommandError> {
    let name = |value: Option<PossibleValue>| value.map(|value| value.get_name().to_owned()).unwrap_or_default();
    // It turns address randomisation off, and needs no privilege.
    let prefix = if options.same_addresses { &["setarch", "-R"][..] } else { &[] };
    let program: Vec<OsString> = prefix.iter().map(OsString::from).chain(options.program.iter().cloned()).collect();
    Started::start(rank, &program, |command| {
        command.env("DDSS_DSM_SPACE", space);
        command.env("DDSS_DSM_RANK", rank.to_string()).env("DDSS_DSM_RANKS", options.count.to_string());
        command.env("DDSS_DSM_PROTOCOL", name(options.protocol.to_possible_value()));
        command.env("DDSS_DSM_ORDERING", name(options.ordering.to_possible_value()));
        command.env("DDSS_DSM_STAMPS", name(options.stamps.to_possible_value()));
        if let Some(way) = options.page_faults {
            command.env("DDSS_DSM_PAGE_FAULTS", name(way.to_possible_value()));
        }
        if let Some(traces) = traces {
            command.env("DDSS_DSM_TRACE", traces.folder());
        }
        if let Some(address) = options.listen {
            command.env("DDSS_DSM_LISTEN", address.to_string());
        }
        if let Some(folder) = &options.place.dir {
            command.env("DDSS_DIR", folder);
        }
    })
}

/// Waits until all ranks have ended. When one fails, or a signal comes, the others get a moment to end by themselves.
fn watch(ranks: &mut [Started], signals: &mut Signals) -> Result<(), CommandError> {
    let (mut failed, mut end, mut interrupted) = (Vec::new(), None, None);
    let mut running: Vec<&mut Started> = ranks.iter_mut().collect();
    while !running.is_empty() {
        let mut waited = Ok(());
        running.retain_mut(|started| match started.child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                if !status.success() {
                    failed.push((started.number, ending(status)));
                }
                false
            }
            Err(error) => {
                waited = Err(error);
                false
            }
        });
        waited.map_err(CommandError::system("wait for a rank"))?;
        if let Some(signal) = signals.pending().next() {
            if interrupted.is_some() {
                // Asked twice: at once.
                break;
            }
            interrupted = u8::try_from(signal).ok();
            running.iter().for_each(|started| started.signal(Signal::TERM));
        }
        let is_ending = interrupted.is_some() || !failed.is_empty();
        if is_ending && Instant::now() >= *end.get_or_insert_with(|| Instant::now() + END_MAX) {
            failed.extend(running.iter().map(|started| (started.number, "did not end, and was killed".to_owned())));
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    if let Some(signal) = interrupted {
        return Err(CommandError::Interrupted { signal });
    }
    if failed.is_empty() {
        return Ok(());
    }
    failed.sort_unstable();
    let words: Vec<_> = failed.into_iter().map(|(rank, ending)| format!("rank {rank} {ending}")).collect();
    Err(CommandError::Refused(format!("the space has ended: {}", words.join(", "))))
}
