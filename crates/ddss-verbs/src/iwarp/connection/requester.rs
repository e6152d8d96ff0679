//! Posted work: encoded immediately if there is room, else queued in order.

use super::context::Context;
use super::posted_work::{PendingAtomic, PendingRead, Queued, Receipt};
use super::response::{Source, Stream};
use super::{Connection, Stage};
use crate::iwarp::ddp::{TAGGED_BYTES, Tagged, UNTAGGED_BYTES, Untagged, queue};
use crate::iwarp::rdmap::{ATOMIC_BYTES, AtomicKind, AtomicReply, AtomicRequest, Opcode, READ_BYTES, ReadRequest};
use crate::iwarp::send_queue::Payload;
use crate::limits::{
    BACKLOG_MAX, BACKLOG_MESSAGE_BYTES_MAX, EARLY_SEND_BYTES, MESSAGE_SEGMENT_BYTES, SEND_QUEUE_BYTES, WORK_BYTES_MAX,
};
use crate::memory::RegionTable;
use crate::terminate_code::TerminateCode;
use crate::work::{LocalRange, PostErrorKind, RemoteRange, Work};

impl Connection {
    /// Posts one operation, or returns the reason for refusal.
    pub(crate) fn post(&mut self, work: &Work<'_>, memory: &mut RegionTable) -> Result<(), PostErrorKind> {
        match self.stage {
            Stage::Ended => return Err(PostErrorKind::UnknownPeer),
            _ if !self.connected => return Err(PostErrorKind::NotConnected),
            _ => {}
        }
        let (queued, message) = self.check(work, memory)?;
        if let Some(region) = queued.region() {
            memory.hold(region);
        }
        let now = self.work.backlog.queue.is_empty() && self.can_request(&queued);
        if now {
            self.encode(queued, message, memory);
            return Ok(());
        }
        let waiting = self.work.backlog.messages.len() + message.len();
        if self.work.backlog.queue.len() >= BACKLOG_MAX || waiting > BACKLOG_MESSAGE_BYTES_MAX {
            if let Some(region) = queued.region() {
                memory.release(region);
            }
            return Err(PostErrorKind::Busy);
        }
        self.work.backlog.messages.extend(message);
        self.work.backlog.queue.push_back(queued);
        Ok(())
    }

    /// Stops a posted read from touching memory; its completion is not reported. False if there is no such read.
    pub(crate) fn abandon(&mut self, tag: u64, memory: &mut RegionTable) -> bool {
        let asked = self.work.reads.iter_mut().find(|read| read.tag == Some(tag));
        if let Some(read) = asked {
            read.tag = None;
            if let Some(region) = read.region.take() {
                memory.release(region);
            }
            // A segment that is arriving belongs to the oldest read.
            if self.work.reads.front().is_some_and(|front| front.tag.is_none() && front.region.is_none()) {
                self.abandon_partial(memory);
            }
            return true;
        }
        let position = self
            .work
            .backlog
            .queue
            .iter()
            .position(|queued| matches!(queued, Queued::Read { tag: other, .. } if *other == tag));
        let Some(position) = position else { return false };
        if let Some(region) = self.work.backlog.queue.remove(position).and_then(|queued| queued.region()) {
            memory.release(region);
        }
        true
    }

