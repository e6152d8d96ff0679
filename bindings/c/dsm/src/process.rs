//! The space of this process.

use crate::distribution::Distribution;
use crate::error::CallError;
use crate::heap::Heap;
use crate::program::Program;
use ddss_dsm::{Homes, Launch, LostPage, PageFaults, Space};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// Indices of the program end here. Those behind are the library's.
pub(crate) const INDEX_END: u32 = 65_000;
/// Locks from here on are those that [`Process::new_lock`] gives.
const FIRST_NEW_LOCK: u32 = 32_768;
/// Counter of locks.
const NEW_LOCKS: u32 = INDEX_END;
/// Deadline of a call, if the program names none: others may compute for long.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Address of the pages: above the shadow of AddressSanitizer, and far below programs, libraries and stacks.
const ADDRESS: usize = 0x2000_0000_0000;

/// Number of this rank, and of all; -1 without a space.
static RANK: AtomicI32 = AtomicI32::new(-1);
static RANKS: AtomicI32 = AtomicI32::new(-1);

/// Function that is called for a page that is lost.
pub(crate) type OnLostPage = Box<dyn Fn(&LostPage) + Send + Sync>;

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// A rank.
pub(crate) struct Process {
    pub(crate) space: Space,
    pub(crate) heap: Heap,
    pub(crate) distribution: Distribution,
    pub(crate) program: Program,
}

/// Makes a call of the space of this process.
pub(crate) fn with<T>(call: impl FnOnce(&mut Process) -> Result<T, CallError>) -> Result<T, CallError> {
    let mut process = PROCESS.try_lock().map_err(refused)?;
    call(process.as_mut().ok_or(CallError::NotJoined)?)
}

fn refused<T>(error: TryLockError<T>) -> CallError {
    match error {
        TryLockError::WouldBlock => CallError::Busy,
        // A call has panicked, and left the space as it was then.
        TryLockError::Poisoned(_) => CallError::Panicked,
    }
}

/// Joins the space that `ddss dsm run` has named, with so many bytes for regions and as many for the heap. Waits for the other ranks.
pub(crate) fn join(bytes: u64, timeout: Option<Duration>, on_lost_page: Option<OnLostPage>) -> Result<(), CallError> {
    let mut process = PROCESS.try_lock().map_err(refused)?;
    if process.is_some() {
        return Err(CallError::Joined);
    }
    let launch = Launch::from_environment()?;
    let client = ddss::Client::connect()?;
    let heap_bytes = bytes.max(1).checked_next_multiple_of(4096).unwrap_or(u64::MAX);
    let all = heap_bytes.saturating_mul(2).saturating_add(Heap::TABLE_BYTES + Distribution::BYTES + Program::BYTES);
    let way = launch.page_faults().unwrap_or(PageFaults::ALL[0]);
    let mut options = launch.options(all).timeout(timeout.unwrap_or(TIMEOUT)).page_faults(way).address(ADDRESS);
    if let Some(callback) = on_lost_page {
        options = options.on_lost_page(callback);
    }
    let mut space = Space::join(&client, &launch.space, options)?;
    let heap = Heap::open(&mut space, heap_bytes)?;
    let (distribution, program) = (Distribution::open(&mut space)?, Program::open(&mut space)?);
    // All have cleared what a checkpoint brought back.
    space.barrier()?;
    RANKS.store(space.ranks().into(), Ordering::Relaxed);
    RANK.store(space.rank().into(), Ordering::Relaxed);
    *process = Some(Process { space, heap, distribution, program });
    Ok(())
}

/// Leaves the space, as all ranks do. Its pages have no address any more.
pub(crate) fn leave() -> Result<(), CallError> {
    let mut process = PROCESS.try_lock().map_err(refused)?;
    let mut left = process.take().ok_or(CallError::NotJoined)?;
    RANK.store(-1, Ordering::Relaxed);
    RANKS.store(-1, Ordering::Relaxed);
    left.program.dismiss(&mut left.space)?;
    Ok(left.space.leave()?)
}

/// Returns the number of this rank, and of all; -1 without a space.
pub(crate) fn place() -> [i32; 2] {
    [RANK.load(Ordering::Relaxed), RANKS.load(Ordering::Relaxed)]
}

/// Returns an address of the library's own variables.
pub(crate) fn own_address() -> usize {
    (&raw const PROCESS).addr()
}

impl Process {
    /// Returns the address of a region of so many bytes. All ranks that ask for the name get the same.
    pub(crate) fn region(&mut self, name: &str, bytes: usize) -> Result<*mut u8, CallError> {
        let region = self.space.region::<u8>(name, bytes, Homes::FirstTouch)?;
        Ok(region.in_place(&self.space, ..)?.as_mut_ptr())
    }

    /// Meets all ranks, and takes the variables that they have distributed.
    pub(crate) fn barrier(&mut self) -> Result<(), CallError> {
        self.space.barrier()?;
        self.distribution.pass_barrier(&mut self.space, &self.heap)
    }

    /// Writes a checkpoint, which is a barrier.
    pub(crate) fn checkpoint(&mut self, step: u64) -> Result<(), CallError> {
        let written = self.space.checkpoint(step);
        // All ranks have met also if one could not write its part.
        let passed = self.distribution.pass_barrier(&mut self.space, &self.heap);
        written.map_err(CallError::from).and(passed)
    }

    /// Returns the index of a lock that no rank has been given.
    pub(crate) fn new_lock(&mut self) -> Result<u32, CallError> {
        let count = self.space.add(NEW_LOCKS, 1)?;
        let lock = u64::from(FIRST_NEW_LOCK) + count;
        if lock < INDEX_END.into() { Ok(lock as u32) } else { Err(CallError::Index("lock", u32::MAX)) }
    }
}

/// Indices below [`INDEX_END`] are those of the program.
pub(crate) fn check_index(what: &'static str, index: u32) -> Result<u32, CallError> {
    if index < INDEX_END { Ok(index) } else { Err(CallError::Index(what, index)) }
}
