//! `Mq` and `Rmq`: System V message queues, both ways or only for replies.
//!
//! No thread blocks on a full queue: entries that do not fit wait in a backlog, bounded by the channel's window. Beside
//! each message the client increments a word in its control line. So the service asks the kernel only for messages that
//! exist, and an idle client costs it no system call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_core::Entry;
use ddss_core::limits::RING_SLOTS;

use super::channel_transport::{ChannelTransport, WaitOutcome};
use super::sysv_timeout::TimeoutSlots;
use crate::connection::Connection;
use crate::shm::layout::Layout;
use crate::shm::mapped_ring::MappedRing;
use crate::shm::ring::{Kind, Producer};
use crate::strategy::WaitClass;
use crate::sync::{Ordering, order};
use crate::sys::{MappedWord, MemoryError, Queue, Received, SharedMemory};
use crate::trace_sampling::{clock_ns, encode_stamp, is_sampled};
use crate::wait::park;
use crate::wait::park::{ParkCondition, SleepMode};

/// Sleep of a channel without requests in flight before it retries its backlog: other channels of its client have
/// filled the queue.
const BACKLOG_RETRY: Duration = Duration::from_millis(1);

/// Parts of a transport over a queue.
pub(crate) struct SysvParts<'parts> {
    pub(crate) connection: &'parts Arc<Connection>,
    pub(crate) timeout_slots: &'parts Arc<TimeoutSlots>,
    pub(crate) memory: &'parts SharedMemory,
    pub(crate) layout: &'parts Layout,
    pub(crate) channel: usize,
}

/// The end of the reply queue that one channel reads.
struct ReplyQueue {
    connection: Arc<Connection>,
    timeout_slots: Arc<TimeoutSlots>,
    queue: Queue,
    channel: u8,
    /// Entry that was received and not yet taken.
    next: Option<Entry>,
    received: u32,
    /// Copy of `received` for the service, which keeps no more messages of a channel in the queue than its share.
    taken_word: MappedWord,
    control: MappedWord,
    /// The service defers replies because a channel has its share of messages in the queue.
    deferred: MappedWord,
    rung_for: u64,
}

impl ReplyQueue {
    fn new(parts: &SysvParts<'_>, queue: Queue) -> Result<Self, MemoryError> {
        Ok(Self {
            connection: Arc::clone(parts.connection),
            timeout_slots: Arc::clone(parts.timeout_slots),
            queue,
            channel: parts.channel as u8,
            next: None,
            received: 0,
            taken_word: parts.memory.word_at(parts.layout.taken_offset(parts.channel))?,
            control: parts.memory.word_at(parts.layout.control_offset(parts.channel))?,
            deferred: parts.memory.word_at(parts.layout.deferred_offset())?,
            rung_for: 0,
        })
    }

    fn ring_doorbell(&mut self) {
        self.connection.ring_doorbell(&mut self.rung_for);
    }

    fn take(&mut self) -> Option<Entry> {
        if self.next.is_none() {
            self.poll_queue();
        }
        self.next.take()
    }

    /// Returns true if an entry was received, if necessary from the kernel.
    fn poll_queue(&mut self) -> bool {
        while self.next.is_none() {
            match self.queue.try_receive(self.channel) {
                Ok(Some(received)) => self.handle_received(received),
                Ok(None) => return false,
                Err(_) => {
                    // The daemon has removed the queue: it no longer serves this client.
                    self.connection.set_gone();
                    return false;
                }
            }
        }
        true
    }

    fn handle_received(&mut self, received: Received) {
        match received {
            Received::Entry(entry) => {
                self.next = Some(entry);
                self.received = self.received.wrapping_add(1);
                self.taken_word.store(u64::from(self.received), Ordering::Relaxed);
                order::after_receive();
                if self.deferred.load(Ordering::Relaxed) != 0 {
                    self.ring_doorbell();
                }
            }
            Received::Nudge => self.timeout_slots.clear_nudge(self.channel),
            Received::Malformed => {}
        }
    }

    /// Blocks for one message, at most until about the deadline.
    fn block(&mut self, deadline: Instant) {
        self.timeout_slots.begin_wait(self.channel, deadline);
        let received = self.queue.receive(self.channel);
        self.timeout_slots.end_wait(self.channel);
        match received {
            Ok(received) => self.handle_received(received),
            Err(_) => self.connection.set_gone(),
        }
    }

