//! Queues of tasks that wait for a place on the channel or for arena memory. A task that finds both never enters them.
//!
//! Capacity that becomes free is *granted* to the first task of the queue, so that no later task overtakes it. A task
//! that is not polled therefore blocks one place only. Releases of locks also queue here when every place is taken. No
//! task waits for a release, and releases go first.

use crate::call::arena::ArenaRun;
use crate::plan::priority::Priority;
use ddss_core::limits::OPERATIONS_MAX;
use ddss_core::{LockToken, SegmentId};
use ddss_ipc::lock_free::CallId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// A place on the channel, and an arena run if the call needs one.
pub(super) type ChannelPlace = (CallId, Option<ArenaRun>);

/// Maximum number of releases that wait for a place. A node grants no more locks of other nodes; beyond this number the
/// leases end the locks.
const RELEASES_MAX: usize = OPERATIONS_MAX;

/// A task in a queue.
struct WaitingTask {
    bytes: usize,
    waker: Waker,
    deadline: Instant,
}

/// Capacity that a task was granted and has not taken yet.
struct Granted {
    ticket: u64,
    place: ChannelPlace,
    deadline: Instant,
}

#[derive(Default)]
struct Queue {
    /// By ticket: in order of arrival. No operation searches a line, which may be long.
    lines: [BTreeMap<u64, WaitingTask>; Priority::COUNT],
    deadlines: BTreeSet<(Instant, u64)>,
    granted: Vec<Granted>,
    releases: VecDeque<(SegmentId, LockToken)>,
    tickets: u64,
}

impl Queue {
    /// Takes a task out of its line.
    fn take(&mut self, ticket: u64) -> Option<WaitingTask> {
        self.lines.iter_mut().find_map(|line| line.remove(&ticket))
    }
}

/// Source of the places that waiting tasks need.
pub(super) trait Places {
    /// Takes a place for a call of that priority with `bytes` of arena memory.
    fn take_place(&self, priority: Priority, bytes: usize) -> Option<ChannelPlace>;
    /// Returns an unused place.
    fn give_place(&self, place: ChannelPlace);
    /// Begins a release if a place is free; [`send`](Self::send) submits it.
    fn begin_release(&self, segment: SegmentId, token: LockToken) -> Option<CallId>;
    /// Submits calls that have begun: one bit for each place.
    fn send(&self, places: u64);
}

/// Tasks that wait for capacity, in order.
#[derive(Default)]
pub(super) struct Backpressure {
    /// Number of waiting tasks, in total and in each queue. While the total is zero, a thread that frees capacity reads
    /// nothing else.
    waiting: AtomicUsize,
    lengths: [AtomicUsize; Priority::COUNT],
    queue: Mutex<Queue>,
}

