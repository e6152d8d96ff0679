//! Time-outs for the reads of a System V queue, and their end when the daemon ends.
//!
//! One thread a client, only under `Mq` and `Rmq`. A channel that is about to block on the reply queue stores its
//! deadline here. When the deadline passes, or the daemon's socket ends, the thread sends an empty message to that
//! channel. There are no signals, so nothing else in the application's process is disturbed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::connection::Connection;
use crate::socket::timespec;
use crate::sync::{AtomicU64, Ordering, order};
use crate::sys::{Lent, LentThread, Queue};

/// Interval of the deadline checks while a channel waits. A wait may exceed its deadline by that much.
const TICK: Duration = Duration::from_millis(10);
/// Ticks without a waiting channel after which the thread sleeps until it is kicked.
const IDLE_TICKS_MAX: u32 = 50;
/// No deadline: the channel does not wait.
const AWAKE: u64 = 0;

/// Wait state of one channel.
#[derive(Default)]
struct TimeoutSlot {
    /// Nanoseconds since the thread started, plus one.
    deadline: AtomicU64,
    /// An empty message of this thread is in the queue.
    nudged: AtomicBool,
}

/// State that the channels and the thread share.
pub(crate) struct TimeoutSlots {
    started_at: Instant,
    channels: Vec<TimeoutSlot>,
    is_asleep: AtomicBool,
    kick: OwnedFd,
}

impl TimeoutSlots {
    /// Records that the channel is about to block until the deadline.
    pub(crate) fn begin_wait(&self, channel: u8, deadline: Instant) {
        let after = deadline.saturating_duration_since(self.started_at).as_nanos();
        let after = u64::try_from(after).unwrap_or(u64::MAX - 1) + 1;
        self.channels[usize::from(channel)].deadline.store(after, Ordering::Relaxed);
        order::before_block();
        if self.is_asleep.load(Ordering::Relaxed) {
            self.kick();
        }
    }

    /// Records that the channel does not block any more.
    pub(crate) fn end_wait(&self, channel: u8) {
        self.channels[usize::from(channel)].deadline.store(AWAKE, Ordering::Relaxed);
    }

    /// Records that the channel received the empty message.
    pub(crate) fn clear_nudge(&self, channel: u8) {
        self.channels[usize::from(channel)].nudged.store(false, Ordering::Relaxed);
    }

    fn kick(&self) {
        // The write only fails when the counter is full, and then the thread has a wake-up pending.
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }
}

/// Handle of the thread, which ends when this is dropped.
pub(crate) struct TimeoutThread {
    slots: Arc<TimeoutSlots>,
    thread: LentThread<Watched>,
}

impl fmt::Debug for TimeoutThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TimeoutThread").finish_non_exhaustive()
    }
}

impl TimeoutThread {
    /// Starts the thread for that many channels, which block on the queue.
    pub(crate) fn start(connection: Arc<Connection>, queue: Queue, channels: usize) -> io::Result<Self> {
        let kick = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let slots = Arc::new(TimeoutSlots {
            started_at: Instant::now(),
            channels: (0..channels).map(|_| TimeoutSlot::default()).collect(),
            is_asleep: AtomicBool::new(false),
            kick,
        });
        let watched = Watched { connection, queue, slots: Arc::clone(&slots) };
        let builder = std::thread::Builder::new().name("ddss-timeout".to_owned());
        let thread = LentThread::start(builder, watched, |watched, lent| {
            TimeoutWorker { watched, lent, idle_ticks: 0 }.run();
        })?;
        Ok(Self { slots, thread })
    }

    /// Returns the slots in which the channels store their deadlines.
    pub(crate) fn slots(&self) -> &Arc<TimeoutSlots> {
        &self.slots
    }
}

impl Drop for TimeoutThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.end() {
            self.slots.kick();
            let _ = thread.join();
        }
    }
}

/// Descriptors that the thread sleeps on, and the channels that it wakes.
struct Watched {
    connection: Arc<Connection>,
    queue: Queue,
    slots: Arc<TimeoutSlots>,
}

struct TimeoutWorker<'a> {
    watched: &'a Watched,
    lent: &'a Lent<Watched>,
    idle_ticks: u32,
}

impl TimeoutWorker<'_> {
    fn run(mut self) {
        while !self.lent.is_over() {
            let waiting = self.nudge_expired();
            self.idle_ticks = if waiting { 0 } else { self.idle_ticks + 1 };
            if self.idle_ticks > IDLE_TICKS_MAX {
                self.sleep_until_kicked();
            } else {
                self.sleep(Some(TICK));
            }
        }
    }

    /// Nudges every channel whose deadline has passed. Returns true if any channel waits.
    fn nudge_expired(&self) -> bool {
        let now = self.watched.slots.started_at.elapsed().as_nanos() as u64 + 1;
        let gone = self.watched.connection.is_gone();
        let mut waiting = false;
        for (channel, slot) in self.watched.slots.channels.iter().enumerate() {
            let deadline = slot.deadline.load(Ordering::Relaxed);
            waiting |= deadline != AWAKE;
            let late = deadline != AWAKE && (gone || deadline <= now);
            // Set before the send: the channel may receive immediately, and its store must come last. A full queue has
            // messages to wake the channel; the send is retried at the next tick.
            if late && !slot.nudged.swap(true, Ordering::Relaxed) && self.watched.queue.nudge(channel as u8).is_err() {
                slot.nudged.store(false, Ordering::Relaxed);
            }
        }
        waiting
    }

    fn sleep_until_kicked(&mut self) {
        self.watched.slots.is_asleep.store(true, Ordering::Relaxed);
        order::before_timeout_sleep();
        let waiting = self.watched.slots.channels.iter().any(|slot| slot.deadline.load(Ordering::Relaxed) != AWAKE);
        if !waiting && !self.lent.is_over() {
            self.sleep(None);
        }
        self.watched.slots.is_asleep.store(false, Ordering::Relaxed);
        self.idle_ticks = 0;
    }

    fn sleep(&self, limit: Option<Duration>) {
        let limit = limit.map(timespec);
        let kick = PollFd::from_borrowed_fd(self.watched.slots.kick.as_fd(), PollFlags::IN);
        let socket = PollFd::from_borrowed_fd(self.watched.connection.socket(), PollFlags::RDHUP);
        let mut asked = [kick, socket];
        // After the hang-up the socket would make each poll return immediately.
        let count = if self.watched.connection.is_gone() { 1 } else { 2 };
        if rustix::event::poll(&mut asked[..count], limit.as_ref()).is_err() {
            return;
        }
        if !asked[0].revents().is_empty() {
            let _ = rustix::io::read(&self.watched.slots.kick, &mut [0; 8]);
        }
        if count == 2 && !asked[1].revents().is_empty() {
            self.watched.connection.set_gone();
        }
    }
}
