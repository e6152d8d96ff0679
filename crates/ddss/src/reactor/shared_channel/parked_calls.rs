//! Waits of tasks that the daemon has parked: they hold no place on the channel.
//!
//! ```text
//!   waiting ── completion ─► ended ── the task takes it ─► gone
//!      │  └─── no completion in time ─► late ── the task sees it ─► gone
//!      └─ the future was dropped ─► abandoned, cancelled ── completion ─► gone, and a granted lock is released
//! ```

use crate::call::channels::ChannelPool;
use crate::value::first_word;
use ddss_core::{Completion, Entry, LockToken, Operation, Outcome, RequestId, SegmentId};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// A lock that was granted to no caller.
pub(super) type Granted = (SegmentId, LockToken);

/// State of a parked wait as its task sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ParkedStatus {
    Waiting,
    Ended(Entry),
    /// The daemon sent no completion in time.
    Late,
}

enum CallState {
    Waiting(Option<Waker>),
    Ended(Entry),
    Late,
    Abandoned,
}

struct ParkedCall {
    deadline: Instant,
    segment: SegmentId,
    is_lock: bool,
    state: CallState,
}

#[derive(Default)]
struct Inside {
    calls: HashMap<u64, ParkedCall>,
    deadlines: BTreeSet<(Instant, u64)>,
    cancels: BTreeSet<u64>,
}

/// Parked waits of one channel, by request id.
#[derive(Default)]
pub(super) struct ParkedCalls {
    /// Number of waits for which the daemon owes a completion.
    owed: AtomicUsize,
    inside: Mutex<Inside>,
}

impl ParkedCall {
    fn granted(&self, entry: &Entry) -> Option<Granted> {
        let completion = Completion::decode(entry);
        let is_granted = self.is_lock && completion.outcome == Outcome::Done;
        is_granted.then(|| (self.segment, LockToken(first_word(&completion))))
    }
}

impl ParkedCalls {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of waits for which the daemon owes a completion.
    #[inline]
    pub(super) fn owed(&self) -> usize {
        self.owed.load(Ordering::Relaxed)
    }

