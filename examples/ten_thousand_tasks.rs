//! **Ten thousand tasks.** One client serves ten thousand tasks: they wait at one gate, then change shared state
//! together.
//!
//! ```sh
//! cargo run --release --example ten_thousand_tasks
//! ```
//!
//! Waiting tasks use no room of calls, so the client makes calls next to all of them. When the gate opens, all tasks
//! call at the same time; the client queues what does not fit, and no task fails. Some of them request one lock, and
//! get it in turn; some give up, and leave nothing behind.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{ErrorKind, Spec, Version, aio};
use ddss_examples::{Failed, Nodes, PATIENCE, check, open_soon};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const GATE: &str = "examples/tasks/gate";
const ROWS: &str = "examples/tasks/rows";
const JOBS: &str = "examples/tasks/jobs";
const TASKS: u64 = 10_000;
/// Number of jobs. Each is wanted by five tasks, and one of them gets it.
const JOB_COUNT: u64 = TASKS / 5;
/// One task of this many takes the lock of the gate.
const LOCK_EVERY: u64 = 100;

type Jobs = aio::Map<u64, u64>;

/// Handles that the tasks share.
#[derive(Clone)]
struct Shared {
    gate: aio::Segment,
    rows: aio::Table,
    jobs: Jobs,
}

fn main() -> Result<(), Failed> {
    run(&Nodes::take(2)?)
}

#[tokio::main(flavor = "current_thread")]
async fn run(nodes: &Nodes) -> Result<(), Failed> {
    let (home, other) = (nodes.client(0)?, nodes.client(1)?);
    let gate = home.segment(GATE).allocate(Spec::new(16))?;
    let rows = home.table::<[u8]>(ROWS).allocate(Spec::new(TASKS).row_len(16))?;
    let jobs = home.map::<u64, u64>(JOBS).allocate(JOB_COUNT)?;
    let shared = Shared {
        gate: aio::Segment::from(&open_soon(&other, GATE)?),
        rows: <aio::Table>::try_from(aio::Segment::from(&open_soon(&other, ROWS)?))?,
        jobs: other.aio()?.map(JOBS).wait().await?,
    };
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(serve(shared.clone(), task));
    }
    // Every task has arrived at the gate, and the client makes calls next to them.
    wait_for_arrivals(&other.aio()?, TASKS).await?;
    let beside = shared.gate.stat().await?;
    check(beside.stamp.version == Version(TASKS), || format!("the gate has {}", beside.stamp.version))?;
    gate.put(8, &1u64.to_le_bytes())?;
    let mut jobs_done = 0;
    while let Some(ended) = timeout(4 * PATIENCE, tasks.join_next()).await? {
        jobs_done += u64::from(ended??);
    }
    check(jobs_done == JOB_COUNT, || format!("{jobs_done} of {JOB_COUNT} jobs were done once"))?;
    for task in 0..TASKS {
        let row = rows.row(task).get()?;
        check(row[..8] == task.to_le_bytes(), || format!("row {task} is {:?}", &row[..]))?;
    }
    let found = jobs.len()?;
    check(found == JOB_COUNT, || format!("{found} jobs in the map"))?;
    jobs.segment().release()?;
    rows.segment().release()?;
    gate.release()?;
    println!("{TASKS} tasks of one client passed a gate at once: {JOB_COUNT} jobs, each done by one of them");
    Ok(())
}

/// Waits until the gate counts that many tasks.
async fn wait_for_arrivals(client: &aio::Client, count: u64) -> Result<(), Failed> {
    let gate = client.segment(GATE).open().await?;
    let wait = async {
        let mut versions = gate.watch();
        while u64::from_le_bytes(gate.get(0..8).await?[..].try_into()?) < count {
            versions.next().await.transpose()?;
        }
        Ok(())
    };
    timeout(4 * PATIENCE, wait).await?
}

/// One task. Returns true if it did its job.
async fn serve(shared: Shared, task: u64) -> Result<bool, Failed> {
    let Shared { gate, rows, jobs } = shared;
    gate.word(0).fetch_add(1).await?;
    wait_at(&gate).await?;
    rows.row(task).put(&task.to_le_bytes()).await?;
    let (_, has_job) = jobs.get_or_put(&(task % JOB_COUNT), &task).await?;
    if task.is_multiple_of(LOCK_EVERY) {
        gate.with_timeout(4 * PATIENCE).lock().await?.unlock().await?;
    } else if task % LOCK_EVERY == 1 {
        // This task gives up quickly. Dropping the future removes it from the lock queue.
        match timeout(Duration::from_millis(1), gate.lock()).await {
            Ok(held) => held?.unlock().await?,
            Err(_) => return Ok(has_job),
        }
    }
    Ok(has_job)
}

/// Waits until the gate is open. The arrivals of other tasks are older than this version or do not open it.
async fn wait_at(gate: &aio::Segment) -> Result<(), Failed> {
    loop {
        match gate.wait_newer_than(Version(TASKS)).await {
            Ok(_) => return Ok(()),
            // The gate stays closed for longer than one call lasts.
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::LimitReached) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
