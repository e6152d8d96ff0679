//! One end of a simulated connection.

use std::collections::VecDeque;

use super::state::{NetworkState, Packet};
use crate::events::{CloseReason, Events, WorkError};
use crate::fabric::Rights;
use crate::id::{PeerId, RegionId};
use crate::memory::{RegionTable, Windows};
use crate::terminate_code::TerminateCode;
use crate::work::SendMode;

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for the other side's answer.
    Connecting,
    /// Waits for the owner's answer.
    AwaitAccept,
    Open,
    Closed,
}

/// A requested read or atomic.
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) tag: Option<u64>,
    pub(super) sequence: u32,
    /// Region with a hold. `None`: an atomic, or abandoned.
    pub(super) region: Option<RegionId>,
    pub(super) offset: u64,
}

/// State that a step may touch besides the connection.
pub(super) struct Context<'a> {
    pub(super) net: &'a mut NetworkState,
    pub(super) memory: &'a mut RegionTable,
    pub(super) events: &'a mut Events,
}

/// One end of a connection.
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) link: usize,
    /// Index of this end in the link.
    pub(super) end: usize,
    pub(super) stage: Stage,
    pub(super) windows: Windows,
    pub(super) pending: VecDeque<Pending>,
    /// Writes and messages in flight: the next poll completes them.
    pub(super) sent: VecDeque<u64>,
    pub(super) sequence: u32,
    pub(super) deadline: Option<std::time::Duration>,
}

impl Peer {
    pub(super) fn send(&self, packet: Packet, net: &mut NetworkState) {
        net.send(self.link, 1 - self.end, packet);
    }

    /// Completes every operation and reports *closed*, once.
    pub(super) fn close(
        &mut self,
        reason: CloseReason,
        hello: &[u8],
        named_segment: Option<(u32, TerminateCode)>,
        cx: &mut Context<'_>,
    ) {
        if self.stage == Stage::Closed {
            return;
        }
        self.stage = Stage::Closed;
        for tag in self.sent.drain(..) {
            cx.events.push_done(self.id, tag, Ok(0));
        }
        for pending in self.pending.drain(..) {
            if let Some(region) = pending.region {
                cx.memory.release(region);
            }
            let error = match named_segment {
                Some((sequence, fault)) if sequence == pending.sequence => WorkError::Refused(fault),
                Some((sequence, _)) if pending.sequence > sequence => WorkError::NotExecuted,
                _ => WorkError::Indeterminate,
            };
            if let Some(tag) = pending.tag {
                cx.events.push_done(self.id, tag, Err(error));
            }
        }
        self.windows.clear();
        let local_end = &mut cx.net.links[self.link][self.end];
        local_end.is_closed = true;
        local_end.inbox.clear();
        cx.events.push_closed(self.id, reason, hello);
    }

    fn fail(&mut self, fault: TerminateCode, named_segment: Option<u32>, cx: &mut Context<'_>) {
        self.send(Packet::Terminate { fault, named_segment }, cx.net);
        self.close(CloseReason::ProtocolViolation(fault), &[], None, cx);
    }

    /// Processes one packet.
    pub(super) fn receive(&mut self, packet: Packet, cx: &mut Context<'_>) {
        match packet {
            Packet::Accept(hello) => {
                self.stage = Stage::Open;
                self.deadline = None;
                cx.events.push_connected(self.id, &hello);
            }
            Packet::Reject(reason) => self.close(CloseReason::Rejected, &reason, None, cx),
            Packet::Close(reason) => self.close(reason, &[], None, cx),
            Packet::Terminate { fault, named_segment } => {
                let named_segment = named_segment.map(|sequence| (sequence, fault));
                self.close(CloseReason::Terminated(fault), &[], named_segment, cx);
            }
            Packet::Write { key, address, data } => self.receive_write(key, address, &data, cx),
            Packet::Read { id, sequence, key, address, bytes } => {
                self.receive_read(id, sequence, (key, address, bytes), cx);
            }
            Packet::Data { id, data, last } => self.receive_data(id, &data, last, cx),
            Packet::Atomic { id, sequence, key, address, kind } => {
                match self.windows.translate(cx.memory, key, address, 8, Rights::ATOMIC) {
                    Ok((region, offset)) if offset.is_multiple_of(8) => {
                        let value = cx.memory.mapping(region).update(offset as usize, |old| kind.apply(old));
                        self.send(Packet::AtomicReply { id, value }, cx.net);
                    }
                    Ok(_) => self.fail(TerminateCode::RDMAP_UNSPECIFIED, Some(sequence), cx),
                    Err(denied) => self.fail(denied.rdmap(), Some(sequence), cx),
                }
            }
            Packet::AtomicReply { id, value } => {
                if let Some(pending) = self.take(id)
                    && let Some(tag) = pending.tag
                {
                    cx.events.push_done(self.id, tag, Ok(value));
                }
            }
            Packet::Send { data, mode } => self.receive_send(&data, mode, cx),
            Packet::Immediate { data, solicited } => cx.events.push_immediate(self.id, data, solicited),
        }
    }

