//! **A leader lock.** Processes on two nodes compete for leadership. The leader is killed, and the next one leads.
//!
//! ```sh
//! cargo run --example leader_lock
//! ```
//!
//! A lock ends with its holder's process, so no time-out is needed for dead holders. Each grant has a number greater
//! than all before (its *fencing token*). Writes of a former leader under the lock are refused, and systems outside of
//! DDSS can refuse them by the same number. Under the model `write` other processes can read while the lock is held.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Cell, ErrorKind, LockOptions, Model, Spec};
use ddss_examples::{Failed, Nodes, PATIENCE, Task, check, open_soon};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const NAME: &str = "examples/leader";
const CANDIDATES: usize = 3;

/// The current leader, readable by all.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct Leader {
    pid: u64,
    token: u64,
}

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => stand(&task),
        None => watch(),
    }
}

/// A candidate waits in the lock queue, and leads as long as it lives.
fn stand(task: &Task) -> Result<(), Failed> {
    let segment = open_soon(&task.client()?, NAME)?;
    // A holder that is silent for longer than that (a stopped machine) is no longer the leader.
    let held = segment.lock_with(LockOptions::new().lease(PATIENCE))?;
    let leader = Leader { pid: std::process::id().into(), token: held.token().0 };
    held.put(0, leader.as_bytes())?;
    // The leader's work. This one leads until it is killed.
    std::thread::sleep(PATIENCE);
    Err("the leader was not killed".into())
}

fn watch() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let spec = Spec::new(size_of::<Leader>() as u64).model(Model::Write);
    let segment = nodes.client(0)?.segment(NAME).allocate(spec)?;
    let view: Cell<Leader> = segment.cell(0)?;
    let mut candidates = Vec::new();
    for index in 0..CANDIDATES {
        candidates.push(nodes.worker(index, "stand")?);
    }
    let mut tokens = Vec::new();
    // The home announces newer versions: no polling.
    for stamp in segment.watch() {
        if stamp?.version.0 <= tokens.len() as u64 {
            continue;
        }
        let leader = view.get()?.value;
        println!("  process {} leads, token {}", leader.pid, leader.token);
        tokens.push(leader.token);
        let place = candidates.iter().position(|worker| u64::from(worker.pid()) == leader.pid);
        let place = place.ok_or_else(|| format!("process {} leads, and was no candidate", leader.pid))?;
        candidates.swap_remove(place).kill()?;
        println!("  process {} was killed", leader.pid);
        if candidates.is_empty() {
            break;
        }
    }
    let refused = fence(&nodes)?;
    segment.release()?;
    check(tokens.is_sorted_by(|a, b| a < b), || format!("the tokens are {tokens:?}"))?;
    println!(
        "{} leaders, one after the other, each with a greater token; a late put was refused: {refused}",
        tokens.len()
    );
    Ok(())
}

/// A holder that was stopped for too long: its lease has ended, another process leads, and its put is refused.
fn fence(nodes: &Nodes) -> Result<String, Failed> {
    let (slow, next) = (open_soon(&nodes.client(0)?, NAME)?, open_soon(&nodes.client(1)?, NAME)?);
    let late = slow.lock_with(LockOptions::new().lease(Duration::from_millis(20)))?;
    // This client waits in the lock queue until the lease has ended.
    let held = next.lock()?;
    check(held.token() > late.token(), || "a later grant has a smaller token".to_owned())?;
    match late.put(0, &[0; 16]) {
        Err(error) if error.kind() == ErrorKind::LockLost => Ok(error.to_string()),
        ended => Err(format!("a put under a lock that was lost ended as {ended:?}").into()),
    }
}
