//! Settings of a waiting client's back-off: spin, yield, sleep.

use std::time::Duration;

/// Settings of a client that waits for a reply: it spins, then yields its core, then sleeps.
///
/// Under `Rcq` a client yields instead of sleeping. On the service's core only one of the two can run, so a client there
/// sleeps immediately, as it does in calls that may sleep under every strategy.
///
/// ```
/// use ddss_ipc::BackOff;
///
/// let (few, many) = (BackOff::for_cores(2), BackOff::for_cores(4));
/// assert!(few.yield_after < few.sleep_after && many.yield_after == many.sleep_after);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackOff {
    /// Time after which the client yields: until then it spins.
    pub yield_after: Duration,
    /// Time after which the client sleeps.
    pub sleep_after: Duration,
    /// Longest sleep before the client checks whether the daemon is alive. A safeguard.
    pub sleep_max: Duration,
}

impl BackOff {
    /// Cores from which each thread counts as one with a core of its own: client, progress thread, and two for
    /// everything else.
    pub const MANY_CORES: usize = 4;

    /// Returns the defaults for a process that may run on that many cores.
    #[must_use]
    pub fn for_cores(cores: usize) -> Self {
        let sleep_after = Duration::from_micros(32);
        let yield_after = if cores < Self::MANY_CORES { Duration::from_micros(2) } else { sleep_after };
        Self { yield_after, sleep_after, sleep_max: Duration::from_millis(20) }
    }
}

impl Default for BackOff {
    /// Returns the defaults for the cores of this process.
    fn default() -> Self {
        Self::for_cores(allowed_cores())
    }
}

/// Returns the number of cores on which this process may run.
pub(crate) fn allowed_cores() -> usize {
    // The affinity of a pinned thread says less about its process than that of the first thread.
    let process = Some(rustix::process::getpid());
    rustix::thread::sched_getaffinity(process).map_or(1, |cores| cores.count() as usize)
}
