//! The bells by which both ends wake each other.
//!
//! ```text
//!                 control socket                        bell of this end
//!  rung by        the peer                              waiters of this end, for each other
//!  held by        each end its own side of the pair     this end alone
//! ```
//!
//! A peer could make calls on a descriptor block that both ends hold: its flags belong to both. Each end has its own side of the control
//! socket, and its calls carry the flag that they do not wait.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::pollfd;
use rustix::io::Errno;

use super::endpoint::Endpoint;
use super::positions::Want;
use super::readiness::Latched;
use crate::sys::{self, Descriptor, Hidden, HiddenDescriptor, Link, Rings};

impl Endpoint {
    /// Returns the descriptors that ring for a waiter of this end: the control socket and the bell. A missing one is -1.
    #[must_use]
    pub fn bells(&self) -> [RawFd; 2] {
        let bells = [self.control(), self.local().hidden(Hidden::Bell).unwrap_or(HiddenDescriptor::none())];
        if bells.iter().any(|bell| *bell != HiddenDescriptor::none() && !sys::is_intact(*bell)) {
            self.lose_bells();
            return [-1; 2];
        }
        bells.map(HiddenDescriptor::number)
    }

    /// Returns true if this is the number of the control socket.
    #[must_use]
    pub fn is_control(&self, number: RawFd) -> bool {
        self.local().hidden(Hidden::Control).is_some_and(|control| control.number() == number)
    }

    /// Returns the control socket, or none after the peer has ended it: it would wake a waiter for ever.
    pub(crate) fn control(&self) -> HiddenDescriptor {
        let is_silent = self.local().latched.load(Ordering::Relaxed) & Latched::SILENT != 0;
        let control = self.local().hidden(Hidden::Control).filter(|_| !is_silent);
        control.unwrap_or(HiddenDescriptor::none())
    }

    /// Wakes the waiters of the peer. False: nothing rings there.
    pub(crate) fn ring_peer(&self) -> bool {
        match self.local().hidden(Hidden::Control).map(sys::ring_peer) {
            Some(Err(Errno::BADF)) => {
                self.lose_bells();
                false
            }
            Some(Err(_)) => false,
            _ => true,
        }
    }

