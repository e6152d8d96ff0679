//! The poll loop: posted work, completions and messages; now and then the clock, the connections and the device.

use std::io;
use std::time::{Duration, Instant};

use super::fabric::Rdma;
use super::peer::{Peer, Stage};
use crate::events::{CloseReason, Events};
use crate::id::PeerId;
use crate::limits::EVENTS_BUDGET;
use crate::sys::rdma_core::AsyncNotice;

/// Polls between two checks of everything except completions: each check is a system call.
const POLLS_PER_CHECK: u32 = 64;
/// Polls between two checks while operations are in flight, when the caller mostly polls for completions.
const POLLS_PER_CHECK_BUSY: u32 = 1024;
/// Connection events that one check processes.
const CONNECTION_EVENTS_PER_CHECK: usize = 64;
/// Time for a peer to read the report of its protocol violation.
const TERMINATE_DELAY: Duration = Duration::from_millis(200);

impl Rdma {
    pub(super) fn poll_once(&mut self, events: &mut Events) {
        let before = events.len();
        for id in std::mem::take(&mut self.closing) {
            self.start_ending(id, CloseReason::Local, events, Instant::now());
        }
        let (mut position, mut busy) = (0, false);
        while position < self.peers.len() && events.len() - before < EVENTS_BUDGET {
            let Some(peer) = self.peers.at(position) else { break };
            let id = peer.id;
            busy |= peer.stage == Stage::Up && peer.traffic.is_waiting();
            let end_reason = match peer.stage {
                Stage::Up | Stage::Ending(_) => peer.poll_once(&mut self.scratch, events),
                _ => None,
            };
            if end_reason.is_none() && peer.stage == Stage::Up {
                position += 1;
                continue;
            }
            if let Some(reason) = end_reason {
                self.start_ending(id, reason, events, Instant::now());
            }
            // A removed peer leaves its position to another one.
            if self.peers.at(position).is_some_and(|peer| peer.id == id) && !self.settle(id, events) {
                position += 1;
            }
        }
        self.polls = self.polls.wrapping_add(1);
        let polls_per_look = if busy { POLLS_PER_CHECK_BUSY } else { POLLS_PER_CHECK };
        if self.check_due || self.polls.is_multiple_of(polls_per_look) {
            self.check_due = false;
            self.check_environment(events);
        }
    }

    /// Removes a peer without operations in flight. Returns whether it was removed.
    fn settle(&mut self, id: PeerId, events: &mut Events) -> bool {
        let Some(peer) = self.peers.get_mut(id) else { return true };
        let drained = peer.endpoint.queue().is_none_or(|queue| queue.in_flight_count() == 0);
        match peer.stage {
            Stage::Ending(reason) if drained => {
                self.finish(id, reason, events);
                true
            }
            _ => false,
        }
    }

    /// Checks the device, the connections and the clock.
    fn check_environment(&mut self, events: &mut Events) {
        let now = Instant::now();
        while let Some(notice) = self.adapter.next_notice() {
            match notice {
                AsyncNotice::Recorded => {}
                AsyncNotice::PortUp(port) => tracing::info!(device = ?self.adapter, port, "the link is up"),
                AsyncNotice::PortDown(port) => {
                    tracing::warn!(device = ?self.adapter, port, "the link is down; its connections end");
                    self.start_ending_all(CloseReason::Lost(io::ErrorKind::NetworkDown), events, now);
                }
                AsyncNotice::DeviceLost => {
                    tracing::error!(device = ?self.adapter, "the device is lost; its connections end");
                    self.start_ending_all(CloseReason::Lost(io::ErrorKind::NotConnected), events, now);
                }
                AsyncNotice::Other(event) => {
                    tracing::debug!(device = ?self.adapter, event, "unknown device event")
                }
            }
        }
        for _ in 0..CONNECTION_EVENTS_PER_CHECK {
            let Some(event) = self.cm_events.next() else { break };
            self.take_connection_event(event, events, now);
            self.check_due = true;
        }
        self.check_deadlines(events, now);
    }

    fn check_deadlines(&mut self, events: &mut Events, now: Instant) {
        let mut position = 0;
        while let Some(peer) = self.peers.at(position) {
            let id = peer.id;
            let mut end_reason = if peer.stage == Stage::Up { peer.end_reason() } else { None };
            if peer.stage == Stage::Accepting
                && peer.endpoint.queue().is_some_and(|queue| queue.async_errors().is_established())
            {
                // If the manager ignores the hint, its own event may still arrive.
                let _ = peer.endpoint.notify_established();
            }
            if std::mem::take(&mut peer.traffic.progressed) || !peer.traffic.is_waiting() {
                peer.progress_at = now;
            }
            if let (Stage::Up, Some(fault), None) = (peer.stage, peer.violation, peer.deadline) {
                peer.deadline = Some(now + TERMINATE_DELAY);
                tracing::debug!(peer = %id, %fault, "protocol violation by the peer; the connection ends");
            }
            if end_reason.is_none() && self.deadline_at(position).is_some_and(|deadline| deadline <= now) {
                end_reason = self.peers.at(position).map(|peer| match (peer.stage, peer.violation) {
                    (Stage::Up, Some(fault)) => CloseReason::ProtocolViolation(fault),
                    (Stage::Ending(reason), _) => reason,
                    _ => CloseReason::TimedOut,
                });
                if let Some(Stage::Ending(reason)) = self.peers.at(position).map(|peer| peer.stage) {
                    self.finish(id, reason, events);
                    continue;
                }
            }
            if let Some(reason) = end_reason {
                self.start_ending(id, reason, events, now);
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

    fn start_ending_all(&mut self, reason: CloseReason, events: &mut Events, now: Instant) {
        let ids: Vec<PeerId> = self.peers.iter().map(|peer| peer.id).collect();
        for id in ids {
            self.start_ending(id, reason, events, now);
        }
    }
}

/// Returns the time of the next check of a peer.
fn deadline(peer: &Peer, stall: Duration) -> Option<Instant> {
    let stalled = (peer.stage == Stage::Up && peer.traffic.is_waiting()).then(|| peer.progress_at + stall);
    [peer.deadline, stalled].into_iter().flatten().min()
}
