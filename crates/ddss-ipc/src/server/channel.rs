//! The service's ends of one lane, whichever way its client chose.

use std::collections::VecDeque;

use ddss_core::limits::RING_SLOTS;
use ddss_core::{ChannelId, ClientId, Entry};
use rustix::io::Errno;
use rustix::thread::futex;

use super::poll_scheduler::PollRate;
use super::server::{ProtocolViolation, RequestHandler};
use super::session::Session;
use crate::shm::ring::{Consumer, Kind, MappedRing, Producer, Stale, slot_of};
use crate::sync::{Ordering, order};
use crate::sys::{MappedWord, MemoryError, Queue, Received};
use crate::trace_sampling::{TracedRequest, clock_ns, followed, is_followed};
use crate::wait::park;
use crate::wait::park::SleepMode;

/// Where requests come from.
enum Requests {
    Ring(Consumer<MappedRing>),
    Queue {
        queue: Queue,
        /// How many messages the client says it has sent.
        sent: MappedWord,
        /// How many of those we asked the kernel for.
        asked: u64,
    },
}

/// Where completions go.
enum Completions {
    Ring(Producer<MappedRing>),
    Queue {
        queue: Queue,
        /// How many were sent.
        sent: u32,
        /// How many the client says it has taken.
        taken: MappedWord,
        /// How many messages of this lane may be in the queue, so that no lane keeps another's out.
        share: u32,
        /// What is beyond the share; with those under way never more than a window.
        held: VecDeque<Entry>,
        held_word: MappedWord,
    },
}

/// What became of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyOutcome {
    /// It is out.
    Out,
    /// The client's queue is full: it is held back.
    Held,
    /// The lane has no request under way.
    Unasked,
}

/// Whom a [`ServerChannel::wake`] woke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakeOutcome {
    Nobody,
    Thread,
    /// A task waits at the client's socket: it is to be sent a byte.
    Task,
    /// It yields, and wants the service's core.
    Beside,
    /// Maybe: the kernel wakes who reads a queue.
    Maybe,
}

/// The service's ends of one lane.
pub(crate) struct ServerChannel {
    id: ChannelId,
    requests: Requests,
    completions: Completions,
    control: MappedWord,
    stamp: MappedWord,
    thread: MappedWord,
    /// The client's process; 0: not known.
    process: u32,
    /// Requests taken and not answered: never more than a ring holds, whatever the client says.
    under_way: usize,
    /// The sequence for which the client was woken last.
    woken: Option<u32>,
    crime: Option<ProtocolViolation>,
    accused: bool,
    /// What became of the replies of the last [`serve`](Self::serve). The sweep's.
    pub(crate) replied: ReplyOutcome,
    /// Completions went out since the last look at who sleeps. The sweep's.
    pub(crate) unflushed: bool,
    /// How often it is looked at. The sweep's.
    pub(crate) heat: PollRate,
    /// Sweeps without a request. The sweep's.
    pub(crate) idle_sweeps: u32,
    /// The period of its last request. The sweep's.
    pub(crate) period: u32,
    /// Its index in the list of those. The sweep's.
    pub(crate) place: usize,
    /// The place of whoever attached it. The sweep's.
    pub(crate) user: u32,
    /// Where his callers are counted. The sweep's.
    pub(crate) counted_at: u8,
}

impl ServerChannel {
    /// The service's ends of one of a client's lanes.
    pub(crate) fn new(session: &Session, index: usize) -> Result<Self, MemoryError> {
        let (memory, layout) = (&session.memory, &session.layout);
        let requests = match &session.request_queue {
            Some(queue) => {
                Requests::Queue { queue: queue.queue(), sent: memory.word_at(layout.sent(index))?, asked: 0 }
            }
            None => Requests::Ring(Consumer::new(memory.ring_at(layout.ring(index))?, Kind::Request, 0)),
        };
        let completions = match &session.reply_queue {
            Some(queue) => Completions::Queue {
                queue: queue.queue(),
                sent: 0,
                taken: memory.word_at(layout.taken(index))?,
                share: (queue.capacity() / session.lanes()).max(1) as u32,
                held: VecDeque::with_capacity(RING_SLOTS),
                held_word: memory.word_at(layout.held())?,
            },
            None => Completions::Ring(Producer::new(memory.ring_at(layout.ring(index))?, Kind::Completion, 0)),
        };
        Ok(Self {
            id: ChannelId { client: session.client, index: index as u8 },
            requests,
            completions,
            control: memory.word_at(layout.control(index))?,
            stamp: memory.word_at(layout.stamp(index))?,
            thread: memory.word_at(layout.thread(index))?,
            process: session.credentials.pid.unsigned_abs(),
            under_way: 0,
            woken: None,
            crime: None,
            accused: false,
            replied: ReplyOutcome::Unasked,
            unflushed: false,
            heat: PollRate::Fresh,
            idle_sweeps: 0,
            period: u32::MAX,
            place: 0,
            user: 0,
            counted_at: 0,
        })
    }

