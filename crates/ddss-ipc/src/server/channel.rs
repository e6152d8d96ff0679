//! The service's ends of one channel, under any strategy.

use std::collections::VecDeque;

use ddss_core::limits::RING_SLOTS;
use ddss_core::{ChannelId, ClientId, Entry};
use rustix::io::Errno;
use rustix::thread::futex;

use super::protocol_violation::ProtocolViolation;
use super::request_handler::RequestHandler;
use super::session::Session;
use super::steady_callers::RequestCount;
use crate::shm::mapped_ring::MappedRing;
use crate::shm::ring::{Consumer, Kind, Producer, Stale, slot_of};
use crate::sync::{Ordering, order};
use crate::sys::{MappedWord, MemoryError, Queue, Received};
use crate::trace_sampling::{TracedRequest, clock_ns, decode_stamp, is_sampled};
use crate::wait::park;
use crate::wait::park::SleepMode;

/// Source of requests.
enum Requests {
    Ring(Consumer<MappedRing>),
    Queue {
        queue: Queue,
        /// Count of messages that the client has sent, as the client states it.
        sent: MappedWord,
        /// Count of messages that were received or attempted.
        received: u64,
    },
}

/// Sink of completions.
enum Completions {
    Ring(Producer<MappedRing>),
    Queue {
        queue: Queue,
        /// Count of messages sent.
        sent: u32,
        /// Count of messages that the client has received, as the client states it.
        taken: MappedWord,
        /// Messages of this channel that may be in the queue, so that no channel crowds out another.
        share: u32,
        /// Completions beyond the share; with the requests in flight never more than a window.
        deferred: VecDeque<Entry>,
        deferred_word: MappedWord,
    },
}

/// Outcome of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyOutcome {
    /// The completion is sent.
    Sent,
    /// The client's queue is full: the completion is deferred.
    Deferred,
    /// The channel has no request in flight.
    Unsolicited,
}

/// Outcome of [`ServerChannel::wake`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakeOutcome {
    /// No thread was woken here: none sleeps, or the kernel wakes the reader of a queue.
    Nothing,
    Thread,
    /// A task waits at the client's socket and has to be sent a byte.
    Task,
}

/// Frequency with which a channel is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollRate {
    Hot,
    Cold,
    Fresh,
}

/// The service's ends of one channel.
pub(crate) struct ServerChannel {
    id: ChannelId,
    requests: Requests,
    completions: Completions,
    control: MappedWord,
    stamp: MappedWord,
    /// Requests taken and not answered: never more than a ring holds, whatever the client states.
    in_flight: usize,
    /// Sequence for which the client was last woken.
    woken_for: Option<u32>,
    violation: Option<ProtocolViolation>,
    is_reported: bool,
    /// Outcome of the replies of the last [`serve`](Self::serve). Owned by the scheduler.
    pub(crate) replied: ReplyOutcome,
    /// Completions were sent since the last check for sleepers. Owned by the scheduler.
    pub(crate) unflushed: bool,
    /// List that the channel is in. Owned by the scheduler.
    pub(crate) poll_rate: PollRate,
    /// Sweeps without a request. Owned by the scheduler.
    pub(crate) idle_sweeps: u32,
    /// Index in the list of its poll rate. Owned by the scheduler.
    pub(crate) list_index: usize,
    /// Index of the user in the fair shares. Owned by the scheduler.
    pub(crate) user: u32,
    /// Recent requests. Owned by the scheduler.
    pub(crate) recent: RequestCount,
}

