//! One connection: its stage, its resources, and its received frames.
//!
//! ```text
//!  Resolving ─► Routing ─► Connecting ─┐
//!                                      ├─► Up ─► Ending ─► removed
//!            AwaitAccept ─► Accepting ─┘
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use super::frame::{self, Frame};
use super::peer_resources::{PeerResources, SlotLayout};
use super::send_queue::SendQueue;
use crate::events::{CloseReason, Events};
use crate::id::PeerId;
use crate::sys::rdma_core::{Endpoint, FailureCause, FinishedWork, ReceivedMessage};
use crate::terminate_code::TerminateCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The address is being resolved.
    Resolving,
    Routing,
    /// The connection request was sent.
    Connecting,
    /// The peer requested a connection; the owner has not answered yet.
    AwaitAccept,
    Accepting,
    Up,
    /// Operations in flight are completing.
    Ending(CloseReason),
}

/// One peer. The endpoint drops before the resources that it uses: fields drop in order.
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) address: SocketAddr,
    pub(super) stage: Stage,
    pub(super) endpoint: Endpoint,
    pub(super) resources: Option<PeerResources>,
    pub(super) traffic: SendQueue,
    /// Hello to send when the route is found; later, the reason of a reject.
    pub(super) hello: Vec<u8>,
    /// Read limits that the peer requested, in both directions.
    pub(super) reads: (u8, u8),
    /// Deadline of the current stage.
    pub(super) deadline: Option<Instant>,
    /// Approximate time of the last completion.
    pub(super) progress_at: Instant,
    /// Protocol violation that was reported to the peer, which gets a moment to read it.
    pub(super) violation: Option<TerminateCode>,
    /// The owner called `close`.
    pub(super) closing: bool,
    is_iwarp: bool,
}

/// Buffers of one poll.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) completions: Vec<FinishedWork>,
    pub(super) received: Vec<ReceivedMessage>,
    pub(super) bytes: Vec<u8>,
}

impl Peer {
    /// Creates a peer. `kind`: the layout of its messages, whether the adapter uses iWARP, and whether it executes atomics on local words.
    pub(super) fn new(
        id: PeerId,
        address: SocketAddr,
        stage: Stage,
        endpoint: Endpoint,
        kind: (SlotLayout, bool, bool),
        now: Instant,
    ) -> Self {
        Self {
            id,
            address,
            stage,
            endpoint,
            resources: None,
            traffic: SendQueue::new(id, kind.0, kind.2),
            hello: Vec::new(),
            reads: (0, 0),
            deadline: None,
            progress_at: now,
            violation: None,
            closing: false,
            is_iwarp: kind.1,
        }
    }

    /// Posts queued work to the adapter and processes its completions. Returns a reason if the connection is over.
    pub(super) fn poll_once(&mut self, scratch: &mut Scratch, events: &mut Events) -> Option<CloseReason> {
        let (Some(queue), Some(resources)) = (self.endpoint.queue(), &self.resources) else { return None };
        let ending = matches!(self.stage, Stage::Ending(_));
        if !ending && let Err(error) = self.traffic.flush(queue, resources, &mut scratch.completions) {
            self.traffic.take_completions(resources, &mut scratch.completions, events);
            return Some(CloseReason::Lost(error.kind()));
        }
        match queue.poll(&mut scratch.completions, &mut scratch.received) {
            Ok(false) if scratch.completions.is_empty() => return None,
            Ok(_) => {}
            Err(error) => return Some(CloseReason::Lost(error.kind())),
        }
        let fault = if ending { None } else { self.take_received(scratch, events) };
        let (Some(queue), Some(resources)) = (self.endpoint.queue(), &self.resources) else { return None };
        for received in scratch.received.drain(..) {
            queue.return_slot(received.slot);
        }
        let given = if ending { Ok(()) } else { queue.ring_receives() };
        self.traffic.take_completions(resources, &mut scratch.completions, events);
        if ending {
            return None;
        }
        if let Some(fault) = fault {
            return Some(CloseReason::ProtocolViolation(fault));
        }
        if let Some(reason) = self.end_reason() {
            return Some(reason);
        }
        if given.is_ok() && !self.traffic.has_more() {
            return None;
        }
        let (Some(queue), Some(resources)) = (self.endpoint.queue(), &self.resources) else { return None };
        let flushed = given.and_then(|()| self.traffic.flush(queue, resources, &mut scratch.completions));
        self.traffic.take_completions(resources, &mut scratch.completions, events);
        flushed.err().map(|error| CloseReason::Lost(error.kind()))
    }

