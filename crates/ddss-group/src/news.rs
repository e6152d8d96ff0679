//! State that the caller of a membership and its thread share: requests one way, news the other.

use crate::directory::{Note, Row, RowError};
use crate::member::{Incarnation, Member};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// News of a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A process has taken the place of a member.
    Seen {
        /// Process.
        whom: Incarnation,
        /// Address of its fabric.
        address: SocketAddr,
        /// Its note.
        note: Note,
    },
    /// A suspect's lock is free for longer than a living process needs to take it again.
    LockFree(Member),
    /// The place of a lost process is cleared: it learns so when it returns.
    Evicted(Incarnation),
    /// The state of the group has changed. All members that joined before are seen.
    State(u8),
    /// This process has lost its place: it was stopped for longer than its lease, and another one took the place.
    Replaced,
    /// The directory is no more: it was released, or lost with its node. The members that are connected may go on.
    Released,
    /// The directory cannot be read by this release.
    Unreadable(RowError),
}

/// A process whose place is to be cleared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eviction {
    pub(crate) whom: Incarnation,
    /// True if the lock of the place may become free later.
    pub(crate) keeps_trying: bool,
    pub(crate) asked: Instant,
}

/// State that the caller and the thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Members whose lock is to be tried, as bits.
    pub(crate) suspects: AtomicU64,
    /// Suspects that were connected and answer nothing.
    pub(crate) silent: AtomicU64,
    /// Processes whose places are to be cleared, one a member at most.
    pub(crate) evictions: Mutex<Vec<Eviction>>,
    pub(crate) has_evictions: AtomicBool,
    pub(crate) has_left: AtomicBool,
    /// Note that the caller wants to publish.
    pub(crate) note: Mutex<Option<Note>>,
    /// Rows that the caller wants to publish, by number.
    pub(crate) rows: Mutex<BTreeMap<u16, Row>>,
    start: Instant,
    /// Milliseconds from the start to the last complete read of the directory.
    read_at_ms: AtomicU64,
    /// Wakes the thread before its next round is due.
    sleeping: Mutex<()>,
    wake: Condvar,
    has_news: AtomicBool,
    /// Readable when there is news.
    pub(crate) news: OwnedFd,
}

impl Shared {
    pub(crate) fn new() -> Result<Self, rustix::io::Errno> {
        Ok(Self {
            suspects: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            evictions: Mutex::new(Vec::new()),
            has_evictions: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            note: Mutex::new(None),
            rows: Mutex::default(),
            start: Instant::now(),
            read_at_ms: AtomicU64::new(0),
            sleeping: Mutex::new(()),
            wake: Condvar::new(),
            has_news: AtomicBool::new(false),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Records a complete read of the directory.
    pub(crate) fn record_read(&self) {
        self.read_at_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Release);
    }

    /// Returns the time since the directory was read completely.
    pub(crate) fn unread_for(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.read_at_ms.load(Ordering::Acquire)))
    }

    /// Tells the caller of news that it can take.
    pub(crate) fn announce(&self) {
        // A full counter is as readable as a fresh one. It comes first: the caller reads it only while there is news, and would
        // leave a later one readable.
        let _ = rustix::io::write(&self.news, &1_u64.to_ne_bytes());
        self.has_news.store(true, Ordering::Release);
    }

    pub(crate) fn sleep(&self, span: Duration) {
        let sleeping = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = || {
            // Suspects wait for the next round: a free lock is a sign only after seconds.
            !self.has_left.load(Ordering::Acquire) && !self.has_evictions.load(Ordering::Acquire)
        };
        if is_idle() {
            let _ = self.wake.wait_timeout(sleeping, span);
        }
    }

    pub(crate) fn wake(&self) {
        let _sleeping = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }
}

/// The caller's end of the news.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) changes: Receiver<Change>,
    pub(crate) shared: Arc<Shared>,
}

impl News {
    /// Takes the next news, if there is some.
    pub(crate) fn next(&self) -> Option<Change> {
        if !self.shared.has_news.swap(false, Ordering::AcqRel) {
            return None;
        }
        // Nothing to read is fine too. What comes from now on makes the descriptor readable again.
        let _ = rustix::io::read(&self.shared.news, &mut [0; 8]);
        let change = self.changes.try_recv().ok();
        // There may be more.
        self.shared.has_news.fetch_or(change.is_some(), Ordering::AcqRel);
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Barrier;
    use std::sync::mpsc::sync_channel;

    const ROUNDS: usize = 50_000;

    #[test]
    fn descriptor_is_quiet_once_all_news_are_taken() {
        // If this broke, a thread that sleeps on the descriptor would never sleep again.
        let (sender, changes) = sync_channel(1);
        let (shared, turn) = (Arc::new(Shared::new().unwrap()), Barrier::new(2));
        let received = News { changes, shared: shared.clone() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    turn.wait();
                    sender.send(Change::Replaced).unwrap();
                    shared.announce();
                    turn.wait();
                }
            });
            let mut readable = 0;
            for _ in 0..ROUNDS {
                turn.wait();
                while received.next().is_none() {}
                let _ = received.next();
                turn.wait();
                let _ = received.next();
                let mut fds = [PollFd::new(&received.shared.news, PollFlags::IN)];
                readable += poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            }
            assert_eq!(readable, 0, "of {ROUNDS}");
        });
    }
}
