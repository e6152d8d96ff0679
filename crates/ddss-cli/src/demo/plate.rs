//! Rank of the demonstration of shared pages: it computes the heat of a band of a plate.

use super::child::reply;
use crate::arguments::demo::DemoRankOptions;
use crate::error::CommandError;
use ddss::Client;
use ddss_dsm::{Homes, Launch, Region, Space, SpaceError};
use serde_json::{Value, json};
use std::ops::Range;
use std::time::{Duration, Instant};

pub(super) const RANKS: u16 = 4;
/// Rows and columns of the plate, with its edges. A row is half a page: bands of ranks meet within a page.
pub(super) const SIZE: usize = 256;
pub(super) const STEPS: u64 = 40;
/// Steps between two checkpoints.
pub(super) const STEPS_EACH: u64 = 10;
/// Rank that is killed, and the step in which it waits for that.
pub(super) const VICTIM: u16 = 2;
const LAST_STEP: u64 = 25;
/// Longest wait of the victim.
const KILL_MAX: Duration = Duration::from_secs(60);

/// Time of a rank: the three sum to that between its first and its last step.
#[derive(Default)]
struct Times {
    computing: Duration,
    /// Wait for pages.
    pages: Duration,
    /// Barriers and checkpoints.
    barriers: Duration,
    all: Duration,
}

/// Measures what a call takes.
fn timed<T>(sum: &mut Duration, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    *sum += begin.elapsed();
    result
}

pub(crate) fn run(options: &DemoRankOptions) -> Result<(), CommandError> {
    let launch = Launch::from_environment()?;
    let client = Client::connect()?;
    let mut space = Space::join(&client, &launch.space, launch.options(4 << 20))?;
    match compute(&mut space, options.loses_rank) {
        Ok(result) => {
            reply(&result)?;
            Ok(space.leave()?)
        }
        Err(CommandError::Space(error)) => {
            reply(&json!({ "done": "lost", "rank": space.rank(), "error": error.to_string() }))?;
            Err(error.into())
        }
        Err(error) => Err(error),
    }
}

/// Computes all steps, from the last checkpoint on. Returns the counts and times of this rank.
fn compute(space: &mut Space, loses_rank: bool) -> Result<Value, CommandError> {
    let plates = [
        space.region::<f64>("even steps", SIZE * SIZE, Homes::FirstTouch)?,
        space.region::<f64>("odd steps", SIZE * SIZE, Homes::FirstTouch)?,
    ];
    let (restored, rank) = (space.restored(), space.rank());
    let rows = band(rank);
    if restored.is_none() {
        fill(space, &plates, &rows)?;
    }
    space.barrier()?;
    let mut times = Times::default();
    let begin = Instant::now();
    for step in restored.unwrap_or(0)..STEPS {
        if loses_rank && restored.is_none() && rank == VICTIM && step == LAST_STEP {
            reply(&json!({ "done": "waits", "step": step, "pid": std::process::id() }))?;
            std::thread::sleep(KILL_MAX);
        }
        let [from, to] = [plates[(step % 2) as usize], plates[((step + 1) % 2) as usize]];
        {
            let (above, below) = ((rows.start - 1) * SIZE, (rows.end + 1) * SIZE);
            let before = timed(&mut times.pages, || from.read(space, above..below))?;
            let own = rows.start * SIZE..rows.end * SIZE;
            let mut after = timed(&mut times.pages, || to.write(space, own))?;
            timed(&mut times.computing, || compute_rows(&before, &mut after));
        }
        let is_due = loses_rank && (step + 1).is_multiple_of(STEPS_EACH);
        timed(&mut times.barriers, || if is_due { space.checkpoint(step + 1) } else { space.barrier() })?;
    }
    times.all = begin.elapsed();
    if rank == 0 {
        check(space, plates[(STEPS % 2) as usize])?;
    }
    describe(space, &times)
}

fn describe(space: &Space, times: &Times) -> Result<Value, CommandError> {
    let counts = space.statistics()?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(json!({ "done": "computed", "rank": space.rank(), "restored": space.restored(),
        "fetches": counts.fetches, "retries": counts.retries, "messages": counts.handled, "diffs": counts.diffs,
        "changed_bytes": counts.diff_bytes, "invalidations": counts.invalidations,
        "handler_bytes": counts.handler_bytes, "computing_ms": ms(times.computing), "pages_ms": ms(times.pages),
        "barriers_ms": ms(times.barriers), "all_ms": ms(times.all) }))
}

/// Rows of the plate that a rank computes. The edges stay as they are.
fn band(rank: u16) -> Range<usize> {
    let (inner, rank, ranks) = (SIZE - 2, usize::from(rank), usize::from(RANKS));
    1 + rank * inner / ranks..1 + (rank + 1) * inner / ranks
}

/// A plate that is cold but for its first row.
fn cold() -> Vec<f64> {
    let mut plate = vec![0.0; SIZE * SIZE];
    plate[..SIZE].fill(100.0);
    plate
}

/// Writes the own rows of both plates, and so becomes the home of their pages.
fn fill(space: &Space, plates: &[Region<f64>; 2], rows: &Range<usize>) -> Result<(), SpaceError> {
    let first = if rows.start == 1 { 0 } else { rows.start * SIZE };
    let end = if rows.end == SIZE - 1 { SIZE * SIZE } else { rows.end * SIZE };
    for plate in plates {
        plate.write(space, first..end)?.copy_from_slice(&cold()[first..end]);
    }
    Ok(())
}

/// Computes rows from the rows of the step before, with one row above and one below.
fn compute_rows(before: &[f64], after: &mut [f64]) {
    for (row, line) in after.chunks_exact_mut(SIZE).enumerate() {
        let at = |row: usize, column: usize| before[row * SIZE + column];
        for (column, point) in line.iter_mut().enumerate().take(SIZE - 1).skip(1) {
            let around = at(row, column) + at(row + 2, column) + at(row + 1, column - 1) + at(row + 1, column + 1);
            *point = around / 4.0;
        }
    }
}

/// Compares the plate with that of one process.
fn check(space: &Space, result: Region<f64>) -> Result<(), CommandError> {
    let mut expected = [cold(), cold()];
    for _ in 0..STEPS {
        let (before, after) = expected.split_at_mut(1);
        compute_rows(&before[0], &mut after[0][SIZE..(SIZE - 1) * SIZE]);
        expected.swap(0, 1);
    }
    let found = result.read(space, ..)?;
    let is_equal = found.iter().zip(&expected[0]).all(|(found, expected)| found.to_bits() == expected.to_bits());
    if is_equal { Ok(()) } else { Err(CommandError::Demo("the plate differs from that of one process".to_owned())) }
}
