//! **A leader election.** One of three processes leads for as long as it lives, and a leader that dies or hangs is
//! replaced within seconds.
//!
//! ```sh
//! cargo run --example leader_election
//! ```
//!
//! The leader holds a lock with a short lease, and its client renews that lease while the guard lives
//! (`LockOptions::keep_alive`). The lock of a dead process is free immediately. The lock of a process that hangs is
//! free when its lease ends: once the process runs again, `lease_left` is zero, and its writes are refused.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Cell, LockGuard, LockOptions, Model, Segment, Spec};
use ddss_examples::{Failed, Nodes, PATIENCE, Task, check, open_soon};
use std::process::Command;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const NAME: &str = "examples/election";
/// Segment with the number of leaders that noticed the loss of their lock. An atomic on the locked segment would wait for
/// the next leader's lock.
const RESIGNED: &str = "examples/election/resigned";
/// Time after which a leader that hangs is replaced.
const LEASE: Duration = Duration::from_secs(3);

/// The current leader, readable by all.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug, PartialEq)]
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

/// A candidate waits in the lock queue, leads while it has the lock, and then becomes a candidate again.
fn stand(task: &Task) -> Result<(), Failed> {
    let client = task.client()?;
    let (segment, resigned) = (open_soon(&client, NAME)?, open_soon(&client, RESIGNED)?);
    loop {
        let term = segment.lock_with(LockOptions::new().lease(LEASE).keep_alive().timeout(4 * PATIENCE))?;
        lead(&term)?;
        drop(term);
        resigned.word(0).fetch_add(1)?;
    }
}

/// Leads until the lock is lost.
fn lead(term: &LockGuard<Segment>) -> Result<(), Failed> {
    let leader = Leader { pid: std::process::id().into(), token: term.token().0 };
    if term.put(0, leader.as_bytes()).is_err() {
        return Ok(());
    }
    while !term.lease_left().is_zero() {
        // The leader's work.
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn watch() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let client = nodes.client(0)?;
    let segment = client.segment(NAME).allocate(Spec::new(64).model(Model::Write))?;
    let resigned = client.segment(RESIGNED).allocate(Spec::new(8))?;
    let view: Cell<Leader> = segment.cell(0)?;
    let mut candidates = Vec::new();
    for index in 0..3 {
        candidates.push(nodes.worker(index, "stand")?);
    }
    let first = leader_after(&view, 0)?;
    std::thread::sleep(LEASE + LEASE / 2);
    check(view.get()?.value == first, || "the leader changed, though it lives".to_owned())?;
    println!("  process {} led for longer than its lease", first.pid);

    let place = |pid: u64, workers: &[ddss_examples::Worker]| {
        let place = workers.iter().position(|worker| u64::from(worker.pid()) == pid);
        place.ok_or_else(|| format!("process {pid} leads, and was no candidate"))
    };
    candidates.swap_remove(place(first.pid, &candidates)?).kill()?;
    let second = leader_after(&view, first.token)?;
    println!("  process {} was killed, and process {} leads", first.pid, second.pid);

    place(second.pid, &candidates)?;
    signal("-STOP", second.pid)?;
    let third = leader_after(&view, second.token)?;
    println!("  process {} hangs, and process {} leads", second.pid, third.pid);
    signal("-CONT", second.pid)?;
    wait_for_resignation(&resigned)?;
    check(view.get()?.value == third, || "a leader that hung for too long came back".to_owned())?;

    drop(candidates);
    resigned.release()?;
    segment.release()?;
    println!("3 leaders, one at a time: a dead one and one that hung were replaced, and the latter noticed");
    Ok(())
}

/// Waits for a leader with a greater token.
fn leader_after(view: &Cell<Leader>, token: u64) -> Result<Leader, Failed> {
    let begin = Instant::now();
    loop {
        let leader = view.get()?.value;
        if leader.token > token {
            return Ok(leader);
        }
        check(begin.elapsed() < PATIENCE, || "no process leads".to_owned())?;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the process that hung has noticed the loss of its lock.
fn wait_for_resignation(resigned: &Segment) -> Result<(), Failed> {
    let begin = Instant::now();
    while resigned.get(0..8)?[..] == [0; 8] {
        check(begin.elapsed() < PATIENCE, || "a former leader did not notice".to_owned())?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn signal(signal: &str, pid: u64) -> Result<(), Failed> {
    let status = Command::new("kill").arg(signal).arg(pid.to_string()).status()?;
    check(status.success(), || format!("kill {signal} {pid}: {status}"))
}