    /// Adds a wait that the daemon has parked.
    pub(super) fn insert(&self, id: u64, deadline: Instant, segment: SegmentId, is_lock: bool) {
        let mut inside = self.inside();
        inside.calls.insert(id, ParkedCall { deadline, segment, is_lock, state: CallState::Waiting(None) });
        inside.deadlines.insert((deadline, id));
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the state of a wait, and registers the waker while it waits. A wait that has ended is removed.
    pub(super) fn poll(&self, id: u64, waker: &Waker) -> ParkedStatus {
        let mut inside = self.inside();
        let Some(call) = inside.calls.get_mut(&id) else { return ParkedStatus::Late };
        let status = match &mut call.state {
            CallState::Waiting(registered) => {
                match registered {
                    Some(registered) => registered.clone_from(waker),
                    None => *registered = Some(waker.clone()),
                }
                return ParkedStatus::Waiting;
            }
            CallState::Ended(entry) => ParkedStatus::Ended(*entry),
            CallState::Late => {
                // The daemon may still complete it.
                call.state = CallState::Abandoned;
                inside.cancels.insert(id);
                return ParkedStatus::Late;
            }
            CallState::Abandoned => return ParkedStatus::Late,
        };
        inside.calls.remove(&id);
        status
    }

    /// Delivers a completion. Returns `None` if there is no such wait, else the lock that no caller takes.
    pub(super) fn end(&self, id: u64, entry: &Entry) -> Option<Option<Granted>> {
        let mut inside = self.inside();
        let call = inside.calls.get_mut(&id)?;
        let (deadline, mut granted, mut woken) = (call.deadline, None, None);
        match std::mem::replace(&mut call.state, CallState::Ended(*entry)) {
            CallState::Waiting(waker) => woken = waker,
            CallState::Late => {}
            CallState::Abandoned => {
                granted = call.granted(entry);
                inside.calls.remove(&id);
                inside.cancels.remove(&id);
            }
            CallState::Ended(first) => {
                call.state = CallState::Ended(first);
                return None;
            }
        }
        inside.deadlines.remove(&(deadline, id));
        drop(inside);
        self.owed.fetch_sub(1, Ordering::Relaxed);
        woken.into_iter().for_each(Waker::wake);
        Some(granted)
    }

    /// Abandons a wait whose future was dropped. Returns the lock that it was granted.
    pub(super) fn abandon(&self, id: u64) -> Option<Granted> {
        let mut inside = self.inside();
        let call = inside.calls.get_mut(&id)?;
        if let CallState::Ended(entry) = call.state {
            let granted = call.granted(&entry);
            inside.calls.remove(&id);
            return granted;
        }
        call.state = CallState::Abandoned;
        inside.cancels.insert(id);
        None
    }

    /// Takes the next wait to cancel.
    pub(super) fn next_cancel(&self) -> Option<Operation> {
        let mut inside = self.inside();
        let id = inside.cancels.pop_first()?;
        let segment = inside.calls.get(&id)?.segment;
        Some(Operation::Cancel { segment, request: RequestId(id) })
    }

    /// Wakes the tasks whose wait is overdue, or all if the daemon is gone. Returns the time of the next call.
    pub(super) fn turn(&self, now: Instant, gone: bool) -> Option<Instant> {
        let (mut inside, mut woken) = (self.inside(), Vec::new());
        let mut next = None;
        while let Some(&(deadline, id)) = inside.deadlines.first() {
            if !gone && deadline + ChannelPool::GRACE > now {
                next = Some(deadline + ChannelPool::GRACE);
                break;
            }
            inside.deadlines.pop_first();
            if let Some(call) = inside.calls.get_mut(&id)
                && let CallState::Waiting(waker) = &mut call.state
            {
                woken.extend(waker.take());
                call.state = CallState::Late;
            }
        }
        if gone {
            // The daemon dropped the locks and waits together with this client's connection.
            inside.calls.retain(|_, call| !matches!(call.state, CallState::Abandoned));
            inside.cancels.clear();
            self.owed.store(0, Ordering::Relaxed);
        }
        drop(inside);
        woken.into_iter().for_each(Waker::wake);
        next
    }

    /// Returns true while a lock may be granted to a dropped future.
    pub(super) fn has_abandoned_locks(&self) -> bool {
        self.owed() > 0
            && self.inside().calls.values().any(|call| call.is_lock && matches!(call.state, CallState::Abandoned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn entry(request: u64, token: u64) -> Entry {
        let mut completion = Completion::bare(RequestId(request), Outcome::Done);
        completion.data[..8].copy_from_slice(&token.to_le_bytes());
        completion.encode()
    }

    #[test]
    fn parked_wait_ends_once_and_a_lock_without_a_caller_is_reported() {
        // If this broke, a lock would stay with a future that was dropped, or a task would never wake.
        let (parked, segment) = (ParkedCalls::default(), SegmentId::from_bits(7));
        let (now, waker) = (Instant::now(), Waker::noop());
        let later = now + Duration::from_secs(60);
        for id in 1..=4 {
            parked.insert(id, later, segment, true);
        }
        assert_eq!((parked.poll(1, waker), parked.owed()), (ParkedStatus::Waiting, 4));
        assert_eq!((parked.end(1, &entry(1, 5)), parked.end(1, &entry(1, 6))), (Some(None), None));
        assert_eq!(parked.poll(1, waker), ParkedStatus::Ended(entry(1, 5)));
        // Dropped while it waits, and dropped with the grant unseen.
        assert_eq!(parked.abandon(2), None);
        assert_eq!(parked.next_cancel(), Some(Operation::Cancel { segment, request: RequestId(2) }));
        assert!(parked.has_abandoned_locks());
        assert_eq!(parked.end(2, &entry(2, 8)), Some(Some((segment, LockToken(8)))));
        assert_eq!(parked.end(3, &entry(3, 9)), Some(None));
        assert_eq!((parked.abandon(3), parked.next_cancel()), (Some((segment, LockToken(9))), None));
        assert_eq!((parked.owed(), parked.end(99, &entry(99, 1))), (1, None));
        // A daemon that says nothing.
        assert_eq!(parked.turn(now, false), Some(later + ChannelPool::GRACE));
        assert_eq!(parked.turn(later + ChannelPool::GRACE, false), None);
        assert_eq!((parked.poll(4, waker), parked.poll(4, waker)), (ParkedStatus::Late, ParkedStatus::Late));
        assert_eq!(parked.end(4, &entry(4, 3)), Some(Some((segment, LockToken(3)))));
        assert_eq!(parked.owed(), 0);
    }
}
