//! The poll loop: send, receive from active connections, wait on epoll, check deadlines.

use std::mem::MaybeUninit;
use std::time::Instant;

use rustix::event::{Timespec, epoll};

use super::Iwarp;
use crate::events::{CloseReason, Events, WorkError};
use crate::iwarp::connection::Context;
use crate::iwarp::peer::{Link, Peer, Received};
use crate::iwarp::socket;
use crate::limits::EVENTS_BUDGET;

/// Sockets that one epoll wait reports.
const READY_MAX: usize = 64;
/// Connections that one epoll wait accepts from a listener, and half-open or lingering connections that it serves.
/// Each costs some ten microseconds, and any host that reaches the port can make many; clients and peers wait for one
/// of them at most.
pub(super) const HALF_OPEN_PER_WAIT: usize = 1;
/// Marks a listener in epoll data.
pub(super) const LISTENER: u64 = 1 << 63;
/// Marks the acceptor's eventfd in epoll data.
pub(super) const ACCEPTOR: u64 = 1 << 62;
/// Connections that every poll receives from without epoll.
const HOT_MAX: usize = 4;
/// Polls without a byte after which a hot connection is left to epoll.
const QUIET_POLLS_MAX: u32 = 4096;
/// Polls between two epoll waits, while hot connections are few.
const POLLS_PER_WAIT: u32 = 64;
/// Polls between two epoll waits without hot connections. An epoll wait is a system call of some 250 ns, more than
/// everything else that the thread does for a call of a local client. The first message after a silence therefore waits
/// some microseconds longer (a few tens if local clients keep the thread busy).
const POLLS_PER_WAIT_QUIET: u32 = 256;
/// Polls between two epoll waits without any peer, when only a new connection can arrive.
const POLLS_PER_WAIT_NO_PEER: u32 = 16 << 10;
/// Polls between two epoll waits while connection requests may be pending, so that none of them times out.
const POLLS_PER_WAIT_BACKLOG: u32 = 16;
/// Bytes moved after which the next poll waits on epoll in any case, so that quiet connections do not wait long behind
/// busy ones.
const BYTES_PER_WAIT: usize = 128 << 10;
/// Minimum that one packet counts towards that limit.
const PACKET_BYTES: usize = 4 << 10;
/// Sleeps in a row without a byte between them after which a connection frees the buffers of its last burst. A caller that waits for each
/// answer sleeps between two bursts: memory that was freed there would be faulted in again, some 100 pages for a put of 1 MiB.
const QUIET_SLEEPS_MAX: u8 = 16;
/// Receives with data since the last sleep after which epoll stops watching a hot connection. Being watched costs each
/// packet some 0.2 us.
const BUSY_RECEIVES_MIN: u32 = 64;
/// Polls between two readings of the clock.
const POLLS_PER_CLOCK: u32 = 64;

impl Iwarp {
    pub(super) fn poll_once(&mut self, events: &mut Events) {
        self.polls = self.polls.wrapping_add(1);
        self.has_moved_bytes = false;
        for (peer, tag) in self.abandoned.drain(..) {
            events.push_done(peer, tag, Err(WorkError::Abandoned));
        }
        self.close_requested(events);
        self.flush_dirty(events);
        self.receive_hot(events);
        let every = match (self.hot.is_empty(), self.peers.len()) {
            _ if self.has_connect_backlog => POLLS_PER_WAIT_BACKLOG,
            (false, _) => POLLS_PER_WAIT,
            (true, 0) => POLLS_PER_WAIT_NO_PEER,
            (true, _) => POLLS_PER_WAIT_QUIET,
        };
        let is_wait_due = self.polls.is_multiple_of(every);
        if self.hot.len() >= HOT_MAX || is_wait_due || self.bytes_moved >= BYTES_PER_WAIT || self.force_wait {
            self.bytes_moved = 0;
            self.wait_epoll(events);
        }
        self.flush_dirty(events);
        let timed = !self.timed.is_empty() || self.listen_resume_at.is_some();
        if timed && (self.force_wait || self.polls.is_multiple_of(POLLS_PER_CLOCK)) {
            self.expire_deadlines(Instant::now(), events);
        }
        self.force_wait = false;
    }