    fn receive_write(&mut self, key: u32, address: u64, data: &[u8], cx: &mut Context<'_>) {
        if data.is_empty() {
            return;
        }
        match self.windows.translate(cx.memory, key, address, data.len() as u64, Rights::WRITE) {
            Ok((region, offset)) => cx.memory.mapping(region).copy_in(offset as usize, data),
            Err(denied) => self.fail(denied.ddp(), None, cx),
        }
    }

    fn receive_read(&mut self, id: u64, sequence: u32, (key, address, bytes): (u32, u64, u64), cx: &mut Context<'_>) {
        if bytes == 0 {
            self.send(Packet::Data { id, data: Vec::new(), last: true }, cx.net);
            return;
        }
        match self.windows.translate(cx.memory, key, address, bytes, Rights::READ) {
            Ok((region, offset)) => {
                let is_snapshot = bytes <= cx.net.config.snapshot_bytes;
                let piece = if is_snapshot { bytes } else { draw_piece_bytes(bytes, cx.net) };
                let mut data = vec![0; piece as usize];
                cx.memory.mapping(region).copy_out(offset as usize, &mut data);
                let last = piece == bytes;
                self.send(Packet::Data { id, data, last }, cx.net);
                if !last {
                    // The rest is read later: as if the same request arrived again, before all later packets.
                    let rest = Packet::Read { id, sequence, key, address: address + piece, bytes: bytes - piece };
                    let due = cx.net.now + std::time::Duration::from_nanos(1);
                    cx.net.links[self.link][self.end].inbox.push_front((due, rest));
                }
            }
            Err(denied) => self.fail(denied.rdmap(), Some(sequence), cx),
        }
    }

    fn receive_data(&mut self, id: u64, data: &[u8], last: bool, cx: &mut Context<'_>) {
        let Some(pending) = self.pending.iter_mut().find(|pending| pending.id == id) else { return };
        if let Some(region) = pending.region {
            cx.memory.mapping(region).copy_in(pending.offset as usize, data);
            pending.offset += data.len() as u64;
        }
        if !last {
            return;
        }
        if let Some(pending) = self.take(id) {
            if let Some(region) = pending.region {
                cx.memory.release(region);
            }
            if let Some(tag) = pending.tag {
                cx.events.push_done(self.id, tag, Ok(0));
            }
        }
    }

    fn receive_send(&mut self, data: &[u8], mode: SendMode, cx: &mut Context<'_>) {
        if let Some(key) = mode.invalidate
            && !self.windows.withdraw(key)
        {
            self.fail(TerminateCode::RDMAP_INVALIDATE, None, cx);
            return;
        }
        cx.events.push_message(self.id, data, mode.solicited, mode.invalidate);
    }

    fn take(&mut self, id: u64) -> Option<Pending> {
        let position = self.pending.iter().position(|pending| pending.id == id)?;
        self.pending.remove(position)
    }
}

/// Draws the length of a part of a transfer, in whole words.
pub(super) fn draw_piece_bytes(bytes: u64, net: &mut NetworkState) -> u64 {
    let words = net.random() % (bytes / 8).max(1) + 1;
    (words * 8).min(bytes)
}
