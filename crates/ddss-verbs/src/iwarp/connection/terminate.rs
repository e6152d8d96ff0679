//! End of a connection: the terminate message, and the completion of every operation.

use super::context::Context;
use super::response::Source;
use super::{Connection, Stage};
use crate::events::{CloseReason, WorkError};
use crate::iwarp::ddp::{UNTAGGED_BYTES, Untagged, queue};
use crate::iwarp::rdmap::{Opcode, TERMINATE_BYTES_MAX, Terminate};
use crate::iwarp::send_queue::Payload;
use crate::limits::SEND_QUEUE_BYTES;
use crate::memory::RegionTable;
use crate::terminate_code::TerminateCode;

impl Connection {
    /// Ends the connection because of a protocol violation, with a terminate message. `named_segment` is the offending
    /// ULPDU, if there is one, as far as it has arrived, and its length.
    pub(super) fn fail(&mut self, fault: TerminateCode, named_segment: Option<(&[u8], usize)>, cx: &mut Context<'_>) {
        if self.stage == Stage::Ended {
            return;
        }
        // Earlier requests are still answered, as far as there is room.
        while self.stage == Stage::Open && self.send_queue.has_room(SEND_QUEUE_BYTES) {
            if self.answers.stream.is_some() {
                self.encode_stream(Some(SEND_QUEUE_BYTES), Source::Copied, cx.memory);
            } else if !self.respond(cx) {
                break;
            }
        }
        let mut body = [0; TERMINATE_BYTES_MAX];
        let bytes = Terminate::encode(fault, named_segment, &mut body);
        let rdmap = Opcode::Terminate.control();
        let header = Untagged { last: true, rdmap, word: 0, queue: queue::TERMINATE, sequence: 1, offset: 0 };
        let header: [u8; UNTAGGED_BYTES] = header.encode();
        self.send_queue.append_frame(&header, Payload::Bytes(&body[..bytes]), cx.memory);
        self.end(CloseReason::ProtocolViolation(fault), &[], true, None, cx);
    }

    /// Ends the connection, once. With `flush` the send queue is still sent as far as possible, so encoded operations
    /// may yet take effect. `terminate` is the peer's message, which may name a local request.
    pub(crate) fn end(
        &mut self,
        reason: CloseReason,
        hello: &[u8],
        flush: bool,
        terminate: Option<Terminate>,
        cx: &mut Context<'_>,
    ) {
        if self.stage == Stage::Ended {
            return;
        }
        self.stage = Stage::Ended;
        self.connected = false;
        self.has_unreported_connect = false;
        self.abandon_partial(cx.memory);
        self.arriving.partial = None;
        self.end_work(flush, terminate, cx);
        for response in self.answers.queue.drain(..) {
            if let Some(region) = response.region() {
                cx.memory.release(region);
            }
        }
        self.windows.clear();
        self.arriving.message.clear();
        if !flush {
            self.send_queue.clear(cx.memory);
        }
        cx.events.push_closed(self.id, reason, hello);
    }

    /// Drops the send queue: nothing more will be sent.
    pub(crate) fn discard(&mut self, memory: &mut RegionTable) {
        self.send_queue.clear(memory);
    }

    /// Discards the rest of an arriving segment.
    pub(super) fn abandon_partial(&mut self, memory: &mut RegionTable) {
        if let Some(partial) = self.arriving.partial.as_mut()
            && let Some(region) = partial.abandon(self.stage == Stage::Ended)
        {
            memory.release(region);
        }
    }

    fn end_work(&mut self, flush: bool, terminate: Option<Terminate>, cx: &mut Context<'_>) {
        let consumed = self.send_queue.consumed();
        let outcome_of =
            |start: u64| if !flush && consumed <= start { WorkError::NotExecuted } else { WorkError::Indeterminate };
        let named_segment = terminate.and_then(|terminate| {
            terminate
                .named_segment
                .filter(|named_segment| named_segment.queue == queue::REQUEST)
                .map(|named_segment| (named_segment.sequence, terminate.fault))
        });
        let requested = |sequence: u32, start: u64| match named_segment {
            Some((named, fault)) if sequence == named => WorkError::Refused(fault),
            // The peer executes requests in order and stopped at the one it named.
            Some((named, _)) if sequence.wrapping_sub(named) < u32::MAX / 2 => WorkError::NotExecuted,
            _ => outcome_of(start),
        };
        for read in self.work.reads.drain(..) {
            if let Some(region) = read.region {
                cx.memory.release(region);
            }
            if let Some(tag) = read.tag {
                cx.events.push_done(self.id, tag, Err(requested(read.sequence, read.start)));
            }
        }
        for atomic in self.work.atomics.drain(..) {
            cx.events.push_done(self.id, atomic.tag, Err(requested(atomic.sequence, atomic.start)));
        }
        for receipt in self.work.receipts.drain(..) {
            let outcome = if receipt.end <= consumed { Ok(0) } else { Err(outcome_of(receipt.start)) };
            cx.events.push_done(self.id, receipt.tag, outcome);
        }
        if let Some(stream) = self.answers.stream.take() {
            if let Some(region) = stream.region {
                cx.memory.release(region);
            }
            if let Some((tag, start)) = stream.receipt {
                cx.events.push_done(self.id, tag, Err(outcome_of(start)));
            }
        }
        for queued in self.work.backlog.queue.drain(..) {
            if let Some(region) = queued.region() {
                cx.memory.release(region);
            }
            cx.events.push_done(self.id, queued.tag(), Err(WorkError::NotExecuted));
        }
        self.work.backlog.messages.clear();
    }
}
