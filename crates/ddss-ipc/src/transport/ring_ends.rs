//! The client's ends of a channel's ring.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_core::Entry;
use rustix::thread::futex;

use super::channel_transport::WaitOutcome;
use crate::connection::Connection;
use crate::shm::layout::Layout;
use crate::shm::mapped_ring::MappedRing;
use crate::shm::ring::{Consumer, Kind, Producer};
use crate::sync::Ordering;
use crate::sys::{MappedWord, MemoryError, SharedMemory};
use crate::trace_sampling::{clock_ns, encode_stamp, is_sampled};
use crate::wait::config::WAIT;
use crate::wait::first_poll_delay::FirstPollDelay;
use crate::wait::park;
use crate::wait::park::SleepMode;

/// The client's ends of a channel's ring.
pub(crate) struct RingEnds {
    connection: Arc<Connection>,
    requests: Producer<MappedRing>,
    completions: Consumer<MappedRing>,
    control: MappedWord,
    stamp: MappedWord,
    rung_for: u64,
    first_poll_delay: FirstPollDelay,
}

impl RingEnds {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        memory: &SharedMemory,
        layout: &Layout,
        channel: usize,
    ) -> Result<Self, MemoryError> {
        Ok(Self {
            connection: Arc::clone(connection),
            requests: Producer::new(memory.ring_at(layout.ring_offset(channel))?, Kind::Request, 0),
            completions: Consumer::new(memory.ring_at(layout.ring_offset(channel))?, Kind::Completion, 0),
            control: memory.word_at(layout.control_offset(channel))?,
            stamp: memory.word_at(layout.stamp_offset(channel))?,
            rung_for: 0,
            first_poll_delay: FirstPollDelay::default(),
        })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Entry> {
        self.completions.take()
    }

    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.completions.is_ready()
    }

    pub(crate) fn disarm_async(&self) {
        park::announce_awake(&self.control);
    }

    #[inline(always)]
    pub(crate) fn submit(&mut self, entry: &Entry) {
        let position = self.requests.count();
        if is_sampled(position) {
            // The Release of the request that follows publishes it.
            self.stamp.store(encode_stamp(position, clock_ns()), Ordering::Relaxed);
        }
        self.requests.publish(entry);
    }

    #[inline(always)]
    pub(crate) fn ring_doorbell(&mut self) {
        self.connection.ring_doorbell(&mut self.rung_for);
    }

    pub(crate) fn arm_async(&mut self) -> bool {
        park::announce_sleep(&self.control, SleepMode::Socket, &mut self.completions)
    }

    /// Polls right after a request. The first poll adapts the delay of the next call.
    #[inline(always)]
    pub(crate) fn poll_first(&mut self) -> bool {
        self.first_poll_delay.wait_before_poll();
        for poll in 0..WAIT.polls_per_clock_read {
            if self.completions.is_ready() {
                self.first_poll_delay.record_poll(poll);
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    #[inline(always)]
    pub(crate) fn poll_ready(&self, polls: u32) -> bool {
        for _ in 0..polls {
            if self.completions.is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    pub(crate) fn wait_parked(&mut self, deadline: Instant, sleep_max: Duration) -> WaitOutcome {
        loop {
            if self.completions.is_ready() {
                return WaitOutcome::Ready;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return WaitOutcome::TimedOut;
            }
            if !self.park(left.min(sleep_max)) && !self.connection.is_alive() {
                return self.poll_last();
            }
        }
    }

    /// Sleeps until the next completion, at most for that time. Returns false if nobody woke the thread.
    fn park(&mut self, duration: Duration) -> bool {
        if !park::announce_sleep(&self.control, SleepMode::Futex, &mut self.completions) {
            return true;
        }
        let word = self.completions.slots().sequence_word(self.completions.awaited());
        let seen = word.load(Ordering::Relaxed);
        let mut is_woken = true;
        if seen != self.completions.awaited() {
            let limit = crate::socket::timespec(duration);
            // A signal ends the sleep too, and signals may keep coming when the daemon is gone.
            let slept = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
            is_woken = !matches!(slept, Err(rustix::io::Errno::TIMEDOUT | rustix::io::Errno::INTR));
        }
        park::announce_awake(&self.control);
        is_woken
    }

    /// Polls once more after the end of the daemon: published completions still count.
    pub(crate) fn poll_last(&self) -> WaitOutcome {
        if self.completions.is_ready() { WaitOutcome::Ready } else { WaitOutcome::Gone }
    }
}
