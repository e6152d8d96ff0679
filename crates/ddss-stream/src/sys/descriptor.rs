//! Descriptors by number: those of the program, and those that the library hides from it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// Descriptors below this number can be hidden.
const HIDDEN_MAX: usize = 65_536;
/// Highest number from which hidden descriptors are placed.
const FIRST_MAX: u64 = 8192;

static HIDDEN: [AtomicU64; HIDDEN_MAX / 64] = [const { AtomicU64::new(0) }; HIDDEN_MAX / 64];

/// Returns true if the library itself uses this descriptor: the program must not close or replace it.
#[inline]
pub fn is_hidden(number: RawFd) -> bool {
    let index = number as usize;
    index < HIDDEN_MAX && HIDDEN[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
}

fn set_hidden(number: RawFd, is_hidden: bool) {
    let (index, bit) = (number as usize, 1 << (number as usize % 64));
    if index < HIDDEN_MAX {
        if is_hidden {
            HIDDEN[index / 64].fetch_or(bit, Ordering::Relaxed);
        } else {
            HIDDEN[index / 64].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// A descriptor of the program, by number. The program owns it and may close it at any time; the kernel then answers `EBADF`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor(pub RawFd);

impl AsFd for Descriptor {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is only handed to system calls, which check it; a wrong number is an error of the call.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A descriptor that belongs to the library, stored in a table without a destructor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HiddenDescriptor(RawFd);

impl HiddenDescriptor {
    /// Moves a descriptor to a high number, where neither `select` nor a program that counts descriptors meets it.
    pub fn hide(owned: OwnedFd, close_on_exec: bool) -> Result<Self, Errno> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(FIRST_MAX * 2);
        let first = (limit / 2).min(FIRST_MAX) as RawFd;
        let moved = rustix::io::fcntl_dupfd_cloexec(&owned, first)?;
        if moved.as_raw_fd() as usize >= HIDDEN_MAX {
            return Err(Errno::MFILE);
        }
        let number = std::os::fd::IntoRawFd::into_raw_fd(moved);
        set_hidden(number, true);
        let hidden = Self(number);
        hidden.set_close_on_exec(close_on_exec);
        Ok(hidden)
    }

    /// Takes over a descriptor that an earlier program image left at this number.
    pub(crate) fn adopt(number: RawFd) -> Self {
        set_hidden(number, true);
        Self(number)
    }

    /// Returns the descriptor that the table of streams stored as a number.
    #[inline]
    pub(super) fn known(number: RawFd) -> Self {
        Self(number)
    }

    /// Returns the number -1, which `poll` skips.
    pub(crate) fn none() -> Self {
        Self(-1)
    }

    /// Returns the number.
    pub fn number(self) -> RawFd {
        self.0
    }

    /// Copies the program's choice for its own descriptor.
    pub fn set_close_on_exec(self, is_set: bool) {
        let flags = if is_set { rustix::io::FdFlags::CLOEXEC } else { rustix::io::FdFlags::empty() };
        // A failure means that the descriptor is gone, and then nothing is inherited.
        let _ = rustix::io::fcntl_setfd(Descriptor(self.0), flags);
    }

    /// Closes the descriptor. Safe in signal handlers: one system call, of libc: programs with a `close` of their own are slower.
    pub(crate) fn close(self) {
        set_hidden(self.0, false);
        // SAFETY: `hide` and `adopt` gave this number to the library alone, and the table entry is taken before this call.
        drop(unsafe { OwnedFd::from_raw_fd(self.0) });
    }
}

impl AsFd for HiddenDescriptor {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: as for `Descriptor`; the number stays open until `close`.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Rings a bell: a sleeping waiter returns from its system call.
pub(crate) fn ring_bell(bell: HiddenDescriptor) {
    // A full counter means that the bell has rung already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Silences a bell. Returns true if it had rung.
pub(crate) fn drain_bell(bell: HiddenDescriptor) -> bool {
    // An empty counter means that the bell did not ring.
    rustix::io::read(bell, &mut [0u8; 8]).is_ok()
}
