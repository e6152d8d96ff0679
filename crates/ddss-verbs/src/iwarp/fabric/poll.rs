//! The poll loop: send, receive from active connections, wait on epoll, check deadlines.

use std::mem::MaybeUninit;
use std::time::Instant;

use rustix::event::{Timespec, epoll};
use tracing::debug;

use super::Iwarp;
use crate::events::{CloseReason, Events, WorkError};
use crate::iwarp::connection::{Context, Stage};
use crate::iwarp::peer::{Link, Peer, Received};
use crate::iwarp::socket;
use crate::limits::{EVENTS_BUDGET, LINGERING_MAX};

/// Sockets that one epoll wait reports.
const READY_MAX: usize = 64;
/// Connections that one epoll wait accepts from a listener, and half-open or lingering connections that it serves.
/// Each costs some ten microseconds, and any host that reaches the port can make many; clients and peers wait for one
/// of them at most.
pub(super) const STRANGERS_PER_LOOK: usize = 1;
/// Marks a listener in epoll data.
pub(super) const LISTENER: u64 = 1 << 63;
/// Marks the acceptor's eventfd in epoll data.
pub(super) const PORCH: u64 = 1 << 62;
/// Connections that every poll receives from without epoll.
const HOT_MAX: usize = 4;
/// Polls without a byte after which a hot connection is left to epoll.
const QUIET_MAX: u32 = 4096;
/// Polls between two epoll waits, while hot connections are few.
const LOOK_EVERY: u32 = 64;
/// The same without hot connections. An epoll wait is a system call of some 250 ns, more than everything else that the
/// thread does for a call of a local client. The first message after a silence therefore waits some microseconds
/// longer (a few tens if local clients keep the thread busy).
const LOOK_EVERY_SILENT: u32 = 256;
/// The same without any peer: only a new connection can arrive.
const LOOK_EVERY_ALONE: u32 = 16 << 10;
/// The same while connection requests may wait: often enough that none of them times out.
const LOOK_EVERY_CROWDED: u32 = 16;
/// Bytes moved after which the next poll waits on epoll in any case, so that quiet connections do not wait long behind
/// busy ones.
const LOOK_BYTES: usize = 128 << 10;
/// Minimum that one packet counts towards that limit.
const PACKET_BYTES: usize = 4 << 10;
/// Receives with data since the last sleep after which epoll stops watching a hot connection. Being watched costs each
/// packet some 0.2 us.
const BUSY_MIN: u32 = 64;
/// Polls between two readings of the clock.
const CLOCK_EVERY: u32 = 64;

impl Iwarp {
    pub(super) fn drive(&mut self, events: &mut Events) {
        self.polls = self.polls.wrapping_add(1);
        self.has_moved = false;
        for (peer, tag) in self.early.drain(..) {
            events.done(peer, tag, Err(WorkError::Abandoned));
        }
        self.close_asked(events);
        self.flush_dirty(events);
        self.serve_hot(events);
        let every = match (self.hot.is_empty(), self.peers.len()) {
            _ if self.crowded => LOOK_EVERY_CROWDED,
            (false, _) => LOOK_EVERY,
            (true, 0) => LOOK_EVERY_ALONE,
            (true, _) => LOOK_EVERY_SILENT,
        };
        let quiet_long = self.polls.is_multiple_of(every);
        if self.hot.len() >= HOT_MAX || quiet_long || self.moved >= LOOK_BYTES || self.look {
            self.moved = 0;
            self.serve_ready(events);
        }
        self.flush_dirty(events);
        let timed = !self.timed.is_empty() || self.listen_again.is_some();
        if timed && (self.look || self.polls.is_multiple_of(CLOCK_EVERY)) {
            self.deadlines(Instant::now(), events);
        }
        self.look = false;
    }

