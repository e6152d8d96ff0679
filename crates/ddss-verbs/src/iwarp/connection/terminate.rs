//! End of a connection: the terminate message, and the completion of every operation.

use super::responder::Source;
use super::{Connection, Context, Stage};
use crate::events::{CloseReason, WorkError};
use crate::iwarp::ddp::{UNTAGGED_BYTES, Untagged, queue};
use crate::iwarp::rdmap::{Opcode, TERMINATE_BYTES_MAX, Terminate};
use crate::iwarp::send_queue::Payload;
use crate::limits::OUTBOX_BYTES;
use crate::memory::Registry;
use crate::terminate_code::TerminateCode;

impl Connection {
    /// Ends the connection because of a protocol violation, with a terminate message. `segment` is the offending
    /// ULPDU, if there is one, as far as it has arrived, and its length.
    pub(super) fn fail(&mut self, fault: TerminateCode, blamed: Option<(&[u8], usize)>, cx: &mut Context<'_>) {
        if self.stage == Stage::Ended {
            return;
        }
        // Earlier requests are still answered, as far as there is room.
        while self.stage == Stage::Open && self.outbox.has_room(OUTBOX_BYTES) {
            if self.streaming.is_some() {
                self.stream(Some(OUTBOX_BYTES), Source::Copied, cx.memory);
            } else if !self.respond(cx) {
                break;
            }
        }
        let mut body = [0; TERMINATE_BYTES_MAX];
        let bytes = Terminate::encode(fault, blamed, &mut body);
        let rdmap = Opcode::Terminate.control();
        let header = Untagged { last: true, rdmap, word: 0, queue: queue::TERMINATE, sequence: 1, offset: 0 };
        let header: [u8; UNTAGGED_BYTES] = header.encode();
        self.outbox.frame(&header, Payload::Bytes(&body[..bytes]), cx.memory);
        self.end(CloseReason::Broken(fault), &[], true, None, cx);
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
        self.announce = false;
        self.abandon_partial(cx.memory);
        self.partial = None;
        self.end_work(flush, terminate, cx);
        for response in self.responses.drain(..) {
            if let Some(region) = response.region() {
                cx.memory.release(region);
            }
        }
        self.windows.clear();
        self.message.clear();
        if !flush {
            self.outbox.clear(cx.memory);
        }
        cx.events.closed(self.id, reason, hello);
    }

    /// Drops the send queue: nothing more will be sent.
    pub(crate) fn discard(&mut self, memory: &mut Registry) {
        self.outbox.clear(memory);
    }

    /// Discards the rest of an arriving segment.
    pub(super) fn abandon_partial(&mut self, memory: &mut Registry) {
        if let Some(partial) = self.partial.as_mut()
            && let Some(region) = partial.abandon(self.stage == Stage::Ended)
        {
            memory.release(region);
        }
    }

    fn end_work(&mut self, flush: bool, terminate: Option<Terminate>, cx: &mut Context<'_>) {
        let consumed = self.outbox.consumed();
        let lost = |start: u64| if !flush && consumed <= start { WorkError::NotDone } else { WorkError::Unknown };
        let blamed = terminate.and_then(|terminate| {
            terminate
                .blamed
                .filter(|blamed| blamed.queue == queue::REQUEST)
                .map(|blamed| (blamed.sequence, terminate.fault))
        });
        let requested = |sequence: u32, start: u64| match blamed {
            Some((named, fault)) if sequence == named => WorkError::Refused(fault),
            // The peer executes requests in order and stopped at the one it named.
            Some((named, _)) if sequence.wrapping_sub(named) < u32::MAX / 2 => WorkError::NotDone,
            _ => lost(start),
        };
        for read in self.reads.drain(..) {
            if let Some(region) = read.region {
                cx.memory.release(region);
            }
            if let Some(tag) = read.tag {
                cx.events.done(self.id, tag, Err(requested(read.sequence, read.start)));
            }
        }
        for atomic in self.atomics.drain(..) {
            cx.events.done(self.id, atomic.tag, Err(requested(atomic.sequence, atomic.start)));
        }
        for receipt in self.receipts.drain(..) {
            let outcome = if receipt.end <= consumed { Ok(0) } else { Err(lost(receipt.start)) };
            cx.events.done(self.id, receipt.tag, outcome);
        }
        if let Some(stream) = self.streaming.take() {
            if let Some(region) = stream.region {
                cx.memory.release(region);
            }
            if let Some((tag, start)) = stream.receipt {
                cx.events.done(self.id, tag, Err(lost(start)));
            }
        }
        for queued in self.backlog.queue.drain(..) {
            if let Some(region) = queued.region() {
                cx.memory.release(region);
            }
            cx.events.done(self.id, queued.tag(), Err(WorkError::NotDone));
        }
        self.backlog.messages.clear();
    }
}
