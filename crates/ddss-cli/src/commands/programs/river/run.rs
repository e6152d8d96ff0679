//! The command `river run`: the processes of a flow.

use crate::arguments::river::RiverRunOptions;
use crate::commands::programs::started::{Started, ending};
use crate::connect::connect;
use crate::error::CommandError;
use ddss_river::flow::{FlowError, prepare};
use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::time::{Duration, Instant};

/// Time in which interrupted processes end by themselves.
const END_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at the processes.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) fn run_flow(options: &RiverRunOptions) -> Result<(), CommandError> {
    let RiverRunOptions { name, place, processes, of, listen, resume, program } = options;
    let total = of.unwrap_or(*processes);
    if total < *processes {
        let wrong = format!("this command starts {processes} of {total} processes: name a larger --of");
        return Err(CommandError::InvalidInput(wrong));
    }
    // Fails with the next step if no daemon runs there, before any process is started.
    let client = connect(place)?;
    if *resume {
        match prepare(&client, name) {
            // The same command on another node was first.
            Err(FlowError::Living { .. }) if of.is_some() => {}
            other => other?,
        }
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CommandError::system("listen to signals"))?;
    let mut started = Vec::new();
    for number in 0..*processes {
        started.push(Started::start(number, program, |command| {
            command.env("DDSS_RIVER_FLOW", name).env("DDSS_RIVER_PROCESSES", total.to_string());
            if let Some(address) = listen {
                command.env("DDSS_RIVER_LISTEN", address.to_string());
            }
            if let Some(folder) = &place.dir {
                command.env("DDSS_DIR", folder);
            }
        })?);
    }
    watch(name, started, &mut signals)
}

/// Waits until all processes have ended. Each of the others goes on without one that is killed: the flow has ended in order if one
/// process says so, and no process reports an error.
fn watch(name: &str, mut running: Vec<Started>, signals: &mut Signals) -> Result<(), CommandError> {
    let (mut failed, mut has_ended, mut has_error, mut interrupted) = (Vec::new(), false, false, None);
    while !running.is_empty() {
        for index in (0..running.len()).rev() {
            let waited = running[index].child.try_wait().map_err(CommandError::system("wait for a process"))?;
            let Some(status) = waited else { continue };
            let number = running.remove(index).number;
            has_ended |= status.success();
            has_error |= status.code().is_some_and(|code| code != 0);
            if !status.success() {
                failed.push(format!("process {number} {}", ending(status)));
                if interrupted.is_none() {
                    eprintln!("ddss: {name}: process {number} {}", ending(status));
                }
            }
        }
        if let Some(signal) = signals.pending().next() {
            // Asked twice: at once.
            let end = if interrupted.is_some() { Instant::now() } else { Instant::now() + END_MAX };
            interrupted = Some((u8::try_from(signal).unwrap_or_default(), end));
            running.iter().for_each(|started| started.signal(Signal::TERM));
        }
        if interrupted.is_some_and(|(_, end)| Instant::now() >= end) {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    match interrupted {
        Some((signal, _)) => Err(CommandError::Interrupted { signal }),
        None if has_ended && !has_error => Ok(()),
        None if has_ended => {
            let why = failed.join(", ");
            Err(CommandError::Refused(format!("flow {name} has ended, but {why}: see the messages of these processes")))
        }
        None => {
            let why = failed.join(", ");
            let next = format!("`ddss river show {name}` shows the flow, --resume repeats what is left");
            Err(CommandError::Refused(format!("flow {name} has not ended: {why}; {next}")))
        }
    }
}
