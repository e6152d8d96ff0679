//! The line of tasks for which there was no room: on the lane, or in the arena. Who finds room never comes here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// A task in the line.
struct Queued {
    ticket: u64,
    waker: Waker,
    deadline: Instant,
}

#[derive(Default)]
struct Queue {
    line: VecDeque<Queued>,
    tickets: u64,
}

/// Tasks that wait for room, in order.
#[derive(Default)]
pub(super) struct Room {
    /// How many wait. Whoever makes room reads this and nothing else, as long as nobody does.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

impl Room {
    /// So often the first in line looks by himself, in case that two ran into each other who wanted room, or that it was
    /// made just before he stood in line.
    const LOOK_AGAIN: Duration = Duration::from_millis(1);

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the place of a task that is in line already, and puts another one at the end. It has to look once more.
    pub(super) fn stand_in_line(&self, ticket: Option<u64>, waker: &Waker, deadline: Instant) -> u64 {
        let mut queue = self.queue();
        if let Some(queued) = queue.line.iter_mut().find(|queued| Some(queued.ticket) == ticket) {
            queued.waker.clone_from(waker);
            return queued.ticket;
        }
        queue.tickets += 1;
        let ticket = queue.tickets;
        queue.line.push_back(Queued { ticket, waker: waker.clone(), deadline });
        self.waiting.store(queue.line.len(), Ordering::Relaxed);
        // Pairs with the fence in `call_next`: he sees that there is room, or who makes it sees him.
        fence(Ordering::SeqCst);
        ticket
    }

    /// Takes a task out of the line; `false` if it was not in it any more.
    pub(super) fn leave(&self, ticket: u64) -> bool {
        let mut queue = self.queue();
        let at = queue.line.iter().position(|queued| queued.ticket == ticket);
        let left = at.is_some_and(|at| queue.line.remove(at).is_some());
        self.waiting.store(queue.line.len(), Ordering::Relaxed);
        left
    }

    /// There is room for one more.
    #[inline]
    pub(super) fn call_next(&self) {
        // Pairs with the fence in `stand_in_line`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_first();
        }
    }

    #[cold]
    fn wake_first(&self) {
        let mut queue = self.queue();
        let next = queue.line.pop_front();
        self.waiting.store(queue.line.len(), Ordering::Relaxed);
        drop(queue);
        if let Some(next) = next {
            next.waker.wake();
        }
    }

    /// Sends home who has waited for too long, and lets the first one look again. Says when this is to be called again.
    pub(super) fn turn(&self, now: Instant, gone: bool) -> Option<Instant> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = self.queue();
        let mut woken = VecDeque::new();
        queue.line.retain(|queued| {
            let over = gone || queued.deadline <= now;
            if over {
                woken.push_back(queued.waker.clone());
            }
            !over
        });
        self.waiting.store(queue.line.len(), Ordering::Relaxed);
        let first = queue.line.front().map(|first| first.waker.clone());
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
        let next = first.is_some().then_some(now + Self::LOOK_AGAIN);
        first.into_iter().for_each(Waker::wake);
        next
    }
}
