//! Wakes a service thread.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptor by which other threads wake a service thread.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Creates a descriptor that is not readable.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // A full counter is as readable as a fresh one.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable. The caller checks for work afterwards.
    pub fn clear(&self) {
        // Nothing to read is fine too.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
