//! One poll: what was posted goes out, what ended and arrived comes in, and now and then the clock, the connections and
//! the device are looked at.

use std::io;
use std::time::{Duration, Instant};

use super::fabric::Rdma;
use super::peer::{Peer, Stage};
use crate::events::{CloseReason, Events};
use crate::fabric::PeerId;
use crate::limits::EVENTS_BUDGET;
use crate::sys::rdma_core::AsyncNotice;

/// Polls between two looks at everything that is not a completion: each of those looks is a system call.
const POLLS_PER_LOOK: u32 = 64;
/// The same while something is under way, when somebody polls for its end and little else.
const POLLS_PER_LOOK_BUSY: u32 = 1024;
/// Connections that one look begins.
const CONNECTION_EVENTS_PER_LOOK: usize = 64;
/// A peer that broke the rules may take so long to read that it did.
const LEAVE: Duration = Duration::from_millis(200);

impl Rdma {
    pub(super) fn drive(&mut self, events: &mut Events) {
        let before = events.len();
        for id in std::mem::take(&mut self.closing) {
            self.lose(id, CloseReason::Local, events, Instant::now());
        }
        let (mut position, mut busy) = (0, false);
        while position < self.peers.len() && events.len() - before < EVENTS_BUDGET {
            let Some(peer) = self.peers.at(position) else { break };
            let id = peer.id;
            busy |= peer.stage == Stage::Up && peer.traffic.is_waiting();
            let over = match peer.stage {
                Stage::Up | Stage::Ending(_) => peer.drive(&mut self.scratch, events),
                _ => None,
            };
            if over.is_none() && peer.stage == Stage::Up {
                position += 1;
                continue;
            }
            if let Some(reason) = over {
                self.lose(id, reason, events, Instant::now());
            }
            // One that was removed has left its place to another.
            if self.peers.at(position).is_some_and(|peer| peer.id == id) && !self.settle(id, events) {
                position += 1;
            }
        }
        self.polls = self.polls.wrapping_add(1);
        let polls_per_look = if busy { POLLS_PER_LOOK_BUSY } else { POLLS_PER_LOOK };
        if self.look || self.polls.is_multiple_of(polls_per_look) {
            self.look = false;
            self.look_around(events);
        }
    }

    /// Ends a peer of which nothing is under way any more. Says whether it was removed.
    fn settle(&mut self, id: PeerId, events: &mut Events) -> bool {
        let Some(peer) = self.peers.get_mut(id) else { return true };
        let drained = peer.endpoint.queue().is_none_or(|queue| queue.under_way() == 0);
        match peer.stage {
            Stage::Ending(reason) if drained => {
                self.finish(id, reason, events);
                true
            }
            _ => false,
        }
    }

    /// The device, the connections, the clock.
    fn look_around(&mut self, events: &mut Events) {
        let now = Instant::now();
        while let Some(notice) = self.adapter.next_notice() {
            match notice {
                AsyncNotice::Noted => {}
                AsyncNotice::PortUp(port) => tracing::info!(device = ?self.adapter, port, "the link is up"),
                AsyncNotice::PortDown(port) => {
                    tracing::warn!(device = ?self.adapter, port, "the link is down: its connections end");
                    self.lose_all(CloseReason::Lost(io::ErrorKind::NetworkDown), events, now);
                }
                AsyncNotice::DeviceLost => {
                    tracing::error!(device = ?self.adapter, "the device is lost: its connections end");
                    self.lose_all(CloseReason::Lost(io::ErrorKind::NotConnected), events, now);
                }
                AsyncNotice::Other(event) => {
                    tracing::debug!(device = ?self.adapter, event, "the device says something")
                }
            }
        }
        for _ in 0..CONNECTION_EVENTS_PER_LOOK {
            let Some(event) = self.hub.next() else { break };
            self.take_connection_event(event, events, now);
            self.look = true;
        }
        self.look_at_clock(events, now);
    }