    /// Returns true if there is nothing to do before a socket or a deadline is ready.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        for index in 0..self.hot.len() {
            if let Some(mut peer) = self.peers.take(self.hot[index]) {
                peer.quiet_sleeps = if peer.busy_receives == 0 { peer.quiet_sleeps.saturating_add(1) } else { 0 };
                if peer.quiet_sleeps == QUIET_SLEEPS_MAX {
                    peer.connection.shrink_buffers();
                }
                peer.busy_receives = 0;
                if peer.watched.is_empty() {
                    self.watch(&mut peer, epoll::EventFlags::IN);
                }
                self.peers.put_back(peer);
            }
        }
        if !self.closing.is_empty() || !self.abandoned.is_empty() {
            return false;
        }
        while let Some(slot) = self.dirty.pop() {
            let Some(mut peer) = self.peers.take(slot) else { continue };
            if peer.blocked {
                self.watch(&mut peer, epoll::EventFlags::IN | epoll::EventFlags::OUT);
                peer.dirty = false;
                self.peers.put_back(peer);
            } else {
                self.peers.put_back(peer);
                self.dirty.push(slot);
                return false;
            }
        }
        true
    }

    fn close_requested(&mut self, events: &mut Events) {
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
            let before = peer.connection.send_queue().consumed();
            let mut cx = Context { memory: &mut self.memory, events };
            peer.flush(&mut cx);
            let sent = peer.connection.send_queue().consumed() - before;
            let progress = sent > 0;
            self.has_moved_bytes |= progress;
            self.bytes_moved = self.bytes_moved.saturating_add(sent as usize);
            if peer.blocked && (!was_blocked || progress) && peer.link == Link::Up {
                self.set_deadline(&mut peer, Some(Instant::now() + self.config.stall_timeout));
            } else if was_blocked && !peer.blocked && peer.link == Link::Up {
                self.set_deadline(&mut peer, None);
            }
            self.settle(peer);
        }
    }

    /// Receives from the hot connections.
    fn receive_hot(&mut self, events: &mut Events) {
        let mut index = 0;
        while index < self.hot.len() {
            let slot = self.hot[index];
            let Some(mut peer) = self.peers.take(slot) else {
                self.hot.swap_remove(index);
                continue;
            };
            let mut cx = Context { memory: &mut self.memory, events };
            if peer.receive(&mut self.scratch, &mut cx) == Received::Nothing {
                peer.quiet_polls += 1;
            } else {
                self.has_moved_bytes = true;
                peer.quiet_polls = 0;
                peer.busy_receives = peer.busy_receives.saturating_add(1);
                self.bytes_moved = self.bytes_moved.saturating_add(peer.received.max(PACKET_BYTES));
            }
            if peer.busy_receives == BUSY_RECEIVES_MIN && peer.link == Link::Up {
                self.watch(&mut peer, epoll::EventFlags::empty());
                if peer.watched.is_empty() {
                    // Without it the connection is only slower.
                    let _ = peer.set_low_water_mark(true);
                }
            }
            if peer.quiet_polls > QUIET_POLLS_MAX {
                peer.hot = false;
                peer.busy_receives = 0;
                peer.connection.shrink_buffers();
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
    fn wait_epoll(&mut self, events: &mut Events) {
        let mut room = [MaybeUninit::uninit(); READY_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted wait reports nothing; the next poll waits again.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut room, Some(&now)) else { return };
        self.has_connect_backlog = false;
        let mut half_open_served = 0;
        for event in ready {
            let data = event.data.u64();
            if data & LISTENER != 0 {
                self.accept_connections((data & !LISTENER) as usize, events);
                continue;
            }
            if data & ACCEPTOR != 0 {
                self.adopt_admitted(events);
                continue;
            }
            let Some(mut peer) = self.peers.take(data as u32) else { continue };
            if peer.half_open || peer.link == Link::Lingering {
                half_open_served += 1;
                if half_open_served > HALF_OPEN_PER_WAIT {
                    // The socket stays ready, behind those that were served.
                    self.has_connect_backlog = true;
                    self.peers.put_back(peer);
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
                Err(error) => peer.abort(CloseReason::Unreachable(error.kind()), &mut cx),
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
        self.has_moved_bytes |= received != Received::Nothing;
        // A half-open connection takes no hot slot from a connected one.
        let at_work = received != Received::Nothing && peer.connection.is_connected();
        if at_work && !peer.hot && self.hot.len() < HOT_MAX && peer.link == Link::Up {
            peer.hot = true;
            peer.quiet_polls = 0;
            self.hot.push(peer.id().index);
        }
    }

    fn expire_deadlines(&mut self, now: Instant, events: &mut Events) {
        if self.listen_resume_at.is_some_and(|again| again <= now) {
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
            peer.abort(CloseReason::TimedOut, &mut cx);
            self.settle(peer);
            // Settling the peer may have reordered the list.
            index = 0;
        }
    }
}