    /// Returns the reason if the adapter's reports mean that the connection is over.
    pub(super) fn end_reason(&mut self) -> Option<CloseReason> {
        let queue = self.endpoint.queue()?;
        if self.traffic.is_healthy() && !queue.receives_flushed() && queue.async_errors().is_none() {
            return None;
        }
        if let Some(fault) = self.traffic.refused {
            return Some(CloseReason::Terminated(fault));
        }
        if queue.async_errors().is_peer_violation() {
            return Some(CloseReason::ProtocolViolation(TerminateCode::RDMAP_PROTECTION));
        }
        if queue.async_errors().is_fatal() {
            return Some(CloseReason::Lost(io::ErrorKind::ConnectionAborted));
        }
        match self.traffic.failing {
            Some(FailureCause::NoAnswer) => Some(CloseReason::Lost(io::ErrorKind::TimedOut)),
            Some(_) => Some(CloseReason::Lost(io::ErrorKind::ConnectionReset)),
            // On iWARP a normal end looks like this, too. On other adapters only a peer's violation stops a queue by
            // itself.
            None if queue.receives_flushed() && self.is_iwarp => {
                Some(CloseReason::Lost(io::ErrorKind::ConnectionReset))
            }
            None if queue.receives_flushed() => Some(CloseReason::ProtocolViolation(TerminateCode::RDMAP_PROTECTION)),
            None => None,
        }
    }

    /// Processes received frames; returns the first protocol violation.
    fn take_received(&mut self, scratch: &mut Scratch, events: &mut Events) -> Option<TerminateCode> {
        for index in 0..scratch.received.len() {
            let queue = self.endpoint.queue()?;
            queue.copy_out(scratch.received[index], &mut scratch.bytes);
            self.traffic.can_send_frames = true;
            if self.traffic.is_plain {
                if scratch.bytes.len() > self.traffic.message_bytes_max() {
                    return Some(TerminateCode::DDP_TOO_LONG);
                }
                events.push_message(self.id, &scratch.bytes, false, None);
                continue;
            }
            let Some((frame, credits)) = frame::decode(&scratch.bytes, self.traffic.message_bytes_max()) else {
                return Some(TerminateCode::RDMAP_OPCODE);
            };
            if frame.costs_credit() {
                self.traffic.count_returned_slot();
            }
            if !self.traffic.credit(credits) {
                return Some(TerminateCode::RDMAP_STREAM);
            }
            if let Some(fault) = self.take_frame(frame, events) {
                return Some(fault);
            }
        }
        None
    }

    fn take_frame(&mut self, frame: Frame<'_>, events: &mut Events) -> Option<TerminateCode> {
        let resources = self.resources.as_mut()?;
        match frame {
            Frame::Message { bytes, solicited, invalidate } => {
                if invalidate.is_some_and(|key| !resources.withdraw(key)) {
                    return Some(TerminateCode::RDMAP_INVALIDATE);
                }
                events.push_message(self.id, bytes, solicited, invalidate);
            }
            Frame::Immediate { data, solicited } => events.push_immediate(self.id, data, solicited),
            Frame::Atomic { ticket, key, address, change } => {
                // Nothing is executed after a refusal.
                let result = self.violation.map_or_else(|| resources.change(key, address, change), Err);
                if let Err(fault) = result {
                    self.violation = Some(fault);
                }
                if !self.traffic.answer(ticket, result) {
                    return Some(TerminateCode::RDMAP_STREAM);
                }
            }
            Frame::Answer { ticket, result } => {
                if !self.traffic.answered(ticket, result, events) {
                    return Some(TerminateCode::RDMAP_STREAM);
                }
            }
            Frame::Credits { adapter_atomics } => self.traffic.adapter_atomics = adapter_atomics,
        }
        None
    }

    /// Returns the reason for the peer's disconnect.
    pub(super) fn disconnect_reason(&mut self) -> CloseReason {
        if let Some(fault) = self.violation {
            return CloseReason::ProtocolViolation(fault);
        }
        match self.end_reason() {
            Some(reason @ (CloseReason::ProtocolViolation(_) | CloseReason::Terminated(_))) => reason,
            _ => CloseReason::ClosedByPeer,
        }
    }
}