impl ServerChannel {
    /// Creates the service's ends of one of a client's channels.
    pub(crate) fn new(session: &Session, index: usize) -> Result<Self, MemoryError> {
        let (memory, layout) = (&session.memory, &session.layout);
        let requests = match &session.request_queue {
            Some(queue) => {
                Requests::Queue { queue: queue.queue(), sent: memory.word_at(layout.sent_offset(index))?, received: 0 }
            }
            None => Requests::Ring(Consumer::new(memory.ring_at(layout.ring_offset(index))?, Kind::Request, 0)),
        };
        let completions = match &session.reply_queue {
            Some(queue) => Completions::Queue {
                queue: queue.queue(),
                sent: 0,
                taken: memory.word_at(layout.taken_offset(index))?,
                share: (queue.capacity() / session.channels()).max(1) as u32,
                deferred: VecDeque::with_capacity(RING_SLOTS),
                deferred_word: memory.word_at(layout.deferred_offset())?,
            },
            None => Completions::Ring(Producer::new(memory.ring_at(layout.ring_offset(index))?, Kind::Completion, 0)),
        };
        Ok(Self {
            id: ChannelId { client: session.client, index: index as u8 },
            requests,
            completions,
            control: memory.word_at(layout.control_offset(index))?,
            stamp: memory.word_at(layout.stamp_offset(index))?,
            in_flight: 0,
            woken_for: None,
            violation: None,
            is_reported: false,
            replied: ReplyOutcome::Unsolicited,
            unflushed: false,
            poll_rate: PollRate::Fresh,
            idle_sweeps: 0,
            list_index: 0,
            user: 0,
            recent: RequestCount::default(),
        })
    }

    /// Returns the id of the channel's client.
    pub(crate) fn client(&self) -> ClientId {
        self.id.client
    }

    /// Returns the number of requests taken and not answered.
    #[inline(always)]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Passes up to that many requests to `handler` and publishes its replies.
    #[inline(always)]
    pub(crate) fn serve(&mut self, most: usize, handler: &mut impl RequestHandler) -> usize {
        let most = most.min(RING_SLOTS - self.in_flight);
        let mut taken = 0;
        while taken < most
            && let Some(entry) = self.next_request()
        {
            taken += 1;
            self.in_flight += 1;
            let traced = self.traced(&entry);
            if let Some(reply) = handler.handle(self.id, &entry, traced) {
                self.replied = self.reply(&reply);
                handler.after_reply(self.id, &entry, &reply, traced);
            }
        }
        taken
    }

    /// Returns the submit and take times of the request just taken, if it is sampled.
    #[inline(always)]
    fn traced(&self, entry: &Entry) -> Option<TracedRequest> {
        let position = match &self.requests {
            Requests::Ring(_) => slot_of(entry[0] as u32),
            Requests::Queue { received, .. } => (*received as u32).wrapping_sub(1),
        };
        is_sampled(position).then(|| self.follow(position))
    }

    #[cold]
    fn follow(&self, position: u32) -> TracedRequest {
        // The clock is read first, since the stamp's cache line has to come from the client's core.
        let taken_ns = clock_ns();
        decode_stamp(self.stamp.load(Ordering::Relaxed), position, taken_ns)
    }

    /// Takes the next request, if there is one.
    #[inline(always)]
    fn next_request(&mut self) -> Option<Entry> {
        match &mut self.requests {
            Requests::Ring(ring) => ring.take(),
            Requests::Queue { queue, sent, received } => {
                // Pairs with the Release of the client, which counts after it has sent.
                if sent.load(Ordering::Acquire) == *received {
                    return None;
                }
                *received += 1;
                if let Ok(Some(Received::Entry(entry))) = queue.try_receive(self.id.index) {
                    return Some(entry);
                }
                // Trusted again at the next sweep, so that a false count costs one system call and is reported.
                *received = sent.load(Ordering::Acquire);
                self.violation = Some(ProtocolViolation::Queue { channel: self.id });
                None
            }
        }
    }

    /// Returns true if there is a request that [`take`](Self::take) would take.
    pub(crate) fn has_request(&self) -> bool {
        let there = match &self.requests {
            Requests::Ring(ring) => ring.is_ready(),
            Requests::Queue { sent, received, .. } => sent.load(Ordering::Acquire) != *received,
        };
        there && self.in_flight < RING_SLOTS
    }

    /// Returns true if a request is unanswered, or a reply lies in a queue that would vanish with the daemon.
    pub(crate) fn has_pending(&self) -> bool {
        let unread = match &self.completions {
            Completions::Ring(_) => false,
            Completions::Queue { sent, taken, deferred, .. } => {
                !deferred.is_empty() || taken.load(Ordering::Relaxed) as u32 != *sent
            }
        };
        self.in_flight > 0 || unread
    }

