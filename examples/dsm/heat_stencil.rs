//! **A heat stencil on shared pages.** Four ranks on two nodes hold a plate in one array, and compute it step by step.
//!
//! ```sh
//! cargo run --release --example heat_stencil
//! ```
//!
//! Each rank owns a band of rows, and reads one row of each neighbour. A barrier ends a step: behind it, every rank sees the
//! rows that the others wrote before it. Nobody sends anything: pages travel when they are read, and only bytes that have changed
//! go to their home. The result has to equal that of one process, bit by bit.
//!
//! Every tenth step ends in a checkpoint. In the middle of the work a rank dies; the others fail with its number, and all start again,
//! from the last checkpoint.
//!
//! `ddss dsm run -n 4 -- PROGRAM` starts the ranks of a program of yours: see `ddss_dsm::Launch`.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss_dsm::{Homes, Space, SpaceOptions};
use ddss_examples::{Failed, Nodes, PATIENCE, Task, check};

const SPACE: &str = "examples/heat";
const RANKS: usize = 4;
/// Rows and columns of the plate, with its edges. A row is half a page: bands of ranks meet within a page.
const SIZE: usize = 256;
const STEPS: usize = 40;
/// Steps between two checkpoints.
const STEPS_EACH: usize = 10;
/// Rank that dies in its first life, and its step.
const VICTIM: usize = 2;
const LAST_STEP: usize = 25;
/// Task of that rank.
const DIES: &str = "dies";

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => work(&task),
        None => compute(),
    }
}

/// Rows of the plate that a rank computes. The edges stay as they are.
fn band(rank: usize) -> std::ops::Range<usize> {
    let inner = SIZE - 2;
    1 + rank * inner / RANKS..1 + (rank + 1) * inner / RANKS
}

/// Computes rows from the rows of the step before, with one row above and one below.
fn step(before: &[f64], after: &mut [f64]) {
    for (row, line) in after.chunks_exact_mut(SIZE).enumerate() {
        let at = |row: usize, column: usize| before[row * SIZE + column];
        for (column, point) in line.iter_mut().enumerate().take(SIZE - 1).skip(1) {
            let around = at(row, column) + at(row + 2, column) + at(row + 1, column - 1) + at(row + 1, column + 1);
            *point = around / 4.0;
        }
    }
}

/// A plate that is cold but for its first row.
fn cold() -> Vec<f64> {
    let mut plate = vec![0.0; SIZE * SIZE];
    plate[..SIZE].fill(100.0);
    plate
}

/// A rank computes its band.
fn work(task: &Task) -> Result<(), Failed> {
    let rank: u16 = if task.name == DIES { VICTIM as u16 } else { task.name.parse()? };
    let options = SpaceOptions::new(RANKS as u16, 4 << 20).rank(rank).timeout(PATIENCE);
    let mut space = Space::join(&task.client()?, SPACE, options)?;
    let plates = [
        space.region::<f64>("even steps", SIZE * SIZE, Homes::FirstTouch)?,
        space.region::<f64>("odd steps", SIZE * SIZE, Homes::FirstTouch)?,
    ];
    // The pages of a checkpoint are there.
    let begin = space.restored().unwrap_or(0) as usize;
    if rank == 0 && begin == 0 {
        for plate in &plates {
            plate.write(&space, ..)?.copy_from_slice(&cold());
        }
    }
    space.barrier()?;
    let rows = band(rank.into());
    for count in begin..STEPS {
        if task.name == DIES && count == LAST_STEP {
            std::process::abort();
        }
        let [from, to] = [plates[count % 2], plates[(count + 1) % 2]];
        {
            let before = from.read(&space, (rows.start - 1) * SIZE..(rows.end + 1) * SIZE)?;
            let mut after = to.write(&space, rows.start * SIZE..rows.end * SIZE)?;
            step(&before, &mut after);
        }
        if (count + 1).is_multiple_of(STEPS_EACH) {
            // A barrier, too.
            space.checkpoint(count as u64 + 1)?;
        } else {
            space.barrier()?;
        }
    }
    let counters = space.statistics()?;
    if rank == 0 {
        let mut expected = [cold(), cold()];
        for _ in 0..STEPS {
            let (before, after) = expected.split_at_mut(1);
            step(&before[0], &mut after[0][SIZE..(SIZE - 1) * SIZE]);
            expected.swap(0, 1);
        }
        let result = plates[STEPS % 2].read(&space, ..)?;
        check(result[..] == expected[0][..], || "the plate differs from that of one process".to_owned())?;
        println!("steps {begin} to {STEPS} of {RANKS} ranks: the plate equals that of one process, bit by bit");
    }
    println!(
        "rank {rank}: {} pages fetched, {} changed bytes sent in {} runs",
        counters.fetches, counters.diff_bytes, counters.runs
    );
    space.leave()?;
    Ok(())
}

/// Runs all ranks. Returns true if all of them did their work.
fn run(nodes: &Nodes, victim: &str) -> Result<bool, Failed> {
    let name = |rank: usize| if rank == VICTIM { victim.to_owned() } else { rank.to_string() };
    let ranks = (0..RANKS).map(|rank| nodes.worker(rank, &name(rank))).collect::<Result<Vec<_>, _>>()?;
    // All are waited for.
    let failed = ranks.into_iter().filter_map(|rank| rank.finish().err()).count();
    nodes.client(0)?.segment(&format!("dsm/{SPACE}")).open()?.release()?;
    Ok(failed == 0)
}

fn compute() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    check(!run(&nodes, DIES)?, || "a rank died, and the others did not notice".to_owned())?;
    println!("rank {VICTIM} has died in step {LAST_STEP}, and so the space has ended: all ranks start again");
    check(run(&nodes, &VICTIM.to_string())?, || "a rank has failed".to_owned())?;
    println!("4 ranks on two nodes left nothing behind");
    Ok(())
}
