//! Id of the thread that last called through a channel.
//!
//! The service counts threads and not channels, so that a thread with two channels counts once.

use std::cell::Cell;

use crate::shm::layout::Layout;
use crate::sync::Ordering;
use crate::sys::{MappedWord, MemoryError, SharedMemory};

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Returns the id of the calling thread.
#[inline(always)]
fn this_thread() -> u32 {
    THREAD.with(|thread| {
        if thread.get() == 0 {
            thread.set(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        }
        thread.get()
    })
}

/// The word in a channel's control line that holds the thread id.
pub(crate) struct ThreadTag {
    word: MappedWord,
    /// Value that the word holds.
    recorded: u32,
}

impl ThreadTag {
    pub(crate) fn new(memory: &SharedMemory, layout: &Layout, channel: usize) -> Result<Self, MemoryError> {
        Ok(Self { word: memory.word_at(layout.thread_offset(channel))?, recorded: 0 })
    }

    /// Records the calling thread. The Release of the request that follows publishes it.
    #[inline(always)]
    pub(crate) fn record_caller(&mut self) {
        let thread = this_thread();
        if thread != self.recorded {
            self.recorded = thread;
            self.word.store(thread.into(), Ordering::Relaxed);
        }
    }
}
