//! Undecided streams: calls that the kernel carries out and this module counts, the offer, and its acceptance.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::endpoint::{ACCEPTOR, Endpoint, PLAIN, UNDECIDED, each_used, is_close_on_exec};
use crate::forks::Beginning;
use crate::limits::{LOOK_CALLS, OFFER_BYTES, OFFER_CALLS};
use crate::reason::Reason;
use crate::rendezvous::{self, Offer};
use crate::signals::Uninterrupted;
use crate::sys::{Descriptor, Hidden, HiddenDescriptor, Link};

/// Set in the gate while a call decides.
const DECIDING: u32 = 1 << 31;

static OFFER_AFTER: AtomicU32 = AtomicU32::new(OFFER_CALLS);

/// Sets the number of calls with bytes after which an end offers shared memory. With 1 both ends decide as early as they can, for tests.
pub fn set_offer_after(calls: u32) {
    OFFER_AFTER.store(calls.max(1), Ordering::Relaxed);
}

/// Kind of a call that the kernel carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Native {
    /// Takes bytes.
    Read,
    /// Leaves the bytes where they are, or moves none.
    Look,
    /// Gives bytes.
    Write,
}

/// Result of a call on an undecided stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Still undecided.
    None,
    /// Plain TCP from now on.
    Plain,
    /// The library carries out the calls from now on.
    Shared,
}

impl Endpoint {
    /// Carries out one call of the kernel if the stream is undecided. `None`: it is not.
    ///
    /// The result of `call` is a byte count, or negative with the thread's `errno` set, which then stays as it is.
    pub fn native(&self, socket: Descriptor, kind: Native, call: impl FnOnce() -> isize) -> Option<(isize, Decision)> {
        let shared = self.shared();
        if !self.pass_gate() {
            return None;
        }
        let result = call();
        let mut decision = Decision::None;
        if result > 0 && kind != Native::Look {
            let counter = if kind == Native::Read { &shared.tcp_read } else { &shared.tcp_written };
            let before = counter.fetch_add(result as u64, Ordering::Relaxed);
            let calls = shared.calls.fetch_add(1, Ordering::Relaxed) + 1;
            let is_large = before / OFFER_BYTES != (before + result as u64) / OFFER_BYTES;
            let after = OFFER_AFTER.load(Ordering::Relaxed);
            let is_due = match shared.side.load(Ordering::Relaxed) {
                ACCEPTOR => calls >= after || is_large,
                _ => kind == Native::Read || is_large || after == 1,
            };
            if is_due {
                // A handler of this thread would wait for the decision for ever.
                let _uninterrupted = Uninterrupted::begin();
                if shared.gate.compare_exchange(1, DECIDING | 1, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    decision = self.decide(socket, kind);
                    shared.gate.fetch_and(!DECIDING, Ordering::Release);
                }
            }
        }
        shared.gate.fetch_sub(1, Ordering::Release);
        Some((result, decision))
    }

    /// Counts a call on an undecided stream. False: the stream is not undecided.
    fn pass_gate(&self) -> bool {
        if self.is_shared() {
            return false;
        }
        let shared = self.shared();
        loop {
            if self.is_entry_lost() || shared.state.load(Ordering::Acquire) != UNDECIDED {
                return false;
            }
            let is_open = shared.gate.fetch_add(1, Ordering::Acquire) & DECIDING == 0;
            if is_open && shared.state.load(Ordering::Acquire) == UNDECIDED {
                return true;
            }
            shared.gate.fetch_sub(1, Ordering::Release);
            std::thread::yield_now();
        }
    }

    /// Makes the stream plain TCP for good, before a call that only the kernel can carry out. False: it uses shared memory already.
    pub fn stay_on_tcp(&self, reason: Reason) -> bool {
        if self.pass_gate() {
            self.shared().reason.store(reason as u32, Ordering::Relaxed);
            self.shared().state.store(PLAIN, Ordering::Release);
            self.close_rendezvous();
            self.shared().gate.fetch_sub(1, Ordering::Release);
        }
        self.is_plain()
    }

    /// Keeps an undecided stream undecided until [`release`](Self::release). False: it is decided.
    pub fn hold(&self) -> bool {
        self.pass_gate()
    }

    /// Ends a successful [`hold`](Self::hold).
    pub fn release(&self) {
        self.shared().gate.fetch_sub(1, Ordering::Release);
    }

    /// Waits until no thread decides about a stream. Every stream must count the process that `fork` is about to create: then no decision
    /// begins, and the child never sees half of one.
    pub fn finish_decisions() {
        each_used(|endpoint| {
            while endpoint.shared().gate.load(Ordering::SeqCst) & DECIDING != 0 {
                std::thread::yield_now();
            }
        });
    }

