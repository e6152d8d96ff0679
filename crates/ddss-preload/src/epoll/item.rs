//! One registration in a set.

use std::os::fd::RawFd;

use ddss_stream::{Endpoint, Ready};

use crate::sys::kernel::kernel_control;

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
/// Urgent data, which the kernel announces.
const PRIORITY: u32 = libc::EPOLLPRI as u32;
const END: u32 = libc::EPOLLRDHUP as u32;
/// Conditions that are always reported.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// A descriptor in a set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Item {
    pub(super) descriptor: RawFd,
    /// Entry of the stream and its generation, for a stream that may leave TCP.
    pub(super) stream: Option<(u32, u32)>,
    /// Number of the registration: an event of an earlier one is ignored.
    pub(super) version: u32,
    /// The program's events and data.
    pub(super) events: u32,
    pub(super) data: u64,
    /// True if the library keeps the interest, false if the kernel does.
    pub(super) is_served_by_library: bool,
    /// Events that the kernel has for the TCP socket.
    pub(super) kernel_events: u32,
    /// True while the set looks at the stream itself instead of waiting for its bell.
    pub(super) is_awake: bool,
    /// Sleeps since the stream was last ready.
    pub(super) idle_sleeps: u32,
    /// Conditions that the kernel reported since the last report to the program.
    pub(super) tcp_bits: u32,
    /// True if a new report is due although nothing arrived.
    pub(super) has_edge: bool,
    /// True after the program removed the registration, while the kernel still has it: programs that toggle their interest cost
    /// no system call.
    pub(super) is_parked: bool,
    /// True after the single report of `EPOLLONESHOT`.
    pub(super) is_spent: bool,
    /// Bytes of the stream at the last report.
    pub(super) arrived: u64,
    /// Writes without space at the last report of space.
    pub(super) shortages: u32,
}

impl Item {
    /// Returns the stream, unless its entry belongs to another stream by now.
    #[inline]
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        let (index, generation) = self.stream?;
        Endpoint::acquire(index).filter(|endpoint| endpoint.generation() == generation)
    }

    /// Gives the kernel the program's own data of a stream that stays on TCP: from then on its events pass as they are.
    pub(super) fn return_to_kernel(&mut self, set: RawFd) {
        // A change would arm a spent registration again.
        let is_plain = self.events & ONCE == 0 && self.endpoint().is_none_or(|endpoint| endpoint.is_plain());
        if is_plain && kernel_control(set, libc::EPOLL_CTL_MOD, self.descriptor, self.events, self.data).is_ok() {
            self.stream = None;
        }
    }

    /// Returns the events that the kernel must have for the TCP socket.
    pub(super) fn wanted_kernel_events(&self, endpoint: &Endpoint) -> u32 {
        if endpoint.is_off_tcp() {
            return IN | END | EDGE | self.events & PRIORITY;
        }
        if self.is_spent || self.is_parked {
            return EDGE;
        }
        let out = if endpoint.writes_to_tcp() { self.events & OUT } else { 0 };
        // TCP tells the end of the connection also to programs that only want bytes.
        let end = if self.events & IN != 0 { END } else { 0 };
        self.events & (IN | END | PRIORITY | EDGE) | out | end
    }

    /// Returns the bits that are due.
    #[inline]
    fn due_bits(&self, ready: Ready) -> u32 {
        let bits = (ready.bits | self.tcp_bits) & (self.events | ALWAYS);
        if self.is_spent || self.is_parked || bits == 0 {
            return 0;
        }
        let has_space_again = ready.bits & OUT != 0 && ready.shortages != self.shortages;
        let is_edge = self.has_edge || self.tcp_bits != 0 || ready.arrived != self.arrived || has_space_again;
        if self.events & EDGE != 0 && !is_edge { 0 } else { bits }
    }

    /// Returns true if a report is due.
    #[inline]
    pub(super) fn is_due(&self, ready: Ready) -> bool {
        self.due_bits(ready) != 0
    }

    /// Returns the bits to report now, and records the report.
    #[inline]
    pub(super) fn report(&mut self, ready: Ready) -> u32 {
        let bits = self.due_bits(ready);
        if bits != 0 {
            self.arrived = ready.arrived;
            self.has_edge = false;
            self.tcp_bits = 0;
            if ready.bits & OUT != 0 {
                self.shortages = ready.shortages;
            }
            self.is_spent = self.events & ONCE != 0;
            self.idle_sleeps = 0;
        }
        bits
    }

    /// Returns true if the set's thread must be woken when the peer frees space.
    pub(super) fn wants_space(&self, ready: Ready) -> bool {
        self.events & OUT != 0 && ready.bits & OUT == 0 && !self.is_parked
    }
}