    /// Returns true if there is nothing to do before a socket or a deadline is ready.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        for index in 0..self.hot.len() {
            if let Some(mut peer) = self.peers.take(self.hot[index]) {
                if peer.busy == 0 {
                    // Nothing arrived since the last sleep either.
                    peer.connection.relax();
                }
                peer.busy = 0;
                if peer.watched.is_empty() {
                    self.watch(&mut peer, epoll::EventFlags::IN);
                }
                self.peers.put(peer);
            }
        }
        if !self.closing.is_empty() || !self.early.is_empty() {
            return false;
        }
        while let Some(slot) = self.dirty.pop() {
            let Some(mut peer) = self.peers.take(slot) else { continue };
            if peer.blocked {
                self.watch(&mut peer, epoll::EventFlags::IN | epoll::EventFlags::OUT);
                peer.dirty = false;
                self.peers.put(peer);
            } else {
                self.peers.put(peer);
                self.dirty.push(slot);
                return false;
            }
        }
        true
    }

    fn close_asked(&mut self, events: &mut Events) {
        while let Some(id) = self.closing.pop() {
            let Some(mut peer) = self.peers.take(id.index) else { continue };
            if peer.id() == id {
                let mut cx = Context { memory: &mut self.memory, events };
                let flush = peer.link == Link::Up;
                peer.connection.end(CloseReason::Local, &[], flush, None, &mut cx);
            }
            self.settle(peer);
        }
    }

    fn flush_dirty(&mut self, events: &mut Events) {
        if self.dirty.is_empty() {
            return;
        }
        std::mem::swap(&mut self.dirty, &mut self.dirty_now);
        while let Some(slot) = self.dirty_now.pop() {
            let Some(mut peer) = self.peers.take(slot) else { continue };
            peer.dirty = false;
            let was_blocked = peer.blocked;
            let before = peer.connection.outbox().consumed();
            let mut cx = Context { memory: &mut self.memory, events };
            peer.flush(&mut cx);
            let sent = peer.connection.outbox().consumed() - before;
            let progress = sent > 0;
            self.has_moved |= progress;
            self.moved = self.moved.saturating_add(sent as usize);
            if peer.blocked && (!was_blocked || progress) && peer.link == Link::Up {
                self.set_deadline(&mut peer, Some(Instant::now() + self.config.stall_timeout));
            } else if was_blocked && !peer.blocked && peer.link == Link::Up {
                self.set_deadline(&mut peer, None);
            }
            self.settle(peer);
        }
    }

    /// Receives from the hot connections.
    fn serve_hot(&mut self, events: &mut Events) {
        let mut index = 0;
        while index < self.hot.len() {
            let slot = self.hot[index];
            let Some(mut peer) = self.peers.take(slot) else {
                self.hot.swap_remove(index);
                continue;
            };
            let mut cx = Context { memory: &mut self.memory, events };
            if peer.receive(&mut self.scratch, &mut cx) == Received::Nothing {
                peer.quiet += 1;
            } else {
                self.has_moved = true;
                peer.quiet = 0;
                peer.busy = peer.busy.saturating_add(1);
                self.moved = self.moved.saturating_add(peer.received.max(PACKET_BYTES));
            }
            if peer.busy == BUSY_MIN && peer.link == Link::Up {
                self.watch(&mut peer, epoll::EventFlags::empty());
                if peer.watched.is_empty() {
                    // Without it the connection is only slower.
                    let _ = peer.acknowledge_early(true);
                }
            }
            if peer.quiet > QUIET_MAX {
                peer.hot = false;
                peer.busy = 0;
                peer.connection.relax();
                self.watch(&mut peer, epoll::EventFlags::IN);
                self.hot.swap_remove(index);
            } else {
                index += 1;
            }
            self.settle(peer);
            if events.len() >= EVENTS_BUDGET {
                return;
            }
        }
    }

    /// Serves the sockets that epoll reports.
    fn serve_ready(&mut self, events: &mut Events) {
        let mut room = [MaybeUninit::uninit(); READY_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted wait reports nothing; the next poll waits again.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut room, Some(&now)) else { return };
        self.crowded = false;
        let mut strangers = 0;
        for event in ready {
            let data = event.data.u64();
            if data & LISTENER != 0 {
                self.take_connections((data & !LISTENER) as usize, events);
                continue;
            }
            if data & PORCH != 0 {
                self.take_newcomer(events);
                continue;
            }
            let Some(mut peer) = self.peers.take(data as u32) else { continue };
            if peer.half_open || peer.link == Link::Lingering {
                strangers += 1;
                if strangers > STRANGERS_PER_LOOK {
                    // The socket stays ready, behind those that were served.
                    self.crowded = true;
                    self.peers.put(peer);
                    continue;
                }
            }
            self.serve(&mut peer, event.flags, events);
            self.settle(peer);
            if events.len() >= EVENTS_BUDGET {
                break;
            }
        }
    }

    fn serve(&mut self, peer: &mut Peer, flags: epoll::EventFlags, events: &mut Events) {
        let mut cx = Context { memory: &mut self.memory, events };
        if peer.link == Link::Connecting {
            match socket::connected(&peer.socket) {
                Ok(()) => {
                    peer.link = Link::Up;
                    self.mark_dirty(peer);
                }
                Err(error) => peer.lose(CloseReason::Unreachable(error.kind()), &mut cx),
            }
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) && peer.blocked {
            self.mark_dirty(peer);
        }
        if peer.hot {
            // This poll has served it already, but its end must not wait.
            if !flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                return;
            }
        }
        let mut cx = Context { memory: &mut self.memory, events };
        let received = peer.receive(&mut self.scratch, &mut cx);
        self.has_moved |= received != Received::Nothing;
        // A half-open connection takes no hot slot from a connected one.
        let at_work = received != Received::Nothing && peer.connection.is_connected();
        if at_work && !peer.hot && self.hot.len() < HOT_MAX && peer.link == Link::Up {
            peer.hot = true;
            peer.quiet = 0;
            self.hot.push(peer.id().index);
        }
    }

    /// Updates the lists after work on a peer, then puts the peer back or removes it.
    pub(super) fn settle(&mut self, mut peer: Box<Peer>) {
        if peer.half_open && peer.connection.stage() == Stage::Ended {
            peer.half_open = false;
            self.half_open -= 1;
        }
        if peer.should_linger() {
            if self.lingering >= LINGERING_MAX {
                peer.link = Link::Dead;
                peer.connection.discard(&mut self.memory);
            } else {
                self.lingering += 1;
                peer.lingers = true;
                peer.link = Link::Lingering;
                self.set_deadline(&mut peer, Some(Instant::now() + self.config.linger_timeout));
                self.mark_dirty(&mut peer);
            }
        }
        if peer.connection.stage() == Stage::Ended && peer.link == Link::Connecting {
            peer.link = Link::Dead;
        }
        if peer.link == Link::Dead {
            self.bury(peer);
            return;
        }
        if peer.connection.is_connected() && peer.link == Link::Up && !peer.blocked && peer.deadline.is_some() {
            self.set_deadline(&mut peer, None);
        }
        if !peer.connection.idle() && matches!(peer.link, Link::Up | Link::Lingering) {
            self.mark_dirty(&mut peer);
        } else if peer.watched.contains(epoll::EventFlags::OUT) && peer.link != Link::Connecting {
            self.watch(&mut peer, epoll::EventFlags::IN);
        }
        self.peers.put(peer);
    }

    fn bury(&mut self, peer: Box<Peer>) {
        let slot = peer.id().index;
        if peer.lingers {
            self.lingering -= 1;
        }
        self.hot.retain(|other| *other != slot);
        self.timed.retain(|other| *other != slot);
        self.dirty.retain(|other| *other != slot);
        self.dirty_now.retain(|other| *other != slot);
        self.peers.release(slot);
    }

    pub(super) fn mark_dirty(&mut self, peer: &mut Peer) {
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.push(peer.id().index);
        }
    }

    pub(super) fn set_deadline(&mut self, peer: &mut Peer, deadline: Option<Instant>) {
        let slot = peer.id().index;
        match (peer.deadline.is_some(), deadline.is_some()) {
            (false, true) => self.timed.push(slot),
            (true, false) => self.timed.retain(|other| *other != slot),
            _ => {}
        }
        peer.deadline = deadline;
    }

    /// Sets the epoll flags of a peer; empty flags remove it from epoll.
    pub(super) fn watch(&self, peer: &mut Peer, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(u64::from(peer.id().index));
        let changed = match (peer.watched.is_empty(), flags.is_empty()) {
            (true, true) => return,
            _ if peer.watched == flags => return,
            (true, false) => {
                if let Err(error) = peer.acknowledge_early(false) {
                    debug!(peer = %peer.id(), %error, "its first bytes may be noticed late");
                }
                epoll::add(&self.epoll, &peer.socket, data, flags)
            }
            (false, true) => epoll::delete(&self.epoll, &peer.socket),
            (false, false) => epoll::modify(&self.epoll, &peer.socket, data, flags),
        };
        match changed {
            Ok(()) => peer.watched = flags,
            Err(error) => debug!(peer = %peer.id(), %error, "cannot change what is watched"),
        }
    }

    fn deadlines(&mut self, now: Instant, events: &mut Events) {
        if self.listen_again.is_some_and(|again| again <= now) {
            self.resume_listening();
        }
        let mut index = 0;
        while index < self.timed.len() {
            let slot = self.timed[index];
            let due = self.peers.at(slot).and_then(|peer| peer.deadline).is_some_and(|deadline| deadline <= now);
            index += 1;
            if !due {
                continue;
            }
            let Some(mut peer) = self.peers.take(slot) else { continue };
            let mut cx = Context { memory: &mut self.memory, events };
            peer.lose(CloseReason::Late, &mut cx);
            self.settle(peer);
            // Settling the peer may have reordered the list.
            index = 0;
        }
    }
}