    fn check<'a>(&self, work: &Work<'a>, memory: &RegionTable) -> Result<(Queued, &'a [u8]), PostErrorKind> {
        let queued = match *work {
            Work::Read { tag, local, remote, .. } => {
                check_ranges(local, remote, memory)?;
                Queued::Read { tag, local, remote }
            }
            Work::Write { tag, local, remote, .. } => {
                check_ranges(local, remote, memory)?;
                Queued::Write { tag, local, remote }
            }
            Work::CompareSwap { tag, remote, compare, swap, .. } => {
                let kind = AtomicKind::CompareSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX };
                check_word(remote)?;
                Queued::Atomic { tag, remote, kind }
            }
            Work::FetchAdd { tag, remote, add, .. } => {
                check_word(remote)?;
                Queued::Atomic { tag, remote, kind: AtomicKind::FetchAdd { add, mask: 0 } }
            }
            Work::Send { tag, message, mode, .. } => {
                if message.len() > self.config.message_bytes_max {
                    return Err(PostErrorKind::TooLong);
                }
                return Ok((Queued::Send { tag, bytes: message.len(), mode }, message));
            }
            Work::Immediate { tag, data, solicited, .. } => Queued::Immediate { tag, data, solicited },
        };
        if self.terms.ord == 0 && matches!(queued, Queued::Read { .. } | Queued::Atomic { .. }) {
            return Err(PostErrorKind::NoReads);
        }
        Ok((queued, &[]))
    }

    /// Returns true if this work could be encoded now.
    fn can_request(&self, queued: &Queued) -> bool {
        let limited = matches!(queued, Queued::Read { .. } | Queued::Atomic { .. });
        self.stage == Stage::Open
            && self.answers.stream.is_none()
            && self.send_queue.has_room(SEND_QUEUE_BYTES)
            && (!limited || self.work.reads.len() + self.work.atomics.len() < usize::from(self.terms.ord))
    }

    /// Returns true if the next queued work could be encoded now.
    pub(super) fn can_encode_next(&self) -> bool {
        self.work.backlog.queue.front().is_some_and(|queued| self.can_request(queued))
    }

    /// Encodes the next queued work. False if that is impossible now.
    pub(super) fn request(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(queued) = self.work.backlog.queue.front().copied() else { return false };
        if !self.can_request(&queued) {
            return false;
        }
        self.work.backlog.queue.pop_front();
        let mut message = std::mem::take(&mut self.work.backlog.next_message);
        message.clear();
        if let Queued::Send { bytes, .. } = queued {
            let (front, behind) = self.work.backlog.messages.as_slices();
            let first = bytes.min(front.len());
            message.extend_from_slice(&front[..first]);
            message.extend_from_slice(&behind[..bytes - first]);
            self.work.backlog.messages.drain(..bytes);
        }
        self.encode(queued, &message, cx.memory);
        self.work.backlog.next_message = message;
        true
    }

    fn encode(&mut self, queued: Queued, message: &[u8], memory: &mut RegionTable) {
        let start = self.send_queue.appended();
        match queued {
            Queued::Read { tag, local, remote } => self.encode_read(tag, local, remote, memory),
            Queued::Atomic { tag, remote, kind } => self.encode_atomic(tag, remote, kind, memory),
            Queued::Write { tag, local, remote } => {
                self.answers.stream = Some(Stream::write(tag, local, remote, start));
                // A long write is encoded while it is sent.
                if local.bytes <= EARLY_SEND_BYTES as u64 {
                    self.encode_stream(Some(SEND_QUEUE_BYTES), Source::Copied, memory);
                }
            }
            Queued::Send { tag, mode, .. } => {
                let opcode = Opcode::Send { solicited: mode.solicited, invalidate: mode.invalidate.is_some() };
                self.encode_send(opcode, mode.invalidate.unwrap_or(0), message, memory);
                self.work.receipts.push_back(Receipt { tag, start, end: self.send_queue.appended() });
            }
            Queued::Immediate { tag, data, solicited } => {
                self.encode_send(Opcode::Immediate { solicited }, 0, &data, memory);
                self.work.receipts.push_back(Receipt { tag, start, end: self.send_queue.appended() });
            }
        }
    }

    fn encode_read(&mut self, tag: u64, local: LocalRange, remote: RemoteRange, memory: &RegionTable) {
        let mut read = PendingRead {
            tag: Some(tag),
            sequence: self.sent.requests,
            start: self.send_queue.appended(),
            key: self.work.sink_key,
            region: Some(local.region),
            offset: local.offset,
            bytes: local.bytes as u32,
            arrived: 0,
        };
        if self.work.sink_key == 0 {
            self.work.sink_key = 1;
            read.key = 1;
        }
        self.work.sink_key = self.work.sink_key.wrapping_add(1);
        self.work.reads.push_back(read);
        self.encode_read_request(read, remote, memory);
    }

    fn encode_read_request(&mut self, read: PendingRead, remote: RemoteRange, memory: &RegionTable) {
        let body = ReadRequest {
            sink_key: read.key,
            sink_address: 0,
            bytes: read.bytes,
            source_key: remote.key,
            source_address: remote.address,
        };
        let mut head = [0; UNTAGGED_BYTES + READ_BYTES];
        head[..UNTAGGED_BYTES].copy_from_slice(&self.request_header(Opcode::ReadRequest).encode());
        head[UNTAGGED_BYTES..].copy_from_slice(&body.encode());
        self.send_queue.append_frame(&head, Payload::Bytes(&[]), memory);
    }

    fn encode_atomic(&mut self, tag: u64, remote: RemoteRange, kind: AtomicKind, memory: &RegionTable) {
        let id = self.work.atomic_id;
        self.work.atomic_id = self.work.atomic_id.wrapping_add(1);
        let start = self.send_queue.appended();
        self.work.atomics.push_back(PendingAtomic { tag, sequence: self.sent.requests, start, id });
        let body = AtomicRequest { id, key: remote.key, address: remote.address, kind };
        let mut head = [0; UNTAGGED_BYTES + ATOMIC_BYTES];
        head[..UNTAGGED_BYTES].copy_from_slice(&self.request_header(Opcode::AtomicRequest).encode());
        head[UNTAGGED_BYTES..].copy_from_slice(&body.encode());
        self.send_queue.append_frame(&head, Payload::Bytes(&[]), memory);
    }

    fn request_header(&mut self, opcode: Opcode) -> Untagged {
        let sequence = self.sent.requests;
        self.sent.requests = sequence.wrapping_add(1);
        Untagged { last: true, rdmap: opcode.control(), word: 0, queue: queue::REQUEST, sequence, offset: 0 }
    }

    fn encode_send(&mut self, opcode: Opcode, word: u32, message: &[u8], memory: &RegionTable) {
        let sequence = self.sent.sends;
        self.sent.sends = sequence.wrapping_add(1);
        let mut offset = 0;
        loop {
            let rest = &message[offset..];
            let (last, bytes) = (rest.len() <= MESSAGE_SEGMENT_BYTES, rest.len().min(MESSAGE_SEGMENT_BYTES));
            let (rdmap, queue, at) = (opcode.control(), queue::SEND, offset as u32);
            let header = Untagged { last, rdmap, word, queue, sequence, offset: at };
            self.send_queue.append_frame(&header.encode(), Payload::Bytes(&rest[..bytes]), memory);
            if last {
                return;
            }
            offset += bytes;
        }
    }

    /// Sends an empty write as ready-to-receive message.
    pub(super) fn send_empty_write(&mut self, memory: &RegionTable) {
        let header: [u8; TAGGED_BYTES] =
            Tagged { last: true, rdmap: Opcode::Write.control(), key: 0, address: 0 }.encode();
        self.send_queue.append_frame(&header, Payload::Bytes(&[]), memory);
    }

    /// Sends an empty read, the other ready-to-receive message.
    pub(super) fn send_empty_read(&mut self, memory: &RegionTable) {
        let read = PendingRead {
            tag: None,
            sequence: self.sent.requests,
            start: self.send_queue.appended(),
            key: 0,
            region: None,
            offset: 0,
            bytes: 0,
            arrived: 0,
        };
        self.work.reads.push_back(read);
        self.encode_read_request(read, RemoteRange { key: 0, address: 0 }, memory);
    }

    /// Completes the writes and messages that the socket has accepted.
    pub(super) fn acknowledge(&mut self, cx: &mut Context<'_>) {
        let consumed = self.send_queue.consumed();
        while let Some(receipt) = self.work.receipts.front()
            && receipt.end <= consumed
        {
            cx.events.push_done(self.id, receipt.tag, Ok(0));
            self.work.receipts.pop_front();
        }
    }

    /// Completes the atomic that a reply answers.
    pub(super) fn atomic_done(&mut self, reply: AtomicReply, cx: &mut Context<'_>) -> Result<(), TerminateCode> {
        let position = self.work.atomics.iter().position(|atomic| atomic.id == reply.id);
        let atomic =
            position.and_then(|position| self.work.atomics.remove(position)).ok_or(TerminateCode::RDMAP_OPCODE)?;
        cx.events.push_done(self.id, atomic.tag, Ok(reply.value));
        Ok(())
    }
}

fn check_ranges(local: LocalRange, remote: RemoteRange, memory: &RegionTable) -> Result<(), PostErrorKind> {
    if local.bytes > WORK_BYTES_MAX {
        return Err(PostErrorKind::TooLong);
    }
    match memory.covers(local.region, local.offset, local.bytes) {
        None => return Err(PostErrorKind::UnknownRegion),
        Some(false) => return Err(PostErrorKind::OutOfBounds),
        Some(true) => {}
    }
    remote.address.checked_add(local.bytes).ok_or(PostErrorKind::OutOfBounds)?;
    Ok(())
}

fn check_word(remote: RemoteRange) -> Result<(), PostErrorKind> {
    if !remote.address.is_multiple_of(8) {
        return Err(PostErrorKind::Unaligned);
    }
    remote.address.checked_add(8).ok_or(PostErrorKind::OutOfBounds)?;
    Ok(())
}
