//! **A shared counter.** Processes on two nodes add to one word, and no addition is lost.
//!
//! ```sh
//! cargo run --example shared_counter
//! ```
//!
//! The home of the segment executes `fetch_add`, for callers of its own node and of every other. Each addition is a
//! version of its own, so the version equals their number, too.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::Spec;
use ddss_examples::{Failed, Nodes, Task, check, may_come, open_soon};
use std::thread::sleep;
use std::time::Duration;

const NAME: &str = "examples/counter";
const WORKERS: usize = 4;
const ADDITIONS: u64 = 2_000;

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => add(&task),
        None => count(),
    }
}

/// Work of each worker process.
fn add(task: &Task) -> Result<(), Failed> {
    let client = task.client()?;
    let counter = open_soon(&client, NAME)?;
    let mut left = ADDITIONS;
    while left > 0 {
        // It returns the value before the addition, so it also makes unique numbers.
        match counter.word(0).fetch_add(1) {
            Ok(_) => left -= 1,
            // The connection to the other node was cut (an overloaded machine), and the call certainly did nothing. An
            // *indeterminate* call may have taken effect, so an exact count must not repeat it.
            Err(error) if !error.is_indeterminate() && may_come(&error) => sleep(Duration::from_millis(50)),
            Err(error) => return Err(error.into()),
        }
    }
    println!("  a process on {} has added {ADDITIONS} times", client.node());
    Ok(())
}

fn count() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let counter = nodes.client(0)?.segment(NAME).allocate(Spec::new(8))?;
    let workers: Result<Vec<_>, _> = (0..WORKERS).map(|index| nodes.worker(index, "add")).collect();
    for worker in workers? {
        worker.finish()?;
    }
    let value = counter.get(0..8)?;
    let total = u64::from_le_bytes(value[..].try_into()?);
    let version = value.version().0;
    // Not `?` yet: the segment is released whatever the result is.
    let holds = check(total == WORKERS as u64 * ADDITIONS && version == total, || {
        format!("{WORKERS} processes added {ADDITIONS} times each, and the counter says {total}, version {version}")
    });
    counter.release()?;
    holds?;
    println!("{WORKERS} processes on two nodes: the counter says {total}, as it has to");
    Ok(())
}