    /// Returns the client's protocol violation, once.
    pub(crate) fn take_violation(&mut self) -> Option<ProtocolViolation> {
        if self.is_reported {
            return None;
        }
        if self.violation.is_none()
            && let Requests::Ring(ring) = &self.requests
            && let Stale::Invalid(found) = ring.classify_stale()
        {
            self.violation = Some(ProtocolViolation::Sequence { channel: self.id, found, awaited: ring.awaited() });
        }
        self.is_reported = self.violation.is_some();
        self.violation
    }

    /// Returns true if a violation has not been reported.
    #[inline(always)]
    pub(crate) fn has_violation(&self) -> bool {
        self.violation.is_some() && !self.is_reported
    }

    /// Sends a completion, or defers it.
    #[inline(always)]
    pub(crate) fn reply(&mut self, entry: &Entry) -> ReplyOutcome {
        if self.in_flight == 0 {
            return ReplyOutcome::Unsolicited;
        }
        self.in_flight -= 1;
        match &mut self.completions {
            Completions::Ring(ring) => {
                ring.publish(entry);
                ReplyOutcome::Sent
            }
            Completions::Queue { deferred, .. } => {
                deferred.push_back(*entry);
                if self.send_deferred() { ReplyOutcome::Sent } else { ReplyOutcome::Deferred }
            }
        }
    }

    /// Sends deferred completions within the channel's share. Returns true when none is left. Makes no system call for
    /// a client that receives nothing.
    pub(crate) fn send_deferred(&mut self) -> bool {
        let Completions::Queue { queue, sent, taken, share, deferred, deferred_word } = &mut self.completions else {
            return true;
        };
        let mut is_announced = false;
        while let Some(entry) = deferred.front() {
            // A false count fills the client's own queue, which `AGAIN` reports.
            let in_queue = sent.wrapping_sub(taken.load(Ordering::Relaxed) as u32);
            let tried = if in_queue < *share { queue.send(self.id.index, entry) } else { Err(Errno::AGAIN) };
            match tried {
                Ok(()) => {
                    deferred.pop_front();
                    *sent = sent.wrapping_add(1);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !is_announced => {
                    // Announce it, then check once more: either this thread sees what the client received meanwhile, or
                    // the client sees the word and rings.
                    is_announced = true;
                    deferred_word.store(1, Ordering::Relaxed);
                    order::before_deferred_check();
                }
                Err(Errno::AGAIN) => return false,
                Err(_) => {
                    deferred.clear();
                    self.violation = Some(ProtocolViolation::Queue { channel: self.id });
                }
            }
        }
        true
    }

    /// Withdraws the announcement of deferred replies: the client need not ring when it receives.
    pub(crate) fn clear_held_word(&self) {
        if let Completions::Queue { deferred_word, .. } = &self.completions {
            deferred_word.store(0, Ordering::Relaxed);
        }
    }

    /// Wakes the client if it sleeps and its awaited entry is published. Call after `order::before_wake`.
    #[inline]
    pub(crate) fn wake(&mut self) -> WakeOutcome {
        let published = match &self.completions {
            Completions::Ring(ring) => ring.published(),
            Completions::Queue { sent, .. } => *sent,
        };
        let Some((sleep, awaited)) = park::find_sleeper(&self.control, published) else {
            self.woken_for = None;
            return WakeOutcome::Nothing;
        };
        // Woken for this sequence already and not yet running: one wake-up suffices, since the entry is published.
        if self.woken_for == Some(awaited) {
            return WakeOutcome::Nothing;
        }
        self.woken_for = Some(awaited);
        match (sleep, &self.completions) {
            (SleepMode::Socket, _) => WakeOutcome::Task,
            (SleepMode::Futex, Completions::Ring(ring)) => {
                let word = ring.slots().sequence_word(awaited);
                // The wake cannot fail on a mapped word, and every sleeper has a time-out.
                let _ = futex::wake(word, futex::Flags::empty(), 1);
                WakeOutcome::Thread
            }
            (SleepMode::Futex, Completions::Queue { .. }) => WakeOutcome::Nothing,
        }
    }
}
