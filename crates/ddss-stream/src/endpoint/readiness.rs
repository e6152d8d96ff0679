//! Readiness of a shared stream, for `epoll`, `poll` and `select`.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use super::endpoint::Endpoint;
use super::idle::note_shortage;
use crate::limits::RING_BYTES;
use crate::sys::{self, Descriptor, Link};

/// Conditions of the TCP socket that never end, with the values of `epoll`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latched;

impl Latched {
    /// Reading ends: the peer has shut its side.
    pub const END: u32 = libc::EPOLLRDHUP as u32;
    /// Both directions ended.
    pub const HUP: u32 = libc::EPOLLHUP as u32;
    /// The socket has failed.
    pub const ERROR: u32 = libc::EPOLLERR as u32;
    /// The peer is gone: writing fails.
    pub(crate) const DEAD: u32 = 1 << 31;
    /// The peer rings no more.
    pub(crate) const SILENT: u32 = 1 << 30;
}

/// Readiness of a stream, with the values of `epoll`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// `EPOLLIN`, `EPOLLOUT`, `EPOLLRDHUP`, `EPOLLHUP`, `EPOLLERR`.
    pub bits: u32,
    /// Bytes that arrived so far; a change is an edge.
    pub arrived: u64,
    /// Number of writes that found too little space; space after a new one is an edge.
    pub shortages: u32,
}

/// Count of a thread that sleeps in a call of its own. It is taken back also where the thread is cancelled.
#[must_use = "the thread is counted no longer than this lives"]
#[derive(Debug)]
pub struct Blocked<'a> {
    endpoint: &'a Endpoint,
    /// For bytes, and for space.
    wants: [bool; 2],
}

impl Blocked<'_> {
    fn each(&self, act: impl Fn(&AtomicU32)) {
        if let Some(link) = self.endpoint.local().link() {
            link.own().blocked.iter().zip(self.wants).filter(|(_, wants)| *wants).for_each(|(count, _)| act(count));
        }
    }

    /// Silences both bells for this thread. Call it before [`Endpoint::rest`].
    pub fn silence(&self) {
        self.endpoint.silence_beside(self.wants.map(u32::from));
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.each(|count| _ = count.fetch_sub(1, Ordering::SeqCst));
    }
}