    /// Whose lane.
    pub(crate) fn client(&self) -> ClientId {
        self.id.client
    }

    /// Which thread calls: as the client says, and the lane itself where that is not known. Who lies makes his own user look
    /// like more or fewer, and never more than he has lanes.
    pub(crate) fn caller(&self) -> [u32; 2] {
        match self.thread.load(Ordering::Relaxed) as u32 {
            thread if thread != 0 && self.process != 0 => [self.process, thread],
            _ => [!self.id.client.index, self.id.index.into()],
        }
    }

    /// Requests taken and not answered.
    #[inline(always)]
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Copies up to that many requests out.
    #[inline(always)]
    pub(crate) fn take(&mut self, most: usize, into: &mut Vec<(ChannelId, Entry)>) -> usize {
        let most = most.min(RING_SLOTS - self.under_way);
        let mut taken = 0;
        while taken < most
            && let Some(entry) = self.next()
        {
            into.push((self.id, entry));
            taken += 1;
        }
        self.under_way += taken;
        taken
    }

    /// Passes up to that many requests to `answerer` and publishes what it answers.
    #[inline(always)]
    pub(crate) fn serve(&mut self, most: usize, answerer: &mut impl RequestHandler) -> usize {
        let most = most.min(RING_SLOTS - self.under_way);
        let mut taken = 0;
        while taken < most
            && let Some(entry) = self.next()
        {
            taken += 1;
            self.under_way += 1;
            let followed = self.followed(&entry);
            if let Some(reply) = answerer.answer(self.id, &entry, followed) {
                self.replied = self.reply(&reply);
                answerer.answered(self.id, &entry, &reply, followed);
            }
        }
        taken
    }

    /// When the request that was just taken set out, if it is one that is followed.
    #[inline(always)]
    fn followed(&self, entry: &Entry) -> Option<TracedRequest> {
        let position = match &self.requests {
            Requests::Ring(_) => slot_of(entry[0] as u32),
            Requests::Queue { asked, .. } => (*asked as u32).wrapping_sub(1),
        };
        is_followed(position).then(|| self.follow(position))
    }

    #[cold]
    fn follow(&self, position: u32) -> TracedRequest {
        // Taken first: the stamp's line has to come from the client's core.
        let taken_ns = clock_ns();
        followed(self.stamp.load(Ordering::Relaxed), position, taken_ns)
    }

    /// The next request, if it is there.
    #[inline(always)]
    fn next(&mut self) -> Option<Entry> {
        match &mut self.requests {
            Requests::Ring(ring) => ring.take(),
            Requests::Queue { queue, sent, asked } => {
                // Pairs with the Release by the client, which counts after it has sent.
                if sent.load(Ordering::Acquire) == *asked {
                    return None;
                }
                *asked += 1;
                if let Ok(Some(Received::Entry(entry))) = queue.try_receive(self.id.index) {
                    return Some(entry);
                }
                // Believed again at the next sweep, so that a liar costs one system call and is told.
                *asked = sent.load(Ordering::Acquire);
                self.crime = Some(ProtocolViolation::Queue { lane: self.id });
                None
            }
        }
    }

    /// Whether there is a request that [`take`](Self::take) would take.
    pub(crate) fn has_request(&self) -> bool {
        let there = match &self.requests {
            Requests::Ring(ring) => ring.is_ready(),
            Requests::Queue { sent, asked, .. } => sent.load(Ordering::Acquire) != *asked,
        };
        there && self.under_way < RING_SLOTS
    }

    /// Whether it has a request that was not answered, or an answer lies in a queue: that would go with the daemon.
    pub(crate) fn is_owed(&self) -> bool {
        let unread = match &self.completions {
            Completions::Ring(_) => false,
            Completions::Queue { sent, taken, held, .. } => {
                !held.is_empty() || taken.load(Ordering::Relaxed) as u32 != *sent
            }
        };
        self.under_way > 0 || unread
    }

