//! Bytes on their way to other nodes: gets that this home executes for them, and changes for replicas. Few bytes go out in a
//! message. More are written into the staging memory that the peer keeps for this node.

use crate::action::{Action, MessageBody, PeerAction, RangeSet};
use crate::fault_injection::planted;
use crate::ids::ServedGetId;
use crate::requester::{ReplyFields, Requester};
use crate::state::memory::staging::Ticket;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::segments::Segments;
use ddss_core::{Failure, Limit, Message, NodeId, Outcome, Timestamp, Version};

/// Borrows the peers, with their staging places and the bytes that the fabric still reads, and the pool.
pub(crate) struct OutgoingBytes<'a> {
    pub(crate) peers: &'a mut Peers,
    pub(crate) segments: &'a mut Segments,
    pub(crate) output: &'a mut Output,
}

impl OutgoingBytes<'_> {
    /// Executes a get for a peer and sends the bytes.
    pub(crate) fn serve_get(
        &mut self,
        node: NodeId,
        step: u64,
        at: u64,
        parts: RangeSet,
        stamp: (Version, Timestamp),
    ) -> Result<(), Failure> {
        let (length, (version, timestamp)) = (parts.bytes(), stamp);
        if length as usize <= Message::PUT_BYTES_MAX {
            let (staged, number) = (Message::NOT_STAGED, 0);
            let message = Message::Got { step, version, timestamp, length, staged, number };
            self.output.push(Action::Peer(PeerAction::Send { node, message, tail: MessageBody::Pool(at, parts) }));
            self.output.free_table(&parts);
            return Ok(());
        }
        let ticket = self
            .peers
            .reachable(node)
            .ok_or(Failure::NodeDown)?
            .staging
            .take(length)
            .ok_or(Failure::Busy(Limit::Staging))?;
        let aside = self.segments.allocate_blocks(length.into());
        let served_get = aside.and_then(|to| self.peers.get_buffers.insert(to, length.into(), 1));
        let (Some(to), Some(served_get)) = (aside, served_get) else {
            if let Some(to) = aside {
                self.segments.free_blocks(to, length.into());
            }
            self.free_place(node, ticket.number());
            return Err(Failure::Busy(Limit::Pool));
        };
        let (staged, number) = (ticket.at, ticket.number());
        let message = Message::Got { step, version, timestamp, length, staged, number };
        let here = if let RangeSet::One { offset, .. } = parts { at + offset } else { to };
        let to = if planted!(self.segments, NoSnapshot) { here } else { to };
        self.output.push(Action::Snapshot { at, parts, to });
        self.output.free_table(&parts);
        self.output.push(Action::Peer(PeerAction::SendStaged {
            node,
            served_get,
            at: staged,
            from: to,
            bytes: length,
            message,
            table: None,
        }));
        Ok(())
    }

    /// Sends bytes of the pool with a message, through the staging memory if they are many; `false` if there is no room
    /// in flight.
    pub(crate) fn send_pool_bytes(
        &mut self,
        node: NodeId,
        from: u64,
        bytes: u32,
        message: impl FnOnce(u64, u64) -> Message,
    ) -> bool {
        if bytes as usize <= Message::PUT_BYTES_MAX {
            let message = message(Message::NOT_STAGED, Message::NOT_STAGED);
            let tail = MessageBody::Pool(from, RangeSet::One { offset: 0, bytes });
            self.output.push(Action::Peer(PeerAction::Send { node, message, tail }));
            return true;
        }
        let Some(ticket) = self.peers.reachable(node).and_then(|peer| peer.staging.take(bytes)) else { return false };
        let Some(served_get) = self.peers.get_buffers.insert(from, 0, 1) else {
            self.free_place(node, ticket.number());
            return false;
        };
        let (at, message) = (ticket.at, message(ticket.at, ticket.number()));
        self.output.push(Action::Peer(PeerAction::SendStaged {
            node,
            served_get,
            at,
            from,
            bytes,
            message,
            table: None,
        }));
        true
    }

    /// Frees bytes that the fabric has taken, or never will.
    pub(crate) fn sent(&mut self, served_get: ServedGetId) {
        // An entry of length zero refers to bytes in a segment.
        if let Some((at, bytes)) = self.peers.get_buffers.remove(served_get).filter(|&(_, bytes)| bytes > 0) {
            self.segments.free_blocks(at, bytes);
        }
    }

    /// Handles bytes that could not be sent: the requester is told that there was no room.
    pub(crate) fn failed(&mut self, node: NodeId, served_get: ServedGetId, message: &Message) {
        self.sent(served_get);
        if let Message::Forward { number, .. } | Message::ForwardPart { number, .. } | Message::Piece { number, .. } =
            *message
        {
            // The replica will never get it and has to resynchronise.
            self.free_place(node, number);
            self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        }
        if let Message::Got { step, number, .. } = *message {
            self.free_place(node, number);
            self.output.answer(
                Requester::Peer(node, step),
                Outcome::Failed(Failure::Busy(Limit::PostedOperations)),
                ReplyFields::default(),
            );
        }
    }

    /// Frees staging memory that a peer has emptied.
    pub(crate) fn free_place(&mut self, node: NodeId, number: u64) {
        if let Some(peer) = self.peers.reachable(node) {
            peer.staging.give(Ticket::of(number));
        }
    }
}

#[cfg(test)]
mod tests;
