//! Gets that the home executes: in order with all other operations on the segment, atomic, and in one round trip.
//!
//! The requester chooses this when a get depends on a lock, when gets exclude each other (Read), and when puts tore two
//! one-sided reads. It also does so for every lock-dependent get where reads do not overlap. A few bytes travel in the
//! answer. More bytes are first copied aside, since the fabric may read them much later. From there they go into the
//! staging memory that the requester keeps for this home. The requester's engine copies them to its client and reports
//! the place as free.

use crate::action::{Action, MessageBody, PeerAction, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::state::pending::{Pending, Transfer, WaitState};
use ddss_core::limits::{ARENA_SLOT_BYTES, STAGING_BYTES};
use ddss_core::{
    ArenaRange, Completion, Failure, Message, NodeId, Operation, Outcome, Request, RequestId, Timestamp, Version,
};

/// Fields of the answer to a served get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedReply {
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    pub(crate) length: u32,
    pub(crate) staged: u64,
    pub(crate) number: u64,
}

impl Remote<'_> {
    /// Asks the home to execute a pending get.
    pub(crate) fn request_served_get(&mut self, now: Now, step: StepId, pending: &Pending, transfer: Transfer) {
        let Transfer { segment, parts, options, .. } = transfer;
        let home = self.home_of(segment);
        if self.peers.reachable(home).is_none() {
            self.end_pending(step);
            return self.output.finish(pending, Outcome::Failed(Failure::NodeDown));
        }
        let left = pending.deadline_us.saturating_sub(now.steady_us);
        // Zero would be the default.
        let timeout_us = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        if let Some(pending) = self.operations.get_mut(step) {
            (pending.wait, pending.on) = (WaitState::Home(transfer), home);
        }
        let (operation, tail) = match parts {
            RangeSet::One { offset, bytes } => {
                let into = ArenaRange { slot: 0, bytes };
                (Operation::Get { segment, offset, into, inline: false, options }, MessageBody::None)
            }
            RangeSet::Many { table, bytes } => {
                let list = ArenaRange { slot: 0, bytes: ARENA_SLOT_BYTES as u32 + bytes };
                let ranges = self.output.ranges_of(&parts).len() as u8;
                (Operation::GetMany { segment, list, ranges, options }, MessageBody::Buffer(table))
            }
        };
        let first = self.output.first_offset(&parts);
        let lock = self.remote_locks.token_for(pending.channel.client, segment, first).unwrap_or_default();
        let request = Request { id: RequestId(step.to_bits()), timeout_us, operation, parks: false };
        let message = Message::Call { principal: pending.principal, lock, request };
        self.output.push(Action::Peer(PeerAction::Send { node: home, message, tail }));
    }

    /// Handles a home's answer with bytes: in the message, or in the staging memory for it.
    pub(crate) fn handle_got(&mut self, node: NodeId, step: StepId, got: ServedReply, tail: &[u8]) {
        let ServedReply { version, timestamp, length, staged, number } = got;
        let is_staged = staged != Message::NOT_STAGED;
        let waits = |pending: &&mut Pending| matches!(pending.wait, WaitState::Home(_)) && pending.is_on(node);
        let Some(pending) = self.operations.get_mut(step).filter(waits).copied() else {
            self.output.counters.stale += 1;
            if is_staged {
                self.output.send(node, Message::Taken { number });
            }
            return;
        };
        let WaitState::Home(transfer) = pending.wait else { return };
        if length != transfer.parts.bytes() || is_staged && staged.saturating_add(length.into()) > STAGING_BYTES as u64
        {
            return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        }
        let (client, into) = (pending.channel.client, transfer.range);
        self.end_pending(step);
        let done = Completion { version, timestamp, ..Completion::bare(pending.request, Outcome::Done) };
        let early = planted!(self.segments, EarlyCompletion);
        if early {
            self.output.reply(pending.channel, done, None);
        }
        if is_staged {
            self.output.push(Action::Unstage { node, at: staged, client, into });
            self.output.send(node, Message::Taken { number });
        } else {
            let buffer = self.output.store(tail);
            self.output.push(Action::WriteOut { buffer, client, into });
            self.output.free_buffer(buffer);
        }
        if !early {
            self.output.reply(pending.channel, done, None);
        }
    }
}
