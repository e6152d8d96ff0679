//! Gives the reads of a System V queue what they lack: a time-out, and an end when the daemon dies.
//!
//! One thread a client (only under `Mq` and `Rmq`). Who is about to block on the reply queue notes its deadline here;
//! when the deadline passes, or the daemon's socket ends, the thread sends an empty message to that lane. No signals,
//! so nothing in the application's process is disturbed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::client::connection::Connection;
use crate::socket::timespec;
use crate::sync::{AtomicU64, Ordering, order};
use crate::sys::Queue;

/// How often deadlines are looked at while anybody waits: a wait may last that much longer than its deadline.
const TICK: Duration = Duration::from_millis(10);
/// Ticks without a waiter after which the thread sleeps without end.
const IDLE_TICKS_MAX: u32 = 50;
/// No deadline: the lane does not wait.
const AWAKE: u64 = 0;

/// One lane's note.
#[derive(Default)]
struct TimeoutSlot {
    /// Nanoseconds since the watch began, plus one.
    deadline: AtomicU64,
    /// An empty message of ours is in the queue.
    nudged: AtomicBool,
}

/// What lanes and thread share.
pub(crate) struct TimeoutSlots {
    began: Instant,
    lanes: Vec<TimeoutSlot>,
    dozing: AtomicBool,
    stop: AtomicBool,
    kick: OwnedFd,
}

impl TimeoutSlots {
    /// The lane is about to block until that deadline.
    pub(crate) fn wait(&self, lane: u8, deadline: Instant) {
        let after = deadline.saturating_duration_since(self.began).as_nanos();
        let after = u64::try_from(after).unwrap_or(u64::MAX - 1) + 1;
        self.lanes[usize::from(lane)].deadline.store(after, Ordering::Relaxed);
        order::before_block();
        if self.dozing.load(Ordering::Relaxed) {
            self.kick();
        }
    }

    /// The lane does not block any more.
    pub(crate) fn done(&self, lane: u8) {
        self.lanes[usize::from(lane)].deadline.store(AWAKE, Ordering::Relaxed);
    }

    /// The lane took an empty message.
    pub(crate) fn was_nudged(&self, lane: u8) {
        self.lanes[usize::from(lane)].nudged.store(false, Ordering::Relaxed);
    }

    fn kick(&self) {
        // It only fails when the counter is full, and then the thread has a wake-up waiting.
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }
}

/// The thread; ends when it is dropped.
pub(crate) struct TimeoutThread {
    notes: Arc<TimeoutSlots>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for TimeoutThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl TimeoutThread {
    /// Watches over that many lanes, which block on that queue.
    pub(crate) fn start(link: Arc<Connection>, queue: Queue, lanes: usize) -> io::Result<Self> {
        let kick = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let notes = Arc::new(TimeoutSlots {
            began: Instant::now(),
            lanes: (0..lanes).map(|_| TimeoutSlot::default()).collect(),
            dozing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            kick,
        });
        let watcher = Watcher { link, queue, notes: Arc::clone(&notes), idle_ticks: 0 };
        let thread = std::thread::Builder::new().name("ddss-watch".to_owned()).spawn(move || watcher.run())?;
        Ok(Self { notes, thread: Some(thread) })
    }

    /// Where lanes note their deadlines.
    pub(crate) fn notes(&self) -> &Arc<TimeoutSlots> {
        &self.notes
    }
}

impl Drop for TimeoutThread {
    fn drop(&mut self) {
        self.notes.stop.store(true, Ordering::Release);
        self.notes.kick();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watcher {
    link: Arc<Connection>,
    queue: Queue,
    notes: Arc<TimeoutSlots>,
    idle_ticks: u32,
}

impl Watcher {
    fn run(mut self) {
        while !self.notes.stop.load(Ordering::Acquire) {
            let waiting = self.nudge_the_late();
            self.idle_ticks = if waiting { 0 } else { self.idle_ticks + 1 };
            if self.idle_ticks > IDLE_TICKS_MAX {
                self.doze();
            } else {
                self.sleep(Some(TICK));
            }
        }
    }

    /// Nudges every lane whose time is up. True when any lane waits.
    fn nudge_the_late(&self) -> bool {
        let now = self.notes.began.elapsed().as_nanos() as u64 + 1;
        let gone = self.link.is_gone();
        let mut waiting = false;
        for (lane, note) in self.notes.lanes.iter().enumerate() {
            let deadline = note.deadline.load(Ordering::Relaxed);
            waiting |= deadline != AWAKE;
            let late = deadline != AWAKE && (gone || deadline <= now);
            // Noted before it is sent: the lane may take it at once, and its note must come last. A full queue has
            // messages to wake up with; it is tried again at the next tick.
            if late && !note.nudged.swap(true, Ordering::Relaxed) && self.queue.nudge(lane as u8).is_err() {
                note.nudged.store(false, Ordering::Relaxed);
            }
        }
        waiting
    }

    fn doze(&mut self) {
        self.notes.dozing.store(true, Ordering::Relaxed);
        order::before_doze();
        let waiting = self.notes.lanes.iter().any(|note| note.deadline.load(Ordering::Relaxed) != AWAKE);
        if !waiting && !self.notes.stop.load(Ordering::Acquire) {
            self.sleep(None);
        }
        self.notes.dozing.store(false, Ordering::Relaxed);
        self.idle_ticks = 0;
    }

    fn sleep(&self, limit: Option<Duration>) {
        let limit = limit.map(timespec);
        let kick = PollFd::from_borrowed_fd(self.notes.kick.as_fd(), PollFlags::IN);
        let socket = PollFd::from_borrowed_fd(self.link.socket(), PollFlags::RDHUP);
        let mut asked = [kick, socket];
        // Once it is gone the socket would make each poll return at once.
        let count = if self.link.is_gone() { 1 } else { 2 };
        if rustix::event::poll(&mut asked[..count], limit.as_ref()).is_err() {
            return;
        }
        if !asked[0].revents().is_empty() {
            let _ = rustix::io::read(&self.notes.kick, &mut [0; 8]);
        }
        if count == 2 && !asked[1].revents().is_empty() {
            self.link.set_gone();
        }
    }
}
