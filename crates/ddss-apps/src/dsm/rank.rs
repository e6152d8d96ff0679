//! A rank of a program.

use super::counts::Counts;
use super::elements::Elements;
use super::job::{Job, Program};
use super::{barnes_hut, fft, radix, tsp};
use crate::Error;
use ddss::Client;
use ddss_dsm::{Launch, PageFaults, Space};
use std::time::Duration;

/// Time of a call at most: the others wait for a rank that checks a result.
const CALL_MAX: Duration = Duration::from_secs(300);
/// Bytes of a space: those of the largest program. A page takes memory when it is touched.
const SPACE_BYTES: u64 = 256 << 20;

/// Report of rank 0 about a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankReport {
    /// The result, the same for each number of ranks and each protocol.
    pub result: String,
    /// Sums of the counters of all ranks.
    pub counts: Counts,
}

/// Runs a rank that `ddss dsm run` has started. Rank 0 returns a report.
pub fn run_rank(job: Job) -> Result<Option<RankReport>, Error> {
    let launch = Launch::from_environment()?;
    let client = Client::connect()?;
    let mut options = launch.options(SPACE_BYTES).timeout(CALL_MAX);
    if job.elements == Elements::PageFaults {
        options = options.page_faults(launch.page_faults().unwrap_or(PageFaults::ALL[0]));
    }
    let mut space = Space::join(&client, &launch.space, options)?;
    let result = match job.program {
        Program::BarnesHut => barnes_hut::run(&mut space, job),
        Program::Tsp => tsp::run(&mut space, job),
        Program::Radix => radix::run(&mut space, job),
        Program::Fft => fft::run(&mut space, job),
    }?;
    let counts = Counts::of_all(&mut space)?;
    space.leave()?;
    Ok(result.map(|result| RankReport { result, counts }))
}