    fn decide(&self, socket: Descriptor, kind: Native) -> Decision {
        if self.shared().processes.load(Ordering::SeqCst) != 1 {
            return Decision::None;
        }
        let Some(_beginning) = Beginning::new() else { return Decision::None };
        let decided = match self.shared().side.load(Ordering::Relaxed) {
            _ if !HiddenDescriptor::has_room(socket) => Err(Reason::NoResources),
            ACCEPTOR => self.make_offer(socket).map(|()| Some(Reason::Offered)).map_err(|_| Reason::NoResources),
            _ => self.look_for_offer(socket, kind),
        };
        let reason = match decided {
            Ok(None) => return Decision::None,
            Ok(Some(reason)) | Err(reason) => reason,
        };
        self.shared().reason.store(reason as u32, Ordering::Relaxed);
        // No other call is inside the gate, so that none can choose TCP at the same time.
        if decided.is_ok() {
            self.leave_tcp();
            return Decision::Shared;
        }
        self.shared().state.store(PLAIN, Ordering::Release);
        self.close_rendezvous();
        Decision::Plain
    }

    /// Gives back what only a stream in shared memory needs.
    fn close_rendezvous(&self) {
        for place in [Hidden::Control, Hidden::Listener] {
            self.local().close_hidden(place);
        }
    }

    fn make_offer(&self, socket: Descriptor) -> Result<(), Errno> {
        let control = self.local().hidden(Hidden::Control).ok_or(Errno::NOTCONN)?;
        let (link, own, memory) = Link::create()?;
        // The peer may use the memory as soon as the offer is sent: this end must be able to, before.
        let sent = self
            .enter(socket, link, own, &memory)
            .and_then(|()| self.ends(socket))
            .and_then(|ends| rendezvous::offer(control, &ends, &memory));
        if sent.is_err() {
            self.leave(link);
        }
        sent
    }

    /// Forgets memory that the peer never saw, or that this end cannot use.
    fn leave(&self, link: Link) {
        let local = self.local();
        for place in [Hidden::Own, Hidden::Memory, Hidden::Bell, Hidden::Control] {
            local.close_hidden(place);
        }
        let _ = local.take_link();
        link.unmap();
    }

    /// Looks for the acceptor's call, then for its offer.
    fn look_for_offer(&self, socket: Descriptor, kind: Native) -> Result<Option<Reason>, Reason> {
        let local = self.local();
        let ends = self.ends(socket).map_err(|_| Reason::NoLibrary)?;
        if let Some(listener) = local.hidden(Hidden::Listener) {
            let Some(control) = rendezvous::take_call(listener, &ends) else {
                return if kind == Native::Read { Err(Reason::NoLibrary) } else { Ok(None) };
            };
            local.close_hidden(Hidden::Listener);
            let control = HiddenDescriptor::hide(control, true).map_err(|_| Reason::NoResources)?;
            local.set_hidden(Hidden::Control, control);
        }
        let control = local.hidden(Hidden::Control).ok_or(Reason::NoLibrary)?;
        match rendezvous::take_offer(control, &ends) {
            Offer::NotYet if self.shared().calls.load(Ordering::Relaxed) < LOOK_CALLS => Ok(None),
            Offer::NotYet | Offer::Never => Err(Reason::NoOffer),
            Offer::Here(memory) => {
                let (link, own) = Link::attach(&memory).map_err(|_| Reason::NoOffer)?;
                if self.enter(socket, link, own, &memory).is_err() {
                    self.leave(link);
                    return Err(Reason::NoResources);
                }
                link.header().is_attached.store(1, Ordering::Release);
                Ok(Some(Reason::SharedMemory))
            }
        }
    }

    /// Records memory and descriptors of this end, here and for a later program image.
    fn enter(&self, socket: Descriptor, link: Link, own_page: OwnedFd, memory: &OwnedFd) -> Result<(), Errno> {
        let (shared, local, close_on_exec) = (self.shared(), self.local(), is_close_on_exec(socket));
        let own = link.own();
        own.side.store(self.side() as u32, Ordering::Relaxed);
        own.reader.tcp_read.store(shared.tcp_read.load(Ordering::Relaxed), Ordering::Relaxed);
        own.writer.tcp_written.store(shared.tcp_written.load(Ordering::Relaxed), Ordering::Relaxed);
        link.incoming().rest_for_data();
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        local.set_hidden(Hidden::Bell, HiddenDescriptor::hide(bell, close_on_exec)?);
        if !close_on_exec {
            // Only a later image needs the descriptors of memory that is mapped.
            local.set_hidden(Hidden::Own, HiddenDescriptor::hide(own_page, false)?);
            local.set_hidden(
                Hidden::Memory,
                HiddenDescriptor::hide(memory.try_clone().map_err(|_| Errno::MFILE)?, false)?,
            );
        }
        if let Some(control) = local.hidden(Hidden::Control) {
            control.set_close_on_exec(close_on_exec);
        }
        for (word, place) in own.hidden.iter().zip([Hidden::Own, Hidden::Memory, Hidden::Bell, Hidden::Control]) {
            word.store(local.hidden(place).map_or(0, |hidden| hidden.number() as u32 + 1), Ordering::Relaxed);
        }
        own.inode.store(rustix::fs::fstat(socket)?.st_ino, Ordering::Relaxed);
        own.processes.store(1, Ordering::Relaxed);
        local.set_link(link);
        Ok(())
    }
}