    /// Wakes the waiters of the peer after this end moved bytes. Where nothing rings, but the peer has not closed its end, a program closed
    /// hidden descriptors past the library, and may sleep in a set that heard them: the end of TCP wakes it. The process of a peer whose
    /// TCP has ended is gone.
    pub(super) fn ring_peer_of(&self, socket: Descriptor, link: Link) {
        if !self.ring_peer() && self.peer_side(link).is_closed.load(Ordering::Acquire) == 0 && !has_ended(socket) {
            // A failure means that the connection has ended already.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    /// Returns true if the program closed the control socket past the library: the end of TCP is none of the stream.
    pub(super) fn has_lost_bells(&self) -> bool {
        self.local().hidden(Hidden::Control).is_some_and(sys::is_lost)
    }

    /// Ends a stream whose hidden descriptors the program closed past the library: neither end would be woken any more.
    pub fn lose_bells(&self) {
        self.latch(Latched::HUP | Latched::ERROR);
        self.record_failure(Errno::CONNRESET);
    }

    /// Rings the own bell, for waiters of this end that must look again.
    pub fn ring_own(&self) {
        if let Some(bell) = self.local().hidden(Hidden::Bell) {
            sys::ring_bell(bell);
        }
    }

    /// Takes the rings of the peer, for a set of `epoll` that looks at the stream now. Other waiters of this end may have been meant.
    /// Returns the control socket once the peer has ended it: the set must forget it.
    pub fn take_rings(&self) -> Option<RawFd> {
        let link = self.local().link()?;
        let local = self.local();
        let is_of_peer = self.drain_control();
        if is_of_peer {
            self.pass_bell_on(link, Want::Data, 0, 1, true);
            self.pass_bell_on(link, Want::Space, 0, 1, true);
        }
        if !is_of_peer || local.registrations.load(Ordering::Relaxed) <= 1 {
            local.asks_space.store(0, Ordering::Relaxed);
        }
        let is_ended = self.control() == HiddenDescriptor::none();
        self.local().hidden(Hidden::Control).filter(|_| is_ended).map(HiddenDescriptor::number)
    }

    /// Silences both bells for one set of `epoll` that will not look at the stream before one rings again. Call it before
    /// [`rest`](Self::rest).
    pub fn silence_set(&self) {
        let Some(link) = self.local().link() else { return };
        let is_of_peer = self.drain_control();
        self.drain_bell();
        self.pass_bell_on(link, Want::Data, 0, 1, is_of_peer);
        self.pass_bell_on(link, Want::Space, 0, 1, is_of_peer);
    }

    /// Silences both bells, for a task of a stream that has no other waiters. Call it before [`rest`](Self::rest). Returns true if a bell
    /// had rung: the other task has to look again.
    pub fn silence(&self) -> bool {
        self.silence_beside([0, 0])
    }

    /// Silences both bells for a thread that counts itself so often for bytes and for space.
    pub(super) fn silence_beside(&self, [bytes, space]: [u32; 2]) -> bool {
        let Some(link) = self.local().link() else { return false };
        let is_of_peer = self.drain_control();
        let is_of_own = !self.owes_set() && self.drain_bell();
        // Threads that sleep in a call of their own may have been meant.
        self.pass_bell_on(link, Want::Data, bytes, 0, is_of_peer);
        self.pass_bell_on(link, Want::Space, space, 0, is_of_peer);
        is_of_peer || is_of_own
    }

    /// Silences both bells for a thread that sleeps in a call for `want`. A ring for another waiter is passed on.
    pub(super) fn silence_for(&self, link: Link, want: Want) {
        let is_of_peer = self.drain_control();
        let owes_set = self.owes_set();
        if !owes_set {
            self.drain_bell();
        } else if is_of_peer {
            self.ring_own();
        }
        self.pass_bell_on(link, want.other(), 0, 0, false);
    }

    /// Returns true while a set of `epoll` has yet to take a bell for the space that it asked for, or that TCP has now. Until then no thread may silence the
    /// bell of this end: one that sleeps leaves it out, and looks again after [`LOOK_BESIDE_SET`](crate::limits::LOOK_BESIDE_SET).
    #[must_use]
    pub fn owes_set(&self) -> bool {
        let local = self.local();
        let asks = local.registrations.load(Ordering::Relaxed) > 0 && local.asks_space.load(Ordering::Relaxed) != 0;
        asks && local.link().is_some_and(|link| self.has(link, Want::Space) || self.writes_to_tcp())
    }

    fn drain_bell(&self) -> bool {
        self.local().hidden(Hidden::Bell).is_some_and(sys::drain_bell)
    }

    fn drain_control(&self) -> bool {
        let control = self.control();
        if control == HiddenDescriptor::none() {
            return false;
        }
        let taken = sys::take_rings(control);
        if taken == Rings::Ended {
            self.local().latched.fetch_or(Latched::SILENT, Ordering::Relaxed);
        }
        taken != Rings::None
    }

    /// Rings the own bell if more threads than `own` sleep in a call for what the stream has, or more sets than `sets` wait for it. Sets
    /// hear of space only by a ring of the peer: there nearly always is some, and waiters would wake each other for ever.
    fn pass_bell_on(&self, link: Link, want: Want, own: u32, sets: u32, is_of_peer: bool) {
        std::sync::atomic::fence(Ordering::SeqCst);
        let local = self.local();
        let are_sets_told = want == Want::Data || is_of_peer && local.asks_space.load(Ordering::Relaxed) != 0;
        let has_set = are_sets_told && local.registrations.load(Ordering::Relaxed) > sets;
        let has_waiter = link.own().blocked[want as usize].load(Ordering::SeqCst) > own;
        if (has_waiter || has_set) && self.has(link, want) {
            self.ring_own();
        }
    }
}

/// Returns true if the peer has ended TCP.
fn has_ended(socket: Descriptor) -> bool {
    let mut polled = [pollfd { fd: socket.0, events: libc::POLLRDHUP, revents: 0 }];
    sys::poll(&mut polled, Some(Duration::ZERO)).is_ok_and(|found| found > 0)
}
