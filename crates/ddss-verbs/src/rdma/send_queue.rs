//! Send queue of one connection, in front of the adapter's: queued work, operations in flight, answers and credits.
//!
//! Work stays in order. The first operation that cannot be posted stops the rest: a message without a credit, a read
//! after an atomic that the home's thread has not answered, an atomic after reads (both would overtake).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::frame::{AtomicOp, Frame, HEAD_BYTES_MAX};
use super::peer_resources::{PeerResources, SlotLayout};
use crate::events::{Events, WorkError};
use crate::id::PeerId;
use crate::limits::{BACKLOG_MAX, BACKLOG_MESSAGE_BYTES_MAX};
use crate::sys::rdma_core::{FailureCause, FinishedWork, Queue, Registered, Request};
use crate::terminate_code::TerminateCode;

/// Operations reserved for answers and credits.
const RESERVED: usize = 4;

/// Queued work with its resources.
pub(super) enum PendingWork {
    Read { local: (Arc<Registered>, u64, u32), key: u32, address: u64, fenced: bool },
    Write { local: (Arc<Registered>, u64, u32), key: u32, address: u64 },
    Message { bytes: Box<[u8]>, solicited: bool, invalidate: Option<u32> },
    Immediate { data: [u8; 8], solicited: bool },
    Atomic { key: u32, address: u64, change: AtomicOp },
}