    fn look_at_clock(&mut self, events: &mut Events, now: Instant) {
        let mut position = 0;
        while let Some(peer) = self.peers.at(position) {
            let id = peer.id;
            let mut over = if peer.stage == Stage::Up { peer.over() } else { None };
            if peer.stage == Stage::Accepting
                && peer.endpoint.queue().is_some_and(|queue| queue.trouble().is_established())
            {
                // If the manager does not take the hint, the word itself may still come.
                let _ = peer.endpoint.notify_established();
            }
            if std::mem::take(&mut peer.traffic.progressed) || !peer.traffic.is_waiting() {
                peer.progress_at = now;
            }
            if let (Stage::Up, Some(fault), None) = (peer.stage, peer.leaving, peer.deadline) {
                peer.deadline = Some(now + LEAVE);
                tracing::debug!(peer = %id, %fault, "the peer broke the rules");
            }
            if over.is_none() && self.deadline_at(position).is_some_and(|deadline| deadline <= now) {
                over = self.peers.at(position).map(|peer| match (peer.stage, peer.leaving) {
                    (Stage::Up, Some(fault)) => CloseReason::Broken(fault),
                    (Stage::Ending(reason), _) => reason,
                    _ => CloseReason::Late,
                });
                if let Some(Stage::Ending(reason)) = self.peers.at(position).map(|peer| peer.stage) {
                    self.finish(id, reason, events);
                    continue;
                }
            }
            if let Some(reason) = over {
                self.lose(id, reason, events, now);
            }
            if self.peers.at(position).is_some_and(|peer| peer.id == id) {
                position += 1;
            }
        }
    }

    fn deadline_at(&mut self, position: usize) -> Option<Instant> {
        let stall = self.config.stall_timeout;
        self.peers.at(position).and_then(|peer| deadline(peer, stall))
    }

    pub(super) fn deadline_of(&self, peer: &Peer) -> Option<Instant> {
        deadline(peer, self.config.stall_timeout)
    }

    fn lose_all(&mut self, reason: CloseReason, events: &mut Events, now: Instant) {
        let ids: Vec<PeerId> = self.peers.iter().map(|peer| peer.id).collect();
        for id in ids {
            self.lose(id, reason, events, now);
        }
    }

    /// Begins the end of a peer: nothing more goes out, and what is under way comes back.
    pub(super) fn lose(&mut self, id: PeerId, reason: CloseReason, events: &mut Events, now: Instant) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let before = peer.stage;
        if matches!(before, Stage::Ending(_)) {
            return;
        }
        peer.stage = Stage::Ending(reason);
        peer.deadline = Some(now + self.config.drain_timeout);
        if reason != CloseReason::Rejected {
            peer.hello.clear();
        }
        peer.traffic.drop_backlog(events);
        if before == Stage::Asked {
            self.half_open -= 1;
            if !peer.closing {
                let _ = peer.endpoint.reject(&[]);
            }
        } else if before == Stage::Dialling && self.facts.is_iwarp && !was_answered(reason) {
            return self.leave_behind(id, reason, events);
        } else if matches!(before, Stage::Up | Stage::Accepting | Stage::Dialling) {
            // Where the other side was faster there is nothing left to end.
            let _ = peer.endpoint.disconnect();
        }
        if peer.endpoint.queue().is_none_or(|queue| queue.under_way() == 0) {
            self.finish(id, reason, events);
        }
    }

    /// The last of one that was asked and has not answered, over iWARP. The kernel lets who gives up such a connection, its queue pair
    /// or its id wait until it has (Soft-iWARP: ten seconds), so a thread of its own does that.
    fn leave_behind(&mut self, id: PeerId, reason: CloseReason, events: &mut Events) {
        let Some(mut peer) = self.peers.remove(id) else { return };
        peer.traffic.give_up(events);
        events.closed(id, reason, &peer.hello);
        // Where there is no thread to be had, it is dropped here.
        let _ = std::thread::Builder::new().name("ddss-left".to_owned()).spawn(move || drop(peer));
    }

    /// The last of a peer.
    fn finish(&mut self, id: PeerId, reason: CloseReason, events: &mut Events) {
        let Some(mut peer) = self.peers.remove(id) else { return };
        peer.endpoint.destroy_queue(&mut self.scratch.ended);
        if let Some(holdings) = &peer.holdings {
            peer.traffic.take_ended(holdings, &mut self.scratch.ended, events);
        }
        peer.traffic.give_up(events);
        events.closed(id, reason, &peer.hello);
    }
}

/// Whether the other side, or the road to it, has said no.
fn was_answered(reason: CloseReason) -> bool {
    matches!(reason, CloseReason::Rejected | CloseReason::Unreachable(_))
}

/// When a peer has to be looked at again.
fn deadline(peer: &Peer, stall: Duration) -> Option<Instant> {
    let stalled = (peer.stage == Stage::Up && peer.traffic.is_waiting()).then(|| peer.progress_at + stall);
    [peer.deadline, stalled].into_iter().flatten().min()
}
