//! What one connection has to do, is doing, and owes: the queue in front of the adapter's.
//!
//! Work is kept in order. The first that cannot be given to the adapter yet stops the rest: a message without a credit, a
//! read behind an atomic that the home's thread has not answered, an atomic behind reads (both would overtake).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::frame::{AtomicOp, FRAME_BYTES_MAX, Frame};
use super::peer_resources::{PeerResources, RECEIVES, SENDS};
use crate::events::{Events, WorkError};
use crate::fabric::PeerId;
use crate::limits::BACKLOG_MAX;
use crate::sys::rdma_core::{FailureCause, FinishedWork, Queue, Registered, Request};
use crate::terminate_code::TerminateCode;

/// Operations that are kept for answers and credits, whatever else waits.
const RESERVED: usize = 4;
/// Credits are given back when so many are owed and nothing else goes there.
const OWED_MAX: u32 = RECEIVES as u32 / 2;

/// One piece of work that waits, with whatever it needs.
pub(super) enum PendingWork {
    Read { local: (Arc<Registered>, u64, u32), key: u32, address: u64, fenced: bool },
    Write { local: (Arc<Registered>, u64, u32), key: u32, address: u64 },
    Message { bytes: Box<[u8]>, solicited: bool, invalidate: Option<u32> },
    Immediate { data: [u8; 8], solicited: bool },
    Atomic { key: u32, address: u64, change: AtomicOp },
}

/// An operation in the adapter's hands; its place in the table is the token.
#[derive(Clone, Copy, Debug)]
enum PostedWork {
    Read(u64),
    Write(u64),
    Word(u64),
    Message(u64),
    /// The request of an atomic; the answer ends it.
    Ticket(u32),
    /// An answer, or credits.
    Ours,
}

/// See the module.
pub(super) struct SendQueue {
    id: PeerId,
    ops: Vec<PostedWork>,
    free: Vec<u16>,
    backlog: VecDeque<(u64, PendingWork)>,
    /// Atomics that the home's thread has not answered.
    asked: VecDeque<(u32, u64)>,
    next_ticket: u32,
    answers: VecDeque<(u32, Result<u64, TerminateCode>)>,
    reads: usize,
    /// Messages that the peer can still receive.
    credits: u32,
    /// Receive slots that were given back and not yet told of.
    owed: u32,
    /// The peer has no credits and no frames.
    pub(super) plain: bool,
    /// Our words belong to our adapter.
    our_adapter_atomics: bool,
    /// The peer's words belong to its adapter.
    pub(super) adapter_atomics: bool,
    /// The other side may be spoken to.
    pub(super) may_speak: bool,
    /// What the peer refused: nothing behind it was done.
    pub(super) refused: Option<TerminateCode>,
    /// The first thing that went wrong.
    pub(super) failing: Option<FailureCause>,
    /// Something ended or was allowed since somebody looked.
    pub(super) progressed: bool,
}

impl SendQueue {
    pub(super) fn new(id: PeerId, our_adapter_atomics: bool) -> Self {
        Self {
            id,
            ops: vec![PostedWork::Ours; SENDS],
            free: (0..SENDS as u16).rev().collect(),
            backlog: VecDeque::new(),
            asked: VecDeque::new(),
            next_ticket: 0,
            answers: VecDeque::new(),
            reads: 0,
            credits: RECEIVES as u32,
            owed: 0,
            plain: false,
            our_adapter_atomics,
            adapter_atomics: false,
            may_speak: false,
            refused: None,
            failing: None,
            progressed: false,
        }
    }

    /// Whether nothing went wrong.
    pub(super) fn is_well(&self) -> bool {
        self.refused.is_none() && self.failing.is_none()
    }

    /// Whether somebody waits for the peer.
    pub(super) fn is_waiting(&self) -> bool {
        self.free.len() < SENDS || !self.backlog.is_empty() || !self.asked.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.backlog.len() >= BACKLOG_MAX
    }

    /// Whether nothing is in front of new work.
    pub(super) fn is_clear(&self) -> bool {
        self.backlog.is_empty()
    }

    pub(super) fn wait(&mut self, tag: u64, step: PendingWork) {
        self.backlog.push_back((tag, step));
    }

