//! The command `river units work`: a program for each unit.

use super::content::{insert_bytes, one_line};
use super::program::{Interruption, Program, ProgramEnd};
use crate::arguments::river::UnitsWorkOptions;
use crate::connect::connect_with_channels;
use crate::error::CommandError;
use crate::output::terminal_text::print_warning;
use ddss_river::{QueueError, Unit, UnitQueue, UnitStatus};
use serde_json::{Map, Value};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time for which a worker waits for units of others before it looks for a signal.
const CLAIM_MAX: Duration = Duration::from_millis(200);
/// Time between two looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How a unit ended here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    Failed,
    GivenBack,
    /// Another worker has it.
    Fenced,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::GivenBack => "given back",
            Self::Fenced => "with another worker",
        }
    }
}

/// Workers of one command.
#[derive(Debug)]
struct Workers<'a> {
    queue: UnitQueue,
    program: Program<'a>,
    interruption: Interruption,
    done: AtomicU64,
    json: bool,
}

pub(super) fn work(options: &UnitsWorkOptions, json: bool) -> Result<(), CommandError> {
    let program = Program::new(&options.program, json)?;
    let name = &options.list.name;
    // One more for the renewal of the claims.
    let client = connect_with_channels(&options.list.place, usize::from(options.jobs.min(63)) + 1)?;
    let queue = match UnitQueue::open(&client, name) {
        Err(QueueError::UnknownUnits { queue }) => {
            return Err(CommandError::Refused(format!("there is no list {queue}: `ddss river units add` creates it")));
        }
        other => other?,
    };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CommandError::system("listen to signals"))?;
    let workers = Workers { queue, program, interruption: Interruption::default(), done: AtomicU64::new(0), json };
    let signal = workers.run(options.jobs, &mut signals)?;
    if let Some(signal) = signal {
        return Err(CommandError::Returned { signal });
    }
    let mut failed = 0;
    for unit in workers.queue.list()? {
        failed += u64::from(unit?.status == UnitStatus::Failed);
    }
    if !json {
        println!("{name}: {} units done here", workers.done.load(Ordering::Relaxed));
    }
    match failed {
        0 => Ok(()),
        _ => Err(CommandError::Refused(format!(
            "{failed} units of {name} have failed: `ddss river units ls --state failed {name}` lists them, and `ddss river units retry {name}` opens them again"
        ))),
    }
}

impl Workers<'_> {
    /// Works with so many threads until each unit is done or failed. Returns the signal that ended the work before.
    fn run(&self, jobs: u16, signals: &mut Signals) -> Result<Option<u8>, CommandError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(|| self.work_off())).collect();
            let mut first = None;
            while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                for signal in signals.pending() {
                    first = first.or(u8::try_from(signal).ok());
                    self.interruption.raise();
                }
                std::thread::sleep(LOOK_EVERY);
            }
            for thread in threads {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(reason) => std::panic::resume_unwind(reason),
                }
            }
            Ok(first)
        })
    }

    fn work_off(&self) -> Result<(), CommandError> {
        while !self.interruption.is_raised() {
            let unit = match self.queue.claim_within(CLAIM_MAX) {
                Ok(Some(unit)) => unit,
                Ok(None) => break,
                Err(QueueError::TimedOut { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            self.serve(&unit)?;
        }
        Ok(())
    }

    fn serve(&self, unit: &Unit) -> Result<(), CommandError> {
        let variables = [("DDSS_UNIT", unit.number().to_string()), ("DDSS_UNIT_ATTEMPT", unit.attempt().to_string())];
        let ended = self.program.run(unit.bytes(), &variables, &self.interruption, || unit.is_fenced());
        let (written, outcome, status) = match ended {
            Ok(ProgramEnd::Exited(status)) if status.success() => (unit.done(b""), Outcome::Done, Some(status)),
            Ok(ProgramEnd::Exited(status)) => (unit.fail(ending(status).as_bytes()), Outcome::Failed, Some(status)),
            Ok(ProgramEnd::Stopped) => (unit.give_back(), Outcome::GivenBack, None),
            Err(error) => {
                // The next one would not start either.
                unit.give_back()?;
                return Err(error);
            }
        };
        let outcome = match written {
            Err(QueueError::UnitFenced { .. }) => Outcome::Fenced,
            other => {
                other?;
                outcome
            }
        };
        self.report(unit, outcome, status);
        Ok(())
    }

    fn report(&self, unit: &Unit, outcome: Outcome, status: Option<ExitStatus>) {
        if outcome == Outcome::Done {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        if self.json {
            let mut object = Map::new();
            object.insert("unit".to_owned(), unit.number().into());
            insert_bytes(&mut object, "content", unit.bytes());
            object.insert("attempt".to_owned(), unit.attempt().into());
            object.insert("outcome".to_owned(), outcome.as_str().into());
            object.insert("exit_code".to_owned(), status.and_then(|status| status.code()).into());
            println!("{}", Value::Object(object));
        } else if outcome != Outcome::Done {
            let (number, content) = (unit.number(), one_line(unit.bytes()));
            let reason = status.map(|status| format!(": {}", ending(status))).unwrap_or_default();
            print_warning(&format!("unit {number} ({content}): {}{reason}", outcome.as_str()));
        }
    }
}

/// Describes the end of a program.
fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("its program ended with exit code {code}"),
        (None, Some(signal)) => format!("its program was ended by signal {signal}"),
        (None, None) => "its program ended".to_owned(),
    }
}
