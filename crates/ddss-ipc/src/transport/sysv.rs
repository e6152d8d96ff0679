//! `Mq` and `Rmq`: System V message queues, both ways or only back.
//!
//! Nobody blocks on a full queue: what does not fit waits in a backlog that the lane's window bounds. Beside each
//! message the client counts up a word in its own control line, so that the service asks the kernel only for messages
//! that are there, and an idle client costs it no system call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_core::Entry;
use ddss_core::limits::RING_SLOTS;

use super::channel_transport::{ChannelTransport, WaitOutcome};
use super::sysv_timeout::TimeoutSlots;
use crate::client::connection::Connection;
use crate::client::thread_tag::ThreadTag;
use crate::shm::layout::Layout;
use crate::shm::ring::{Kind, MappedRing, Producer};
use crate::strategy::WaitClass;
use crate::sync::{Ordering, order};
use crate::sys::{MappedWord, MemoryError, Queue, Received, SharedMemory};
use crate::trace_sampling::{clock_ns, is_followed, stamp};
use crate::wait::park;
use crate::wait::park::{ParkCondition, SleepMode};

/// How long a lane of which nothing is under way sleeps before it tries to send its backlog again: the other lanes of
/// its client have filled the queue.
const BACKLOG_RETRY: Duration = Duration::from_millis(1);

/// What the road of a queue lane is made of.
pub(crate) struct SysvParts<'parts> {
    pub(crate) link: &'parts Arc<Connection>,
    pub(crate) notes: &'parts Arc<TimeoutSlots>,
    pub(crate) memory: &'parts SharedMemory,
    pub(crate) layout: &'parts Layout,
    pub(crate) lane: usize,
}

/// The end of the reply queue that one lane reads.
struct ReplyQueue {
    link: Arc<Connection>,
    notes: Arc<TimeoutSlots>,
    queue: Queue,
    lane: u8,
    /// Received and not yet taken.
    next: Option<Entry>,
    received: u32,
    /// The same count, for the service to see: it keeps no more messages of a lane in the queue than its share.
    taken_word: MappedWord,
    control: MappedWord,
    /// The service holds replies back because a lane had its share of messages in the queue.
    held: MappedWord,
    caller: ThreadTag,
    rung: u64,
}

impl ReplyQueue {
    fn new(parts: &SysvParts<'_>, queue: Queue) -> Result<Self, MemoryError> {
        Ok(Self {
            link: Arc::clone(parts.link),
            notes: Arc::clone(parts.notes),
            queue,
            lane: parts.lane as u8,
            next: None,
            received: 0,
            taken_word: parts.memory.word_at(parts.layout.taken(parts.lane))?,
            control: parts.memory.word_at(parts.layout.control(parts.lane))?,
            held: parts.memory.word_at(parts.layout.held())?,
            caller: ThreadTag::new(parts.memory, parts.layout, parts.lane)?,
            rung: 0,
        })
    }

    fn ring(&mut self) {
        self.link.ring(&mut self.rung);
    }

    fn take(&mut self) -> Option<Entry> {
        if self.next.is_none() {
            self.look();
        }
        self.next.take()
    }

    /// Whether something was received, asking the kernel if need be.
    fn look(&mut self) -> bool {
        while self.next.is_none() {
            match self.queue.try_receive(self.lane) {
                Ok(Some(received)) => self.note(received),
                Ok(None) => return false,
                Err(_) => {
                    // The daemon has removed the queue: it has let go of this client.
                    self.link.set_gone();
                    return false;
                }
            }
        }
        true
    }

    fn note(&mut self, received: Received) {
        match received {
            Received::Entry(entry) => {
                self.next = Some(entry);
                self.received = self.received.wrapping_add(1);
                self.taken_word.store(u64::from(self.received), Ordering::Relaxed);
                order::after_take();
                if self.held.load(Ordering::Relaxed) != 0 {
                    self.ring();
                }
            }
            Received::Nudge => self.notes.was_nudged(self.lane),
            Received::Nonsense => {}
        }
    }

    /// Blocks for one message, at most (about) to the deadline.
    fn block(&mut self, deadline: Instant) {
        self.notes.wait(self.lane, deadline);
        let received = self.queue.receive(self.lane);
        self.notes.done(self.lane);
        match received {
            Ok(received) => self.note(received),
            Err(_) => self.link.set_gone(),
        }
    }

    fn wait(&mut self, deadline: Instant) -> WaitOutcome {
        loop {
            if self.look() {
                return WaitOutcome::Ready;
            }
            if self.link.is_gone() {
                return WaitOutcome::Gone;
            }
            if Instant::now() >= deadline {
                return WaitOutcome::TimedOut;
            }
            self.block(deadline);
        }
    }

    fn arm_async(&mut self) -> bool {
        let control = &self.control;
        let mut look =
            LastPoll { queue: self.queue, lane: self.lane, awaited: self.received.wrapping_add(1), found: None };
        let armed = self.next.is_none() && park::announce(control, SleepMode::Socket, &mut look);
        if let Some(received) = look.found {
            self.note(received);
        }
        armed
    }
}

/// The last look before a lane sleeps: a message found by it is kept.
struct LastPoll {
    queue: Queue,
    lane: u8,
    awaited: u32,
    found: Option<Received>,
}

