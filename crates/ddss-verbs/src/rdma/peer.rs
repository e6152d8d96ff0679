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
use super::peer_resources::PeerResources;
use super::send_queue::SendQueue;
use crate::events::{CloseReason, Events};
use crate::fabric::PeerId;
use crate::sys::rdma_core::{Arrived, Endpoint, FailureCause, FinishedWork};
use crate::terminate_code::TerminateCode;
use ddss_core::limits::MESSAGE_BYTES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The address is being resolved.
    Resolving,
    Routing,
    /// The connection request was sent.
    Dialling,
    /// The peer requested a connection; the owner has not answered yet.
    Asked,
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
    pub(super) holdings: Option<PeerResources>,
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
    pub(super) leaving: Option<TerminateCode>,
    /// The owner called `close`.
    pub(super) closing: bool,
    is_iwarp: bool,
}

/// Buffers of one poll.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) ended: Vec<FinishedWork>,
    pub(super) arrived: Vec<Arrived>,
    pub(super) bytes: Vec<u8>,
}

impl Peer {
    /// Creates a peer. `kind`: the adapter uses iWARP, and the adapter executes atomics on local words.
    pub(super) fn new(
        id: PeerId,
        address: SocketAddr,
        stage: Stage,
        endpoint: Endpoint,
        kind: (bool, bool),
        now: Instant,
    ) -> Self {
        Self {
            id,
            address,
            stage,
            endpoint,
            holdings: None,
            traffic: SendQueue::new(id, kind.1),
            hello: Vec::new(),
            reads: (0, 0),
            deadline: None,
            progress_at: now,
            leaving: None,
            closing: false,
            is_iwarp: kind.0,
        }
    }

    /// Posts queued work to the adapter and processes its completions. Returns a reason if the connection is over.
    pub(super) fn drive(&mut self, scratch: &mut Scratch, events: &mut Events) -> Option<CloseReason> {
        let (Some(queue), Some(holdings)) = (self.endpoint.queue(), &self.holdings) else { return None };
        let ending = matches!(self.stage, Stage::Ending(_));
        if !ending && let Err(error) = self.traffic.flush(queue, holdings, &mut scratch.ended) {
            self.traffic.take_ended(holdings, &mut scratch.ended, events);
            return Some(CloseReason::Lost(error.kind()));
        }
        match queue.poll(&mut scratch.ended, &mut scratch.arrived) {
            Ok(false) if scratch.ended.is_empty() => return None,
            Ok(_) => {}
            Err(error) => return Some(CloseReason::Lost(error.kind())),
        }
        let fault = if ending { None } else { self.take_arrived(scratch, events) };
        let (Some(queue), Some(holdings)) = (self.endpoint.queue(), &self.holdings) else { return None };
        for arrived in scratch.arrived.drain(..) {
            queue.give_back(arrived.slot);
        }
        let given = if ending { Ok(()) } else { queue.ring_receives() };
        self.traffic.take_ended(holdings, &mut scratch.ended, events);
        if ending {
            return None;
        }
        if let Some(fault) = fault {
            return Some(CloseReason::Broken(fault));
        }
        if let Some(reason) = self.over() {
            return Some(reason);
        }
        if given.is_ok() && !self.traffic.has_more() {
            return None;
        }
        let (Some(queue), Some(holdings)) = (self.endpoint.queue(), &self.holdings) else { return None };
        let flushed = given.and_then(|()| self.traffic.flush(queue, holdings, &mut scratch.ended));
        self.traffic.take_ended(holdings, &mut scratch.ended, events);
        flushed.err().map(|error| CloseReason::Lost(error.kind()))
    }

    /// Returns the reason if the adapter's reports mean that the connection is over.
    pub(super) fn over(&mut self) -> Option<CloseReason> {
        let queue = self.endpoint.queue()?;
        if self.traffic.is_well() && !queue.receives_flushed() && queue.trouble().is_none() {
            return None;
        }
        if let Some(fault) = self.traffic.refused {
            return Some(CloseReason::Terminated(fault));
        }
        if queue.trouble().is_peers_fault() {
            return Some(CloseReason::Broken(TerminateCode::RDMAP_PROTECTION));
        }
        if queue.trouble().is_fatal() {
            return Some(CloseReason::Lost(io::ErrorKind::ConnectionAborted));
        }
        match self.traffic.failing {
            Some(FailureCause::Unanswered) => Some(CloseReason::Lost(io::ErrorKind::TimedOut)),
            Some(_) => Some(CloseReason::Lost(io::ErrorKind::ConnectionReset)),
            // On iWARP a normal end looks like this, too. On other adapters only a peer's violation stops a queue by
            // itself.
            None if queue.receives_flushed() && self.is_iwarp => {
                Some(CloseReason::Lost(io::ErrorKind::ConnectionReset))
            }
            None if queue.receives_flushed() => Some(CloseReason::Broken(TerminateCode::RDMAP_PROTECTION)),
            None => None,
        }
    }

    /// Processes received frames; returns the first protocol violation.
    fn take_arrived(&mut self, scratch: &mut Scratch, events: &mut Events) -> Option<TerminateCode> {
        for index in 0..scratch.arrived.len() {
            let queue = self.endpoint.queue()?;
            queue.copy_out(scratch.arrived[index], &mut scratch.bytes);
            self.traffic.may_speak = true;
            if self.traffic.plain {
                if scratch.bytes.len() > MESSAGE_BYTES_MAX {
                    return Some(TerminateCode::DDP_TOO_LONG);
                }
                events.message(self.id, &scratch.bytes, false, None);
                continue;
            }
            let Some((frame, credits)) = frame::decode(&scratch.bytes) else {
                return Some(TerminateCode::RDMAP_OPCODE);
            };
            if frame.costs_credit() {
                self.traffic.owe();
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
        let holdings = self.holdings.as_mut()?;
        match frame {
            Frame::Message { bytes, solicited, invalidate } => {
                if invalidate.is_some_and(|key| !holdings.withdraw(key)) {
                    return Some(TerminateCode::RDMAP_INVALIDATE);
                }
                events.message(self.id, bytes, solicited, invalidate);
            }
            Frame::Immediate { data, solicited } => events.immediate(self.id, data, solicited),
            Frame::Atomic { ticket, key, address, change } => {
                // Nothing is executed after a refusal.
                let result = self.leaving.map_or_else(|| holdings.change(key, address, change), Err);
                if let Err(fault) = result {
                    self.leaving = Some(fault);
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
    pub(super) fn gone(&mut self) -> CloseReason {
        if let Some(fault) = self.leaving {
            return CloseReason::Broken(fault);
        }
        match self.over() {
            Some(reason @ (CloseReason::Broken(_) | CloseReason::Terminated(_))) => reason,
            _ => CloseReason::Gone,
        }
    }
}
