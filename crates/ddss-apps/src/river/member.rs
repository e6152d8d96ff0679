//! A process of a program: a member of its flow.

use super::job::{Job, MESSAGE_BYTES_MAX, Program};
use super::{copy, join, load, sort};
use crate::Error;
use ddss::{Client, ConnectOptions};
use ddss_river::flow::{Flow, FlowOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Line that a member writes once its modules run.
pub(super) const BEGUN: &str = "begun";
/// Time in which a consumer makes room: that of a join takes no probing record before it has all of the other input.
const ROOM_MAX: Duration = Duration::from_secs(600);

/// Runs the member that a [`Runner`](super::Runner) started with these words, until its flow has ended.
pub fn run_member(words: &[String]) -> Result<(), Error> {
    let [program, form, keys, processes, directory, daemon] = words else {
        return Err(Error::Wrong(format!("{words:?} are no words of a member")));
    };
    let (program, form) = (program.parse().map_err(Error::Wrong)?, form.parse().map_err(Error::Wrong)?);
    let keys = keys.parse().map_err(Error::Wrong)?;
    let processes = processes.parse().map_err(|_| Error::Wrong(format!("{processes} is no number of processes")))?;
    let job = Job { program, form, keys, processes, directory: directory.into() };
    let running = build(&job, daemon.as_ref())?.go()?;
    let mut out = std::io::stdout().lock();
    // The runner may have ended.
    let _ = writeln!(out, "{BEGUN}").and_then(|()| out.flush());
    drop(out);
    Ok(running.wait()?)
}

/// Builds the flow of a job.
fn build(job: &Job, daemon: &Path) -> Result<Flow, Error> {
    let client = Client::connect_with(ConnectOptions::new().directory(daemon))?;
    let options = FlowOptions::new().processes(job.processes).message_bytes_max(MESSAGE_BYTES_MAX);
    let mut flow = Flow::join_with(&client, &job.flow(), options.timeout(ROOM_MAX))?;
    match job.program {
        Program::Copy => copy::build(&mut flow, job)?,
        Program::Sort => sort::build(&mut flow, job)?,
        Program::Join => join::build(&mut flow, job)?,
        Program::Load => load::build(&mut flow, job)?,
    }
    Ok(flow)
}