impl ParkCondition for LastPoll {
    fn sequence(&self) -> u32 {
        self.awaited
    }

    fn is_ready(&mut self) -> bool {
        // An error (the queue is gone) counts as ready: the caller then looks for itself.
        self.found = self.queue.try_receive(self.lane).unwrap_or(Some(Received::Nonsense));
        self.found.is_some()
    }
}

/// A ring for requests, a message queue for replies: the service polls, the client sleeps.
pub(crate) struct Rmq {
    requests: Producer<MappedRing>,
    stamp: MappedWord,
    replies: ReplyQueue,
}

impl Rmq {
    pub(crate) fn new(parts: &SysvParts<'_>, replies: Queue) -> Result<Self, MemoryError> {
        let requests = Producer::new(parts.memory.ring_at(parts.layout.ring(parts.lane))?, Kind::Request, 0);
        let stamp = parts.memory.word_at(parts.layout.stamp(parts.lane))?;
        Ok(Self { requests, stamp, replies: ReplyQueue::new(parts, replies)? })
    }
}

impl ChannelTransport for Rmq {
    fn submit(&mut self, entry: &Entry) {
        let position = self.requests.count();
        if is_followed(position) {
            self.stamp.store(stamp(position, clock_ns()), Ordering::Relaxed);
        }
        self.replies.caller.tell();
        self.requests.publish(entry);
    }

    fn ring(&mut self) {
        self.replies.ring();
    }

    fn link(&self) -> &Connection {
        &self.replies.link
    }

    fn take(&mut self) -> Option<Entry> {
        self.replies.take()
    }

    fn is_ready(&mut self) -> bool {
        self.replies.look()
    }

    fn wait(&mut self, _class: WaitClass, deadline: Instant) -> WaitOutcome {
        self.replies.wait(deadline)
    }

    fn arm_async(&mut self) -> bool {
        self.replies.arm_async()
    }

    fn disarm_async(&mut self) {
        park::awaken(&self.replies.control);
    }
}

/// Message queues both ways: both sides sleep in the kernel.
pub(crate) struct Mq {
    queue: Queue,
    /// How many messages are in the queue or were, for the service to see.
    sent_word: MappedWord,
    sent: u64,
    stamp: MappedWord,
    /// Requests that the queue had no room for; with those under way never more than a window.
    backlog: VecDeque<Entry>,
    under_way: usize,
    replies: ReplyQueue,
}

impl Mq {
    pub(crate) fn new(parts: &SysvParts<'_>, requests: Queue, replies: Queue) -> Result<Self, MemoryError> {
        Ok(Self {
            queue: requests,
            sent_word: parts.memory.word_at(parts.layout.sent(parts.lane))?,
            sent: 0,
            stamp: parts.memory.word_at(parts.layout.stamp(parts.lane))?,
            backlog: VecDeque::with_capacity(RING_SLOTS),
            under_way: 0,
            replies: ReplyQueue::new(parts, replies)?,
        })
    }

    /// Sends what waits, as far as there is room.
    fn send_backlog(&mut self) {
        let before = self.sent;
        while let Some(entry) = self.backlog.front() {
            if !self.send(&entry.clone()) {
                break;
            }
            self.backlog.pop_front();
        }
        if self.sent != before {
            self.replies.ring();
        }
    }

    fn send(&mut self, entry: &Entry) -> bool {
        let position = self.sent as u32;
        if is_followed(position) {
            self.stamp.store(stamp(position, clock_ns()), Ordering::Relaxed);
        }
        self.replies.caller.tell();
        match self.queue.send(self.replies.lane, entry) {
            Ok(()) => {
                self.sent += 1;
                self.under_way += 1;
                // Pairs with the Acquire by the service, which then asks the kernel for the message.
                self.sent_word.store(self.sent, Ordering::Release);
                true
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => {
                self.replies.link.set_gone();
                false
            }
        }
    }
}

impl ChannelTransport for Mq {
    fn submit(&mut self, entry: &Entry) {
        self.send_backlog();
        if !self.backlog.is_empty() || !self.send(entry) {
            self.backlog.push_back(*entry);
        }
    }

    fn ring(&mut self) {
        self.replies.ring();
    }

    fn link(&self) -> &Connection {
        &self.replies.link
    }

    fn take(&mut self) -> Option<Entry> {
        let entry = self.replies.take();
        if entry.is_some() {
            self.under_way -= self.under_way.min(1);
            self.send_backlog();
        }
        entry
    }

    fn is_ready(&mut self) -> bool {
        self.replies.look()
    }

    fn wait(&mut self, _class: WaitClass, deadline: Instant) -> WaitOutcome {
        loop {
            self.send_backlog();
            if self.under_way > 0 || self.backlog.is_empty() {
                return self.replies.wait(deadline);
            }
            // None of ours is under way, so no reply will come before the other lanes make room.
            if self.replies.link.is_gone() {
                return WaitOutcome::Gone;
            }
            if Instant::now() >= deadline {
                return WaitOutcome::TimedOut;
            }
            std::thread::sleep(BACKLOG_RETRY);
        }
    }

    fn arm_async(&mut self) -> bool {
        self.send_backlog();
        self.replies.arm_async()
    }

    fn disarm_async(&mut self) {
        park::awaken(&self.replies.control);
    }
}
