//! The commands `dsm run`, `dsm ls` and `dsm rm`: ranks of page-based shared memory.

use crate::arguments::dsm::{DsmCommand, DsmRankOptions, DsmRemoveOptions, DsmRunOptions};
use crate::arguments::values::DaemonOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::node_process::tie_to_parent;
use crate::output::table::Table;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use ddss::{Client, SegmentInfo};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ops::RangeInclusive;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Names of spaces in the directory of segments begin so.
const PREFIX: &str = "dsm/";
/// Time in which the other ranks notice that one has failed, and end by themselves.
const END_MAX: Duration = Duration::from_secs(10);
/// Time in which the places of ranks that have ended are free.
const FREE_MAX: Duration = Duration::from_secs(2);
/// Time between two looks at the ranks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(crate) fn run(command: &DsmCommand, json: bool) -> Result<(), CommandError> {
    match command {
        DsmCommand::Run(_) if json => Err(CommandError::NoJsonOutput),
        DsmCommand::Run(options) => run_ranks(options),
        DsmCommand::Ls(place) => list(place, json),
        DsmCommand::Rm(options) => remove(options, json),
    }
}

/// Becomes a program that ends with the command that started it.
pub(crate) fn become_rank(options: &DsmRankOptions) -> Result<(), CommandError> {
    tie_to_parent(options.parent, Signal::KILL)?;
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(CommandError::InvalidInput("name a program to run".to_owned()));
    };
    let failed = Command::new(name).args(arguments).exec();
    Err(CommandError::File { tried: "run", path: PathBuf::from(name), source: failed })
}

/// A process that has been started.
struct Started {
    rank: u16,
    child: Child,
}

impl Drop for Started {
    fn drop(&mut self) {
        signal(&self.child, Signal::KILL);
        // It fails if the rank has ended already.
        let _ = self.child.wait();
    }
}

fn run_ranks(options: &DsmRunOptions) -> Result<(), CommandError> {
    // Fails with the next step if no daemon runs there, before any process is started.
    let client = connect(&options.place)?;
    let (first, last) = options.ranks.unwrap_or((0, options.count - 1));
    if last >= options.count {
        let wrong =
            format!("rank {last} is none of a space of {} ranks: the last one is {}", options.count, options.count - 1);
        return Err(CommandError::InvalidInput(wrong));
    }
    let space = options.space.clone().unwrap_or_else(|| format!("run-{}", std::process::id()));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CommandError::system("listen to signals"))?;
    let ended = start_and_watch(options, &space, first..=last, &mut signals);
    if options.ranks.is_none() {
        release(&client, &space);
    }
    ended
}

fn start_and_watch(
    options: &DsmRunOptions,
    space: &str,
    numbers: RangeInclusive<u16>,
    signals: &mut Signals,
) -> Result<(), CommandError> {
    let mut ranks = Vec::new();
    for rank in numbers {
        ranks.push(Started { rank, child: start(options, space, rank)? });
    }
    watch(&mut ranks, signals)
}

/// Releases the name of a space when its last rank is gone. Ranks that another command started under the same name keep it.
fn release(client: &Client, space: &str) {
    let name = format!("{PREFIX}{space}");
    let end = Instant::now() + FREE_MAX;
    while Instant::now() < end {
        // No rank has joined, or no daemon answers any more: there is nothing to release, or nobody who could.
        let Ok(found) = client.list(&name).and_then(Iterator::collect::<Result<Vec<SegmentInfo>, _>>) else { return };
        let Some(found) = found.iter().find(|found| name_of(found) == space) else { return };
        if found.lock.holders == 0 {
            let _ = client.segment(&name).open().and_then(|segment| segment.release());
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn start(options: &DsmRunOptions, space: &str, rank: u16) -> Result<Child, CommandError> {
    let own = std::env::current_exe().map_err(CommandError::system("find this program"))?;
    let name = |value: Option<PossibleValue>| value.map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut command = Command::new(own);
    // A group of its own: a wrapper and the program that it starts end together.
    command.process_group(0).stdin(Stdio::null());
    command.args(["dsm-rank", "--parent", &std::process::id().to_string(), "--"]).args(&options.program);
    command.env("DDSS_DSM_SPACE", space);
    command.env("DDSS_DSM_RANK", rank.to_string()).env("DDSS_DSM_RANKS", options.count.to_string());
    command.env("DDSS_DSM_PROTOCOL", name(options.protocol.to_possible_value()));
    command.env("DDSS_DSM_ORDERING", name(options.ordering.to_possible_value()));
    if let Some(address) = options.listen {
        command.env("DDSS_DSM_LISTEN", address.to_string());
    }
    if let Some(folder) = &options.place.dir {
        command.env("DDSS_DIR", folder);
    }
    command.spawn().map_err(CommandError::system("start a rank"))
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
                    failed.push((started.rank, ending(status)));
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
            running.iter().for_each(|started| self::signal(&started.child, Signal::TERM));
        }
        let is_ending = interrupted.is_some() || !failed.is_empty();
        if is_ending && Instant::now() >= *end.get_or_insert_with(|| Instant::now() + END_MAX) {
            failed.extend(running.iter().map(|started| (started.rank, "did not end, and was killed".to_owned())));
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

/// Sends a signal to a rank, and to the processes that it has started.
fn signal(child: &Child, signal: Signal) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // All of them may have ended.
        let _ = kill_process_group(group, signal);
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Returns the spaces of all reachable nodes.
fn spaces(place: &DaemonOptions) -> Result<Vec<SegmentInfo>, CommandError> {
    Ok(connect(place)?.list(PREFIX)?.collect::<Result<_, _>>()?)
}

fn list(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let found = spaces(place)?;
    if json {
        let rows = found.iter().map(|space| {
            json!({ "space": name_of(space), "ranks": ranks_of(space), "live": space.lock.holders, "home": space.home.0 })
        });
        println!("{}", Value::Array(rows.collect()));
        return Ok(());
    }
    let mut table = Table::new(&["SPACE", "RANKS", "LIVE", "HOME"]);
    table.align_right(&[1, 2, 3]);
    for space in &found {
        table.row(vec![
            name_of(space).to_owned(),
            ranks_of(space).to_string(),
            space.lock.holders.to_string(),
            space.home.0.to_string(),
        ]);
    }
    table.print_or("no space exists");
    Ok(())
}

fn name_of(space: &SegmentInfo) -> &str {
    space.name.strip_prefix(PREFIX).unwrap_or_default()
}

/// Returns the number of ranks that a space is for: its table has a row for the space, and two for each of them.
fn ranks_of(space: &SegmentInfo) -> u64 {
    let rows = space.len.checked_div(space.row_len.into()).unwrap_or(0);
    rows.saturating_sub(1) / 2
}

fn remove(options: &DsmRemoveOptions, json: bool) -> Result<(), CommandError> {
    let found = spaces(&options.place)?;
    for name in &options.spaces {
        let Some(space) = found.iter().find(|space| name_of(space) == name) else {
            return Err(CommandError::Refused(format!("no space {name}: `ddss dsm ls` lists them")));
        };
        if space.lock.holders > 0 && !options.force {
            let live = space.lock.holders;
            return Err(CommandError::Refused(format!(
                "{live} ranks of {name} live: end them first, or repeat with --force"
            )));
        }
    }
    let client = connect(&options.place)?;
    for name in &options.spaces {
        client.segment(&format!("{PREFIX}{name}")).open()?.release()?;
        if !json {
            println!("{name}: released");
        }
    }
    if json {
        println!("{}", json!({ "released": options.spaces }));
    }
    Ok(())
}
