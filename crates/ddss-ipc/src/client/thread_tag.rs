//! Which thread calls by a lane, for the service to see: it counts threads and not lanes, so that one that calls by two of them
//! is no crowd.

use std::cell::Cell;

use crate::shm::layout::Layout;
use crate::sync::Ordering;
use crate::sys::{MappedWord, MemoryError, SharedMemory};

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// The number of the calling thread.
#[inline(always)]
fn this_thread() -> u32 {
    THREAD.with(|thread| {
        if thread.get() == 0 {
            thread.set(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        }
        thread.get()
    })
}

/// The word of a lane that tells it.
pub(crate) struct ThreadTag {
    word: MappedWord,
    /// What it says.
    told: u32,
}

impl ThreadTag {
    pub(crate) fn new(memory: &SharedMemory, layout: &Layout, lane: usize) -> Result<Self, MemoryError> {
        Ok(Self { word: memory.word_at(layout.thread(lane))?, told: 0 })
    }

    /// The calling thread calls. The request behind it makes it seen.
    #[inline(always)]
    pub(crate) fn tell(&mut self) {
        let thread = this_thread();
        if thread != self.told {
            self.told = thread;
            self.word.store(thread.into(), Ordering::Relaxed);
        }
    }
}
