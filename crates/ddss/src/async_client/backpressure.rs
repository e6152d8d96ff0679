//! The lines of tasks for which there was no room: on the lane, or in the arena. A task that finds room never comes here.
//!
//! Room that becomes free is *granted* to the first in line, so that no task that asks later passes it, and a task that
//! is not polled keeps others from one place only. Releases of locks stand here as well when every place is taken: no task
//! waits for these, and they go before everything else.

use crate::call::arena::ArenaRun;
use crate::call::priority::Priority;
use ddss_core::limits::OPERATIONS_MAX;
use ddss_core::{LockToken, SegmentId};
use ddss_ipc::CallId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// A place on the lane, and a run of the arena if the call needs one.
pub(super) type Place = (CallId, Option<ArenaRun>);

/// Releases that wait for a place. A node does not grant more locks of other nodes; beyond that their leases end them.
const RELEASES_MAX: usize = OPERATIONS_MAX;

/// A task in a line.
struct WaitingTask {
    ticket: u64,
    bytes: usize,
    waker: Waker,
    deadline: Instant,
}

/// Room for a task that has not taken it yet.
struct Granted {
    ticket: u64,
    place: Place,
    deadline: Instant,
}

#[derive(Default)]
struct Queue {
    lines: [VecDeque<WaitingTask>; Priority::COUNT],
    granted: Vec<Granted>,
    releases: VecDeque<(SegmentId, LockToken)>,
    tickets: u64,
}

/// The places that a road has for the tasks in line.
pub(super) trait Places {
    /// A place for a call of that priority with so many bytes.
    fn take_place(&self, priority: Priority, bytes: usize) -> Option<Place>;
    /// Gives back room that is not used.
    fn give_place(&self, place: Place);
    /// Begins a release, if there is a place for it; it goes out with [`send`](Self::send).
    fn begin_release(&self, segment: SegmentId, token: LockToken) -> Option<CallId>;
    /// Sends out calls that were begun: a bit for each place.
    fn send(&self, places: u64);
}

/// Tasks that wait for room, in order.
#[derive(Default)]
pub(super) struct Backpressure {
    /// How many wait in all, and in each line. A thread that makes room reads the first and nothing else, while it is zero.
    waiting: AtomicUsize,
    lengths: [AtomicUsize; Priority::COUNT],
    queue: Mutex<Queue>,
}

impl Backpressure {
    /// How often those in line are looked after without a word, in case that two threads that want room run into each
    /// other, or that it was made just before a task stood in line.
    const LOOK_AGAIN: Duration = Duration::from_millis(1);

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, queue: &Queue) {
        for (length, line) in self.lengths.iter().zip(&queue.lines) {
            length.store(line.len(), Ordering::Relaxed);
        }
        let waiting: usize = queue.lines.iter().map(VecDeque::len).sum();
        self.waiting.store(waiting + queue.releases.len(), Ordering::Relaxed);
        // Pairs with the fence in `serve`: room that is made from now on finds this count, or this thread finds the room.
        fence(Ordering::SeqCst);
    }

    /// Returns true if a call of that priority that comes now is the first.
    #[inline]
    pub(super) fn is_empty(&self, priority: Priority) -> bool {
        self.lengths[priority.index()].load(Ordering::Relaxed) == 0
    }

    /// Puts a task at the end of its line, and serves all of them.
    pub(super) fn stand_in_line(
        &self,
        places: &impl Places,
        (priority, bytes): (Priority, usize),
        waker: &Waker,
        deadline: Instant,
    ) -> u64 {
        let mut queue = self.queue();
        queue.tickets += 1;
        let ticket = queue.tickets;
        queue.lines[priority.index()].push_back(WaitingTask { ticket, bytes, waker: waker.clone(), deadline });
        self.count(&queue);
        drop(queue);
        self.serve(places);
        ticket
    }

    /// Takes the room that was granted to a task. A task that has none yet is woken when it has.
    pub(super) fn claim(&self, ticket: u64, waker: &Waker) -> Option<Place> {
        let mut queue = self.queue();
        if let Some(at) = queue.granted.iter().position(|granted| granted.ticket == ticket) {
            return Some(queue.granted.swap_remove(at).place);
        }
        let queued = queue.lines.iter_mut().flatten().find(|queued| queued.ticket == ticket);
        queued.into_iter().for_each(|queued| queued.waker.clone_from(waker));
        None
    }

    /// Takes a task out of its line; what it was granted is for others.
    pub(super) fn leave(&self, places: &impl Places, ticket: u64) {
        let mut queue = self.queue();
        let granted = queue.granted.iter().position(|granted| granted.ticket == ticket);
        let granted = granted.map(|at| queue.granted.swap_remove(at).place);
        for line in &mut queue.lines {
            line.retain(|queued| queued.ticket != ticket);
        }
        self.count(&queue);
        drop(queue);
        granted.into_iter().for_each(|place| places.give_place(place));
        self.serve(places);
    }

    /// Keeps a release until there is a place for it; `false` if there are too many.
    pub(super) fn owe(&self, places: &impl Places, segment: SegmentId, token: LockToken) -> bool {
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

    /// There may be room for one more.
    #[inline]
    pub(super) fn serve(&self, places: &impl Places) {
        // Pairs with the fence in `count`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.grant(places);
        }
    }

    /// Begins releases, and grants room to those who are first in line.
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
            while let Some(first) = queue.lines[priority.index()].front()
                && let Some(place) = places.take_place(priority, first.bytes)
            {
                let Some(WaitingTask { ticket, waker, deadline, .. }) = queue.lines[priority.index()].pop_front()
                else {
                    break;
                };
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

    /// Wakes the tasks whose deadline has passed, and serves the others. Says when this is to be called again.
    pub(super) fn turn(&self, places: &impl Places, now: Instant, gone: bool) -> Option<Instant> {
        let mut queue = self.queue();
        let mut woken = Vec::new();
        for line in &mut queue.lines {
            line.retain(|queued| {
                let over = gone || queued.deadline <= now;
                if over {
                    woken.push(queued.waker.clone());
                }
                !over
            });
        }
        // Whoever was granted room and does not come has no use for it any more.
        let late: Vec<Granted> = queue.granted.extract_if(.., |granted| gone || granted.deadline <= now).collect();
        if gone {
            // The locks have ended with their daemon's word of this client.
            queue.releases.clear();
        }
        self.count(&queue);
        let next = queue.granted.iter().map(|granted| granted.deadline).min();
        drop(queue);
        late.into_iter().for_each(|granted| places.give_place(granted.place));
        woken.into_iter().for_each(Waker::wake);
        self.serve(places);
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        if waits { Some(now + Self::LOOK_AGAIN) } else { next }
    }

    /// Returns true while releases wait for a place.
    pub(super) fn owes(&self) -> bool {
        !self.queue().releases.is_empty()
    }

    /// Returns true while tasks or releases wait.
    pub(super) fn is_needed(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}