impl Backpressure {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, queue: &Queue) {
        for (length, line) in self.lengths.iter().zip(&queue.lines) {
            length.store(line.len(), Ordering::Relaxed);
        }
        let waiting: usize = queue.lines.iter().map(BTreeMap::len).sum();
        self.waiting.store(waiting + queue.releases.len(), Ordering::Relaxed);
        // Pairs with the fence in `serve`: a thread that frees capacity from now on sees this count, or this thread
        // sees the capacity.
        fence(Ordering::SeqCst);
    }

    /// Returns true if a new call of that priority would be the first.
    #[inline]
    pub(super) fn is_empty(&self, priority: Priority) -> bool {
        self.lengths[priority.index()].load(Ordering::Relaxed) == 0
    }

    /// Appends a task to its queue, then serves all queues.
    pub(super) fn enqueue(
        &self,
        places: &impl Places,
        (priority, bytes): (Priority, usize),
        waker: &Waker,
        deadline: Instant,
    ) -> u64 {
        let mut queue = self.queue();
        queue.tickets += 1;
        let ticket = queue.tickets;
        queue.lines[priority.index()].insert(ticket, WaitingTask { bytes, waker: waker.clone(), deadline });
        queue.deadlines.insert((deadline, ticket));
        self.count(&queue);
        drop(queue);
        self.serve(places);
        ticket
    }

    /// Takes the capacity that a task was granted. If there is none yet, registers the waker.
    pub(super) fn claim(&self, ticket: u64, waker: &Waker) -> Option<ChannelPlace> {
        let mut queue = self.queue();
        if let Some(at) = queue.granted.iter().position(|granted| granted.ticket == ticket) {
            return Some(queue.granted.swap_remove(at).place);
        }
        let queued = queue.lines.iter_mut().find_map(|line| line.get_mut(&ticket));
        queued.into_iter().for_each(|queued| queued.waker.clone_from(waker));
        None
    }

    /// Removes a task from its queue; its unused grant goes to other tasks.
    pub(super) fn leave(&self, places: &impl Places, ticket: u64) {
        let mut queue = self.queue();
        let granted = queue.granted.iter().position(|granted| granted.ticket == ticket);
        let granted = granted.map(|at| queue.granted.swap_remove(at).place);
        if let Some(queued) = queue.take(ticket) {
            queue.deadlines.remove(&(queued.deadline, ticket));
        }
        self.count(&queue);
        drop(queue);
        granted.into_iter().for_each(|place| places.give_place(place));
        self.serve(places);
    }

    /// Queues a release until a place is free; returns `false` if too many are queued.
    pub(super) fn queue_release(&self, places: &impl Places, segment: SegmentId, token: LockToken) -> bool {
        let mut queue = self.queue();
        let fits = queue.releases.len() < RELEASES_MAX;
        if fits {
            queue.releases.push_back((segment, token));
            self.count(&queue);
        }
        drop(queue);
        self.serve(places);
        fits
    }

    /// Serves the queues after capacity may have become free.
    #[inline]
    pub(super) fn serve(&self, places: &impl Places) {
        // Pairs with the fence in `count`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.grant(places);
        }
    }

    /// Begins releases, and grants capacity to the first tasks.
    #[cold]
    fn grant(&self, places: &impl Places) {
        let (mut begun, mut woken) = (0, Vec::new());
        let mut queue = self.queue();
        while let Some(&(segment, token)) = queue.releases.front()
            && let Some(id) = places.begin_release(segment, token)
        {
            queue.releases.pop_front();
            begun |= 1 << id.index();
        }
        for priority in Priority::ALL {
            while let Some((&ticket, first)) = queue.lines[priority.index()].first_key_value()
                && let Some(place) = places.take_place(priority, first.bytes)
            {
                let Some(WaitingTask { waker, deadline, .. }) = queue.take(ticket) else { break };
                queue.deadlines.remove(&(deadline, ticket));
                queue.granted.push(Granted { ticket, place, deadline });
                woken.push(waker);
            }
        }
        self.count(&queue);
        drop(queue);
        if begun != 0 {
            places.send(begun);
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes the tasks whose deadline has passed, and serves the others. Returns the time of the next call.
    pub(super) fn turn(&self, places: &impl Places, now: Instant, gone: bool) -> Option<Instant> {
        let mut queue = self.queue();
        let mut woken = Vec::new();
        while let Some(&(deadline, ticket)) = queue.deadlines.first()
            && (gone || deadline <= now)
        {
            queue.deadlines.pop_first();
            woken.extend(queue.take(ticket).map(|queued| queued.waker));
        }
        // A task that has not taken its grant by its deadline no longer needs it.
        let late: Vec<Granted> = queue.granted.extract_if(.., |granted| gone || granted.deadline <= now).collect();
        if gone {
            // The daemon dropped the locks together with this client's connection.
            queue.releases.clear();
        }
        self.count(&queue);
        let next = queue.granted.iter().map(|granted| granted.deadline).min();
        drop(queue);
        late.into_iter().for_each(|granted| places.give_place(granted.place));
        woken.into_iter().for_each(Waker::wake);
        self.serve(places);
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        // Two threads that want capacity may collide, or capacity may become free just before a task enters the queue.
        if waits { Some(now) } else { next }
    }

    /// Returns true while releases wait for a place.
    pub(super) fn has_pending_releases(&self) -> bool {
        !self.queue().releases.is_empty()
    }

    /// Returns true while tasks or releases wait.
    pub(super) fn is_needed(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}
