//! Queue of threads that wait for a channel or arena memory. A thread that finds capacity never enters it.

use crate::plan::priority::Priority;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

type Queues = [VecDeque<Thread>; Priority::COUNT];

/// Waiting threads in order of arrival, one queue for each priority.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// Number of waiting threads, in total and in each queue. While the total is zero, a thread that frees capacity
    /// reads nothing else.
    waiting: AtomicUsize,
    lengths: [AtomicUsize; Priority::COUNT],
    queues: Mutex<Queues>,
}

impl WaitQueue {
    /// Interval at which the first thread checks without a notification, since a notification may come too early.
    const RECHECK_INTERVAL: Duration = Duration::from_millis(1);

    /// Returns true if a new thread of that priority would be the first.
    #[inline]
    pub(crate) fn is_empty(&self, priority: Priority) -> bool {
        self.lengths[priority.index()].load(Ordering::Relaxed) == 0
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits in order until `look` succeeds or the deadline passes.
    #[cold]
    pub(crate) fn wait<T>(
        &self,
        priority: Priority,
        deadline: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let place = QueuePlace::new(self, priority);
        loop {
            let is_first = place.is_first();
            if is_first && let Some(found) = look() {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            // The thread that becomes first is notified.
            std::thread::park_timeout(if is_first { left.min(Self::RECHECK_INTERVAL) } else { left });
        }
    }

    /// Notifies the first thread that capacity is free.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_first_waiters();
        }
    }

    #[cold]
    fn wake_first_waiters(&self) {
        self.queues().iter().filter_map(VecDeque::front).for_each(Thread::unpark);
    }

    fn count(&self, queues: &Queues) {
        for (length, queue) in self.lengths.iter().zip(queues) {
            length.store(queue.len(), Ordering::SeqCst);
        }
        self.waiting.store(queues.iter().map(VecDeque::len).sum(), Ordering::SeqCst);
    }
}

/// This thread's place in the queue; dropping it leaves the queue.
struct QueuePlace<'a> {
    line: &'a WaitQueue,
    priority: Priority,
    thread: Thread,
}

impl<'a> QueuePlace<'a> {
    fn new(line: &'a WaitQueue, priority: Priority) -> Self {
        let thread = std::thread::current();
        let mut queues = line.queues();
        queues[priority.index()].push_back(thread.clone());
        line.count(&queues);
        Self { line, priority, thread }
    }

    fn is_first(&self) -> bool {
        let queues = self.line.queues();
        queues[self.priority.index()].front().is_some_and(|first| first.id() == self.thread.id())
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut queues = self.line.queues();
        queues[self.priority.index()].retain(|queued| queued.id() != self.thread.id());
        self.line.count(&queues);
        drop(queues);
        // There may be more capacity, and another thread is now the first.
        self.line.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn wait_queue_is_fifo() {
        // If this broke, later threads could overtake an early one until its deadline.
        let (line, room, order) = (WaitQueue::default(), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let end = Instant::now() + Duration::from_secs(60);
        let take = |room: &AtomicUsize| {
            let less = |count: usize| count.checked_sub(1);
            room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).ok()
        };
        std::thread::scope(|scope| {
            for number in 0..20 {
                let (line, room, order) = (&line, &room, &order);
                scope.spawn(move || {
                    let look = || take(room).inspect(|_| order.lock().unwrap().push(number));
                    line.wait(Priority::Call, end, look).unwrap();
                });
                while line.lengths[Priority::Call.index()].load(Ordering::SeqCst) <= number {
                    std::thread::yield_now();
                }
            }
            assert!(!line.is_empty(Priority::Call) && line.is_empty(Priority::Wait));
            for _ in 0..20 {
                room.fetch_add(1, Ordering::SeqCst);
                line.notify();
            }
        });
        assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert!(line.is_empty(Priority::Call));
    }

    #[test]
    fn wait_queue_proceeds_when_first_thread_times_out() {
        // If this broke, the threads behind one that gave up would sleep although there is capacity.
        let (line, free) = (WaitQueue::default(), AtomicBool::new(false));
        let end = Instant::now() + Duration::from_secs(60);
        let short = Instant::now() + Duration::from_millis(50);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| line.wait(Priority::Call, short, || None::<()>));
            while line.is_empty(Priority::Call) {
                std::thread::yield_now();
            }
            let second = scope.spawn(|| line.wait(Priority::Call, end, || free.load(Ordering::SeqCst).then_some(())));
            // A thread of another priority does not wait for either.
            assert_eq!(line.wait(Priority::Holder, end, || Some(7)), Some(7));
            assert_eq!(first.join().unwrap(), None);
            free.store(true, Ordering::SeqCst);
            assert_eq!(second.join().unwrap(), Some(()));
        });
    }
}