    /// Whether this can be given to the adapter now.
    pub(super) fn can(&self, queue: &Queue, step: &PendingWork) -> bool {
        if !self.may_speak || queue.room() <= RESERVED {
            return false;
        }
        match step {
            PendingWork::Read { .. } => self.asked.is_empty(),
            PendingWork::Write { .. } => true,
            PendingWork::Message { .. } | PendingWork::Immediate { .. } => self.can_send(queue),
            PendingWork::Atomic { .. } if self.adapter_atomics => self.asked.is_empty(),
            PendingWork::Atomic { .. } => self.credits > 0 && self.reads == 0,
        }
    }

    /// Whether a message can be given to the adapter now.
    pub(super) fn can_send(&self, queue: &Queue) -> bool {
        self.may_speak && queue.room() > RESERVED && (self.plain || self.credits > 0)
    }

    /// Gives one step to the adapter, with the next ring.
    pub(super) fn go(&mut self, queue: &mut Queue, holdings: &PeerResources, tag: u64, step: PendingWork) {
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
                self.send(queue, holdings, tag, Frame::Message { bytes: &bytes, solicited, invalidate });
            }
            PendingWork::Immediate { data, solicited } => {
                self.send(queue, holdings, tag, Frame::Immediate { data, solicited });
            }
            PendingWork::Atomic { key, address, change } if self.adapter_atomics => {
                self.reads += 1;
                let token = self.take(PostedWork::Word(tag));
                let local = holdings.word_slot(token);
                let request = match change {
                    AtomicOp::CompareSwap { compare, swap } => {
                        Request::CompareSwap { local, key, address, compare, swap }
                    }
                    AtomicOp::FetchAdd { add } => Request::FetchAdd { local, key, address, add },
                };
                queue.push(token as u64, request);
            }
            PendingWork::Atomic { key, address, change } => {
                let ticket = self.next_ticket;
                self.next_ticket = ticket.wrapping_add(1);
                self.asked.push_back((ticket, tag));
                self.frame(
                    queue,
                    holdings,
                    PostedWork::Ticket(ticket),
                    &Frame::Atomic { ticket, key, address, change },
                );
            }
        }
    }

    /// Gives a message to the adapter, with the next ring.
    pub(super) fn send(&mut self, queue: &mut Queue, holdings: &PeerResources, tag: u64, frame: Frame<'_>) {
        self.frame(queue, holdings, PostedWork::Message(tag), &frame);
    }

    fn frame(&mut self, queue: &mut Queue, holdings: &PeerResources, op: PostedWork, frame: &Frame<'_>) {
        let token = self.take(op);
        let (slots, offset) = holdings.send_slot(token);
        let slots = Arc::clone(slots);
        let (bytes, solicited) = match frame {
            Frame::Message { bytes, solicited, .. } if self.plain => {
                holdings.fill(offset, bytes);
                (bytes.len(), *solicited)
            }
            framed => {
                let mut out = [0; FRAME_BYTES_MAX];
                let bytes = framed.encode(std::mem::take(&mut self.owed) as u16, &mut out);
                holdings.fill(offset, &out[..bytes]);
                self.credits -= u32::from(framed.costs_credit());
                (
                    bytes,
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

    /// The first word of the side that connected, so that the other one may speak.
    pub(super) fn greet(&mut self, queue: &mut Queue, holdings: &PeerResources) {
        if !self.plain {
            self.give_credits(queue, holdings);
        }
    }

    fn give_credits(&mut self, queue: &mut Queue, holdings: &PeerResources) {
        let frame = Frame::Credits { adapter_atomics: self.our_adapter_atomics };
        self.frame(queue, holdings, PostedWork::Ours, &frame);
    }

    /// Gives to the adapter what can go: answers, then work in order, then credits if nothing carried them.
    pub(super) fn flush(
        &mut self,
        queue: &mut Queue,
        holdings: &PeerResources,
        ended: &mut Vec<FinishedWork>,
    ) -> io::Result<()> {
        while !self.answers.is_empty() && self.may_speak && self.credits > 0 && queue.room() > 1 {
            let (ticket, result) = self.answers.pop_front().expect("it was looked at");
            self.frame(queue, holdings, PostedWork::Ours, &Frame::Answer { ticket, result });
        }
        while self.backlog.front().is_some_and(|(_, step)| self.can(queue, step)) {
            let (tag, step) = self.backlog.pop_front().expect("it was looked at");
            self.go(queue, holdings, tag, step);
        }
        if self.owed >= OWED_MAX && !self.plain && self.may_speak && queue.room() > 0 {
            self.give_credits(queue, holdings);
        }
        queue.ring(ended)
    }

    /// Whether there is anything that [`flush`](Self::flush) could give to the adapter.
    pub(super) fn has_more(&self) -> bool {
        !self.backlog.is_empty() || !self.answers.is_empty() || self.owed >= OWED_MAX
    }

    /// A receive slot was given back to the adapter.
    pub(super) fn owe(&mut self) {
        self.owed += 1;
    }

    /// The peer can receive more. False if it claims more than there is.
    pub(super) fn credit(&mut self, more: u16) -> bool {
        self.credits += u32::from(more);
        self.progressed |= more > 0;
        self.credits <= RECEIVES as u32
    }

    /// Queues what an atomic of the peer found. False if the peer asks for more than it may have under way.
    pub(super) fn answer(&mut self, ticket: u32, result: Result<u64, TerminateCode>) -> bool {
        self.answers.push_back((ticket, result));
        self.answers.len() <= RECEIVES
    }

    /// An atomic of ours was answered. False if it is not the one whose turn it is.
    pub(super) fn answered(&mut self, ticket: u32, result: Result<u64, TerminateCode>, events: &mut Events) -> bool {
        let Some((expected, tag)) = self.asked.pop_front() else { return false };
        self.progressed = true;
        if let Err(fault) = result {
            self.refused = self.refused.or(Some(fault));
        }
        events.done(self.id, tag, result.map_err(WorkError::Refused));
        expected == ticket
    }

    /// What the adapter says has ended.
    pub(super) fn take_ended(&mut self, holdings: &PeerResources, ended: &mut Vec<FinishedWork>, events: &mut Events) {
        for FinishedWork { token, result } in ended.drain(..) {
            let token = token as usize;
            let op = std::mem::replace(&mut self.ops[token], PostedWork::Ours);
            self.free.push(token as u16);
            self.progressed = true;
            let outcome = result.map_err(|failing| self.judge(failing));
            match op {
                PostedWork::Read(tag) => {
                    self.reads -= 1;
                    events.done(self.id, tag, outcome.map(|()| 0));
                }
                PostedWork::Word(tag) => {
                    self.reads -= 1;
                    events.done(self.id, tag, outcome.map(|()| holdings.word(token)));
                }
                PostedWork::Write(tag) | PostedWork::Message(tag) => events.done(self.id, tag, outcome.map(|()| 0)),
                PostedWork::Ticket(ticket) => {
                    if let Err(error) = outcome
                        && error.certain()
                        && let Some(at) = self.asked.iter().position(|(asked, _)| *asked == ticket)
                        && let Some((_, tag)) = self.asked.remove(at)
                    {
                        events.done(self.id, tag, Err(error));
                    }
                }
                PostedWork::Ours => {}
            }
        }
    }

    /// What a failure means for the one who asked.
    fn judge(&mut self, failing: FailureCause) -> WorkError {
        self.failing = self.failing.or(Some(failing));
        match failing {
            FailureCause::Refused => {
                let fault = TerminateCode::RDMAP_PROTECTION;
                self.refused = self.refused.or(Some(fault));
                WorkError::Refused(fault)
            }
            FailureCause::NotPosted => WorkError::NotDone,
            // The peer stopped at what it refused, and this came behind it.
            FailureCause::Flushed if self.refused.is_some() => WorkError::NotDone,
            FailureCause::Flushed | FailureCause::Unanswered | FailureCause::Other(_) | FailureCause::Unsaid => {
                WorkError::Unknown
            }
        }
    }

    /// What was never given to the adapter ends.
    pub(super) fn drop_backlog(&mut self, events: &mut Events) {
        for (tag, _) in self.backlog.drain(..) {
            events.done(self.id, tag, Err(WorkError::NotDone));
        }
    }

    /// Nothing more will be heard: what the home's thread has not answered ends.
    pub(super) fn give_up(&mut self, events: &mut Events) {
        self.drop_backlog(events);
        for (_, tag) in self.asked.drain(..) {
            events.done(self.id, tag, Err(WorkError::Unknown));
        }
    }
}