    fn wait(&mut self, deadline: Instant) -> WaitOutcome {
        loop {
            if self.poll_queue() {
                return WaitOutcome::Ready;
            }
            if self.connection.is_gone() {
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
        let mut last_poll =
            LastPoll { queue: self.queue, channel: self.channel, awaited: self.received.wrapping_add(1), found: None };
        let armed = self.next.is_none() && park::announce_sleep(control, SleepMode::Socket, &mut last_poll);
        if let Some(received) = last_poll.found {
            self.handle_received(received);
        }
        armed
    }
}

/// The last poll before a channel sleeps. A message that it finds is stored.
struct LastPoll {
    queue: Queue,
    channel: u8,
    awaited: u32,
    found: Option<Received>,
}

impl ParkCondition for LastPoll {
    fn sequence(&self) -> u32 {
        self.awaited
    }

    fn is_ready(&mut self) -> bool {
        // An error (the queue is gone) counts as ready: the caller then polls itself.
        self.found = self.queue.try_receive(self.channel).unwrap_or(Some(Received::Malformed));
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
        let requests = Producer::new(parts.memory.ring_at(parts.layout.ring_offset(parts.channel))?, Kind::Request, 0);
        let stamp = parts.memory.word_at(parts.layout.stamp_offset(parts.channel))?;
        Ok(Self { requests, stamp, replies: ReplyQueue::new(parts, replies)? })
    }
}

impl ChannelTransport for Rmq {
    fn submit(&mut self, entry: &Entry) {
        let position = self.requests.count();
        if is_sampled(position) {
            self.stamp.store(encode_stamp(position, clock_ns()), Ordering::Relaxed);
        }
        self.requests.publish(entry);
    }

    fn ring_doorbell(&mut self) {
        self.replies.ring_doorbell();
    }

    fn connection(&self) -> &Connection {
        &self.replies.connection
    }

    fn take(&mut self) -> Option<Entry> {
        self.replies.take()
    }

    fn is_ready(&mut self) -> bool {
        self.replies.poll_queue()
    }

    fn wait(&mut self, _class: WaitClass, deadline: Instant) -> WaitOutcome {
        self.replies.wait(deadline)
    }

    fn arm_async(&mut self) -> bool {
        self.replies.arm_async()
    }

    fn disarm_async(&mut self) {
        park::announce_awake(&self.replies.control);
    }
}

/// Message queues both ways: both sides sleep in the kernel.
pub(crate) struct Mq {
    queue: Queue,
    /// Count of messages sent, for the service.
    sent_word: MappedWord,
    sent: u64,
    stamp: MappedWord,
    /// Requests that do not fit into the queue; with those in flight never more than a window.
    backlog: VecDeque<Entry>,
    in_flight: usize,
    replies: ReplyQueue,
}

impl Mq {
    pub(crate) fn new(parts: &SysvParts<'_>, requests: Queue, replies: Queue) -> Result<Self, MemoryError> {
        Ok(Self {
            queue: requests,
            sent_word: parts.memory.word_at(parts.layout.sent_offset(parts.channel))?,
            sent: 0,
            stamp: parts.memory.word_at(parts.layout.stamp_offset(parts.channel))?,
            backlog: VecDeque::with_capacity(RING_SLOTS),
            in_flight: 0,
            replies: ReplyQueue::new(parts, replies)?,
        })
    }

    /// Sends the backlog, as far as there is room.
    fn send_backlog(&mut self) {
        let before = self.sent;
        while let Some(entry) = self.backlog.front() {
            if !self.send(&entry.clone()) {
                break;
            }
            self.backlog.pop_front();
        }
        if self.sent != before {
            self.replies.ring_doorbell();
        }
    }

    fn send(&mut self, entry: &Entry) -> bool {
        let position = self.sent as u32;
        if is_sampled(position) {
            self.stamp.store(encode_stamp(position, clock_ns()), Ordering::Relaxed);
        }
        match self.queue.send(self.replies.channel, entry) {
            Ok(()) => {
                self.sent += 1;
                self.in_flight += 1;
                // Pairs with the Acquire of the service, which then asks the kernel for the message.
                self.sent_word.store(self.sent, Ordering::Release);
                true
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => {
                self.replies.connection.set_gone();
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

    fn ring_doorbell(&mut self) {
        self.replies.ring_doorbell();
    }

    fn connection(&self) -> &Connection {
        &self.replies.connection
    }

    fn take(&mut self) -> Option<Entry> {
        let entry = self.replies.take();
        if entry.is_some() {
            self.in_flight -= self.in_flight.min(1);
            self.send_backlog();
        }
        entry
    }

    fn is_ready(&mut self) -> bool {
        self.replies.poll_queue()
    }

    fn wait(&mut self, _class: WaitClass, deadline: Instant) -> WaitOutcome {
        loop {
            self.send_backlog();
            if self.in_flight > 0 || self.backlog.is_empty() {
                return self.replies.wait(deadline);
            }
            // This channel has no request in flight, so no reply will arrive before other channels make room.
            if self.replies.connection.is_gone() {
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
        park::announce_awake(&self.replies.control);
    }
}