impl Endpoint {
    /// Returns what the library knows. Before both directions use the ring, TCP may know more.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> Ready {
        let local = self.local();
        let latched = local.latched.load(Ordering::Relaxed);
        // The count is read before the space: of a write in between, the next look finds the edge.
        let shortages = local.shortages.load(Ordering::Acquire);
        let mut ready = Ready { bits: latched & !(Latched::DEAD | Latched::SILENT), arrived: 0, shortages };
        if latched & Latched::END != 0 || local.error.load(Ordering::Relaxed) != 0 {
            ready.bits |= libc::EPOLLIN as u32;
        }
        let Some(link) = local.link() else { return ready };
        if let Ok(span) = self.filled(link) {
            ready.arrived = span.position.wrapping_add(span.bytes as u64);
        }
        if self.has_ring_data(link) && self.meets_low_water(link) {
            ready.bits |= libc::EPOLLIN as u32;
        }
        let is_gone = latched & Latched::DEAD != 0 || latched & Latched::SILENT != 0 && Self::is_attached(link);
        if self.has_ring_space(link) || is_gone {
            ready.bits |= libc::EPOLLOUT as u32;
        }
        ready
    }

    /// Records conditions that the kernel reported about the TCP socket.
    pub fn latch(&self, bits: u32) {
        self.local().latched.fetch_or(bits & (Latched::END | Latched::HUP | Latched::ERROR), Ordering::Relaxed);
    }

    pub(crate) fn mark_dead(&self) {
        self.local().latched.fetch_or(Latched::DEAD, Ordering::Relaxed);
    }

    /// Keeps a failure of the connection for the next call.
    pub fn record_failure(&self, error: Errno) {
        self.latch(Latched::END);
        self.mark_dead();
        self.local().error.store(error.raw_os_error(), Ordering::Relaxed);
    }

    /// Announces that a waiter sleeps. It must look at [`ready`](Self::ready) once more before it does.
    pub fn rest(&self, wants_space: bool) {
        let Some(link) = self.local().link() else { return };
        link.incoming().rest_for_data();
        if wants_space && !self.writes_to_tcp() {
            self.ask_for_space(link);
        }
    }

    /// Lets the reader ring once there is space, and lets threads of this process look whether the reader has stopped.
    fn ask_for_space(&self, link: Link) {
        self.local().asks_space.store(1, Ordering::Relaxed);
        link.outgoing().rest_for_space();
        note_shortage();
    }

    /// Tells the sets of `epoll` that a write found too little space. The reader rings when there is some: a set may have left the
    /// stream to its bell, and its thread may sleep while another one writes.
    pub(crate) fn announce_shortage(&self) {
        let local = self.local();
        local.shortages.fetch_add(1, Ordering::Release);
        if local.registrations.load(Ordering::Relaxed) > 0
            && let Some(link) = local.link()
            && !self.writes_to_tcp()
        {
            self.ask_for_space(link);
        }
    }

    /// Counts a set of `epoll` that keeps an interest in the stream.
    pub fn register(&self) {
        self.local().registrations.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the count of [`register`](Self::register) back.
    pub fn unregister(&self) {
        self.local().registrations.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a thread that is about to sleep in a call of its own, for bytes, for space, or for both.
    pub fn block(&self, for_bytes: bool, for_space: bool) -> Blocked<'_> {
        let blocked = Blocked { endpoint: self, wants: [for_bytes, for_space] };
        blocked.each(|count| _ = count.fetch_add(1, Ordering::SeqCst));
        blocked
    }

    /// Withdraws the announcement of a waiter that is awake, unless it may be that of another waiter as well.
    #[inline]
    pub fn wake(&self) {
        let Some(link) = self.local().link() else { return };
        let own = link.own();
        let is_alone = own.blocked.iter().all(|count| count.load(Ordering::Relaxed) == 0)
            && own.processes.load(Ordering::Relaxed) <= 1
            && self.local().registrations.load(Ordering::Relaxed) <= 1;
        if is_alone {
            link.incoming().wake_reader();
        }
    }

    /// Returns true if the ring has as many bytes as the program's waits ask for, or if TCP has the rest.
    #[inline]
    fn meets_low_water(&self, link: Link) -> bool {
        let low_water = self.local().low_water.load(Ordering::Relaxed) as usize;
        low_water == 0
            || self.filled(link).map_or(true, |span| span.bytes > low_water)
            || link.incoming().end(link.own().reader.phase.load(Ordering::Relaxed)).is_some()
    }

    /// Takes the socket's low water mark over, as the kernel does for at most half of its buffer. The caller then gives the socket the lowest
    /// one: the kernel sees only those bytes that come by TCP.
    pub fn follow_low_water(&self, socket: Descriptor) {
        let bytes = sys::low_water(socket).clamp(1, RING_BYTES / 2);
        self.local().low_water.store(bytes as u32 - 1, Ordering::Relaxed);
    }

    /// Returns the low water mark, if it is not the lowest.
    #[must_use]
    pub fn low_water(&self) -> Option<usize> {
        let bytes = self.local().low_water.load(Ordering::Relaxed) as usize;
        (bytes > 0).then_some(bytes + 1)
    }

    /// Returns true if a call for that many bytes can only be served by the ring, which is empty, as far as this end knows.
    pub(crate) fn awaits_ring(&self, bytes: usize) -> bool {
        let local = self.local();
        bytes > 0
            && local.latched.load(Ordering::Relaxed) & Latched::END == 0
            && local.error.load(Ordering::Relaxed) == 0
            && local.link().is_some_and(|link| self.reads_ring(link) && !self.has_ring_data(link))
    }

    /// Returns the number of bytes that a read can take from the ring now.
    #[must_use]
    pub fn unread(&self, socket: Descriptor) -> Option<usize> {
        let link = self.local().link().filter(|_| self.is_shared())?;
        let in_ring = self.filled(link).map_or(0, |span| span.bytes);
        let on_tcp = rustix::io::ioctl_fionread(socket).unwrap_or(0) as usize;
        Some(in_ring + on_tcp)
    }
}