    /// What the client did that no honest one does, told once.
    pub(crate) fn offence(&mut self) -> Option<ProtocolViolation> {
        if self.accused {
            return None;
        }
        if self.crime.is_none()
            && let Requests::Ring(ring) = &self.requests
            && let Stale::Nonsense(found) = ring.stale()
        {
            self.crime = Some(ProtocolViolation::Sequence { lane: self.id, found, awaited: ring.awaited() });
        }
        self.accused = self.crime.is_some();
        self.crime
    }

    /// Whether an offence waits to be told.
    #[inline(always)]
    pub(crate) fn is_guilty(&self) -> bool {
        self.crime.is_some() && !self.accused
    }

    /// Sends a completion, or holds it back.
    #[inline(always)]
    pub(crate) fn reply(&mut self, entry: &Entry) -> ReplyOutcome {
        if self.under_way == 0 {
            return ReplyOutcome::Unasked;
        }
        self.under_way -= 1;
        match &mut self.completions {
            Completions::Ring(ring) => {
                ring.publish(entry);
                ReplyOutcome::Out
            }
            Completions::Queue { held, .. } => {
                held.push_back(*entry);
                if self.send_held() { ReplyOutcome::Out } else { ReplyOutcome::Held }
            }
        }
    }

    /// Sends what is held back, as far as the lane's share allows. True when nothing is held back any more. No system
    /// call for a client that takes nothing.
    pub(crate) fn send_held(&mut self) -> bool {
        let Completions::Queue { queue, sent, taken, share, held, held_word } = &mut self.completions else {
            return true;
        };
        let mut told = false;
        while let Some(entry) = held.front() {
            // A lie about the count fills the client's own queue, which `AGAIN` tells.
            let in_queue = sent.wrapping_sub(taken.load(Ordering::Relaxed) as u32);
            let tried = if in_queue < *share { queue.send(self.id.index, entry) } else { Err(Errno::AGAIN) };
            match tried {
                Ok(()) => {
                    held.pop_front();
                    *sent = sent.wrapping_add(1);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !told => {
                    // Say it, then look once more: either this sees what the client took meanwhile, or the client
                    // sees the word and rings.
                    told = true;
                    held_word.store(1, Ordering::Relaxed);
                    order::before_hold();
                }
                Err(Errno::AGAIN) => return false,
                Err(_) => {
                    held.clear();
                    self.crime = Some(ProtocolViolation::Queue { lane: self.id });
                }
            }
        }
        true
    }

    /// The client's queue has room again for everything: it need not ring when it takes something.
    pub(crate) fn clear_held_word(&self) {
        if let Completions::Queue { held_word, .. } = &self.completions {
            held_word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether its client waits on the service's core and yields.
    pub(crate) fn waits_beside(&self) -> bool {
        self.under_way > 0 && park::waits_beside(&self.control)
    }

    /// Wakes the client if it sleeps and what it awaits is out. After `order::before_wake`.
    #[inline]
    pub(crate) fn wake(&mut self) -> WakeOutcome {
        let published = match &self.completions {
            Completions::Ring(ring) => ring.published(),
            Completions::Queue { sent, .. } => *sent,
        };
        let Some((sleep, awaited)) = park::sleeper(&self.control, published) else {
            self.woken = None;
            return if matches!(self.completions, Completions::Queue { .. }) {
                WakeOutcome::Maybe
            } else {
                WakeOutcome::Nobody
            };
        };
        // Woken for this already, and not yet run: once is enough, since what it awaits was out.
        if self.woken == Some(awaited) {
            return WakeOutcome::Nobody;
        }
        self.woken = Some(awaited);
        match (sleep, &self.completions) {
            (SleepMode::Socket, _) => WakeOutcome::Task,
            (SleepMode::Beside, _) => WakeOutcome::Beside,
            (SleepMode::Futex, Completions::Ring(ring)) => {
                let word = ring.slots().sequence_word(awaited);
                // It cannot fail on a word that is mapped; and every sleeper has a time-out.
                let _ = futex::wake(word, futex::Flags::empty(), 1);
                WakeOutcome::Thread
            }
            (SleepMode::Futex, Completions::Queue { .. }) => WakeOutcome::Maybe,
        }
    }
}