impl PendingWork {
    fn message_bytes(&self) -> usize {
        match self {
            PendingWork::Message { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }
}

/// An operation in the adapter's queue; its index in the table is the token.
#[derive(Clone, Copy, Debug)]
enum PostedWork {
    Read(u64),
    Write(u64),
    Word(u64),
    Message(u64),
    /// Request of an atomic; the answer completes it.
    Ticket(u32),
    /// An answer, or credits.
    Ours,
}

/// Send queue of one connection.
pub(super) struct SendQueue {
    id: PeerId,
    layout: SlotLayout,
    ops: Vec<PostedWork>,
    free: Vec<u16>,
    backlog: VecDeque<(u64, PendingWork)>,
    /// Bytes of its messages.
    backlog_bytes: usize,
    /// Atomics that the home's thread has not answered.
    asked: VecDeque<(u32, u64)>,
    next_ticket: u32,
    answers: VecDeque<(u32, Result<u64, TerminateCode>)>,
    reads: usize,
    /// Messages that the peer can still receive.
    credits: u32,
    /// Receive slots that were posted again and not yet reported as credits.
    returned_slots: u32,
    /// The peer uses neither credits nor frames.
    pub(super) is_plain: bool,
    /// The local adapter executes atomics on local words.
    local_adapter_atomics: bool,
    /// The peer's adapter executes atomics on the peer's words.
    pub(super) adapter_atomics: bool,
    /// Messages may be sent to the peer.
    pub(super) can_send_frames: bool,
    /// The peer's refusal: nothing after it was executed.
    pub(super) refused: Option<TerminateCode>,
    /// The first failure.
    pub(super) failing: Option<FailureCause>,
    /// Something completed, or credits arrived, since the last check.
    pub(super) progressed: bool,
}

impl SendQueue {
    pub(super) fn new(id: PeerId, layout: SlotLayout, local_adapter_atomics: bool) -> Self {
        Self {
            id,
            layout,
            ops: vec![PostedWork::Ours; layout.count()],
            free: (0..layout.count() as u16).rev().collect(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            asked: VecDeque::new(),
            next_ticket: 0,
            answers: VecDeque::new(),
            reads: 0,
            credits: layout.count() as u32,
            returned_slots: 0,
            is_plain: false,
            local_adapter_atomics,
            adapter_atomics: false,
            can_send_frames: false,
            refused: None,
            failing: None,
            progressed: false,
        }
    }

    /// Returns true if nothing failed.
    pub(super) fn is_healthy(&self) -> bool {
        self.refused.is_none() && self.failing.is_none()
    }

    /// Returns true if operations wait for the peer.
    pub(super) fn is_waiting(&self) -> bool {
        self.free.len() < self.ops.len() || !self.backlog.is_empty() || !self.asked.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.backlog.len() >= BACKLOG_MAX || self.backlog_bytes >= BACKLOG_MESSAGE_BYTES_MAX
    }

    /// Returns true if no queued work is ahead of new work.
    pub(super) fn has_no_backlog(&self) -> bool {
        self.backlog.is_empty()
    }

    pub(super) fn enqueue(&mut self, tag: u64, step: PendingWork) {
        self.backlog_bytes += step.message_bytes();
        self.backlog.push_back((tag, step));
    }

    /// Returns true if this work can be posted to the adapter now.
    pub(super) fn can_post(&self, queue: &Queue, step: &PendingWork) -> bool {
        if !self.can_send_frames || queue.room() <= RESERVED {
            return false;
        }
        match step {
            PendingWork::Read { .. } => self.asked.is_empty(),
            PendingWork::Write { .. } => true,
            PendingWork::Message { .. } | PendingWork::Immediate { .. } => self.can_send(queue),
            PendingWork::Atomic { .. } if self.adapter_atomics => self.asked.is_empty(),
            PendingWork::Atomic { .. } => self.can_ask(),
        }
    }

    /// Returns true if the peer's thread can be asked for an atomic now. The peer stores a limited number of answers,
    /// however late its adapter sends them.
    fn can_ask(&self) -> bool {
        self.credits > 0 && self.reads == 0 && self.asked.len() < self.layout.count()
    }

    /// Records that the peer's thread is asked for an atomic; returns the number of the request.
    fn ask(&mut self, tag: u64) -> u32 {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        self.asked.push_back((ticket, tag));
        ticket
    }

    /// Returns true if a message can be posted to the adapter now.
    pub(super) fn can_send(&self, queue: &Queue) -> bool {
        self.can_send_frames && queue.room() > RESERVED && (self.is_plain || self.credits > 0)
    }

    /// Adds one operation to the next batch for the adapter.
    pub(super) fn post(&mut self, queue: &mut Queue, resources: &PeerResources, tag: u64, step: PendingWork) {
        match step {
            PendingWork::Read { local, key, address, fenced } => {
                self.reads += 1;
                let token = self.take(PostedWork::Read(tag));
                queue.push(token as u64, Request::Read { local, key, address, fenced });
            }
            PendingWork::Write { local, key, address } => {
                let token = self.take(PostedWork::Write(tag));
                queue.push(token as u64, Request::Write { local, key, address });
            }
            PendingWork::Message { bytes, solicited, invalidate } => {
                self.send(queue, resources, tag, Frame::Message { bytes: &bytes, solicited, invalidate });
            }
            PendingWork::Immediate { data, solicited } => {
                self.send(queue, resources, tag, Frame::Immediate { data, solicited });
            }
            PendingWork::Atomic { key, address, change } if self.adapter_atomics => {
                self.reads += 1;
                let token = self.take(PostedWork::Word(tag));
                let local = resources.word_slot(token);
                let request = match change {
                    AtomicOp::CompareSwap { compare, swap } => {
                        Request::CompareSwap { local, key, address, compare, swap }
                    }
                    AtomicOp::FetchAdd { add } => Request::FetchAdd { local, key, address, add },
                };
                queue.push(token as u64, request);
            }
            PendingWork::Atomic { key, address, change } => {
                let ticket = self.ask(tag);
                self.frame(
                    queue,
                    resources,
                    PostedWork::Ticket(ticket),
                    &Frame::Atomic { ticket, key, address, change },
                );
            }
        }
    }

    /// Adds one message to the next batch for the adapter.
    pub(super) fn send(&mut self, queue: &mut Queue, resources: &PeerResources, tag: u64, frame: Frame<'_>) {
        self.frame(queue, resources, PostedWork::Message(tag), &frame);
    }

    fn frame(&mut self, queue: &mut Queue, resources: &PeerResources, op: PostedWork, frame: &Frame<'_>) {
        let token = self.take(op);
        let (slots, offset) = resources.send_slot(token);
        let slots = Arc::clone(slots);
        let (bytes, solicited) = match frame {
            Frame::Message { bytes, solicited, .. } if self.is_plain => {
                resources.fill(offset, bytes);
                (bytes.len(), *solicited)
            }
            framed => {
                let mut head = [0; HEAD_BYTES_MAX];
                let bytes = framed.encode(std::mem::take(&mut self.returned_slots) as u16, &mut head);
                resources.fill(offset, &head[..bytes]);
                resources.fill(offset + bytes as u64, framed.payload());
                self.credits -= u32::from(framed.costs_credit());
                (
                    bytes + framed.payload().len(),
                    matches!(framed, Frame::Message { solicited: true, .. } | Frame::Immediate { solicited: true, .. }),
                )
            }
        };
        queue.push(token as u64, Request::Send { local: (slots, offset, bytes as u32), solicited });
    }

    fn take(&mut self, op: PostedWork) -> usize {
        let token = usize::from(self.free.pop().expect("the queue had room, and has as many as this"));
        self.ops[token] = op;
        token
    }

    /// Sends the first frame of the connecting side, after which the accepting side may send.
    pub(super) fn send_first_credits(&mut self, queue: &mut Queue, resources: &PeerResources) {
        if !self.is_plain {
            self.give_credits(queue, resources);
        }
    }

    fn give_credits(&mut self, queue: &mut Queue, resources: &PeerResources) {
        let frame = Frame::Credits { adapter_atomics: self.local_adapter_atomics };
        self.frame(queue, resources, PostedWork::Ours, &frame);
    }

    /// Posts to the adapter: answers, then work in order, then credits if no frame carried them.
    pub(super) fn flush(
        &mut self,
        queue: &mut Queue,
        resources: &PeerResources,
        completions: &mut Vec<FinishedWork>,
    ) -> io::Result<()> {
        while !self.answers.is_empty() && self.can_send_frames && self.credits > 0 && queue.room() > 1 {
            let (ticket, result) = self.answers.pop_front().expect("it was looked at");
            self.frame(queue, resources, PostedWork::Ours, &Frame::Answer { ticket, result });
        }
        while self.backlog.front().is_some_and(|(_, step)| self.can_post(queue, step)) {
            let (tag, step) = self.backlog.pop_front().expect("it was looked at");
            self.backlog_bytes -= step.message_bytes();
            self.post(queue, resources, tag, step);
        }
        if self.owes_credits() && !self.is_plain && self.can_send_frames && queue.room() > 0 {
            self.give_credits(queue, resources);
        }
        queue.ring(completions)
    }

    /// Returns true if [`flush`](Self::flush) could post anything.
    pub(super) fn has_more(&self) -> bool {
        !self.backlog.is_empty() || !self.answers.is_empty() || self.owes_credits()
    }

    /// Returns true if enough credits are due to be returned in a frame of their own.
    fn owes_credits(&self) -> bool {
        self.returned_slots >= self.layout.count() as u32 / 2
    }

    /// Returns the bytes of the longest message.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.layout.message_bytes_max()
    }

    /// Counts a receive slot that was posted again.
    pub(super) fn count_returned_slot(&mut self) {
        self.returned_slots += 1;
    }

    /// Adds credits from the peer. False if the total exceeds its receive slots.
    pub(super) fn credit(&mut self, more: u16) -> bool {
        self.credits += u32::from(more);
        self.progressed |= more > 0;
        self.credits <= self.layout.count() as u32
    }

    /// Queues the result of a peer's atomic. False if the peer has too many in flight.
    pub(super) fn answer(&mut self, ticket: u32, result: Result<u64, TerminateCode>) -> bool {
        self.answers.push_back((ticket, result));
        self.answers.len() <= self.layout.count()
    }

    /// Completes the atomic that the peer answered. False if the answer is out of order.
    pub(super) fn answered(&mut self, ticket: u32, result: Result<u64, TerminateCode>, events: &mut Events) -> bool {
        let Some((expected, tag)) = self.asked.pop_front() else { return false };
        self.progressed = true;
        if let Err(fault) = result {
            self.refused = self.refused.or(Some(fault));
        }
        events.push_done(self.id, tag, result.map_err(WorkError::Refused));
        expected == ticket
    }

    /// Processes completions of the adapter.
    pub(super) fn take_completions(
        &mut self,
        resources: &PeerResources,
        completions: &mut Vec<FinishedWork>,
        events: &mut Events,
    ) {
        for FinishedWork { token, result } in completions.drain(..) {
            let token = token as usize;
            let op = std::mem::replace(&mut self.ops[token], PostedWork::Ours);
            self.free.push(token as u16);
            self.progressed = true;
            let outcome = result.map_err(|failing| self.judge(failing));
            match op {
                PostedWork::Read(tag) => {
                    self.reads -= 1;
                    events.push_done(self.id, tag, outcome.map(|()| 0));
                }
                PostedWork::Word(tag) => {
                    self.reads -= 1;
                    events.push_done(self.id, tag, outcome.map(|()| resources.word(token)));
                }
                PostedWork::Write(tag) | PostedWork::Message(tag) => {
                    events.push_done(self.id, tag, outcome.map(|()| 0))
                }
                PostedWork::Ticket(ticket) => {
                    if let Err(error) = outcome
                        && error.is_definite()
                        && let Some(at) = self.asked.iter().position(|(asked, _)| *asked == ticket)
                        && let Some((_, tag)) = self.asked.remove(at)
                    {
                        events.push_done(self.id, tag, Err(error));
                    }
                }
                PostedWork::Ours => {}
            }
        }
    }

    /// Maps a failure to the error of the operation.
    fn judge(&mut self, failing: FailureCause) -> WorkError {
        self.failing = self.failing.or(Some(failing));
        match failing {
            FailureCause::Refused => {
                let fault = TerminateCode::RDMAP_PROTECTION;
                self.refused = self.refused.or(Some(fault));
                WorkError::Refused(fault)
            }
            FailureCause::NotPosted => WorkError::NotExecuted,
            // The peer stopped at the refused operation, which was ahead of this one.
            FailureCause::Flushed if self.refused.is_some() => WorkError::NotExecuted,
            FailureCause::Flushed | FailureCause::NoAnswer | FailureCause::Other(_) | FailureCause::NoCompletion => {
                WorkError::Indeterminate
            }
        }
    }

    /// Completes the work that was never posted to the adapter.
    pub(super) fn drop_backlog(&mut self, events: &mut Events) {
        self.backlog_bytes = 0;
        for (tag, _) in self.backlog.drain(..) {
            events.push_done(self.id, tag, Err(WorkError::NotExecuted));
        }
    }

    /// Completes the rest: no more answers will arrive.
    pub(super) fn abandon_pending(&mut self, events: &mut Events) {
        self.drop_backlog(events);
        for (_, tag) in self.asked.drain(..) {
            events.push_done(self.id, tag, Err(WorkError::Indeterminate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_asked_for_as_many_atomics_as_it_keeps_answers() {
        // If this failed, a peer whose adapter sends slowly would take our atomics for a violation, and end the connection.
        let layout = SlotLayout::new(32 << 10);
        let id = PeerId { index: 0, generation: 1 };
        let (mut asking, mut answering) = (SendQueue::new(id, layout, false), SendQueue::new(id, layout, false));
        let mut events = Events::new();
        for tag in 0..layout.count() as u64 {
            assert!(asking.can_ask());
            let ticket = asking.ask(tag);
            assert!(answering.answer(ticket, Ok(tag)), "the answer has room");
        }
        assert!(!asking.can_ask(), "the credits do not count the answers");
        let (ticket, result) = answering.answers.pop_front().expect("it was kept");
        assert!(asking.answered(ticket, result, &mut events));
        assert!(asking.can_ask());
        assert!(answering.answer(asking.ask(0), Ok(0)));
        assert!(!answering.answer(asking.ask(1), Ok(0)), "a peer that asks for more is a violation");
    }
}
