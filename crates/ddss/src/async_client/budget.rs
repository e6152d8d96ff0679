//! Cooperative budget of tasks: reads in place end without waiting, and no executor interrupts a task.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Reads in place on one thread until a task yields, as tokio lets a task do before it yields.
const READS_MAX: usize = 128;
/// Bytes that cost as much as one read.
const BYTES_OF_READ: usize = 4096;

thread_local!(static LEFT: Cell<usize> = const { Cell::new(READS_MAX) });

/// Future that is ready at once, or yields once to the other tasks of the thread.
#[must_use]
pub(crate) struct Yield {
    is_due: bool,
}

/// Counts reads in place; the future yields if the budget of the thread is used up.
pub(crate) fn spend(reads: usize, bytes: usize) -> Yield {
    LEFT.with(|left| {
        let now = left.get().saturating_sub(reads + bytes / BYTES_OF_READ);
        left.set(if now == 0 { READS_MAX } else { now });
        Yield { is_due: now == 0 }
    })
}

impl Future for Yield {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_due {
            return Poll::Ready(());
        }
        self.is_due = false;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::READS_MAX;
    use crate::testing::TestNode;
    use crate::{Batch, Spec, aio};
    use std::cell::Cell;

    /// Steps of the task beside a reader.
    const STEPS: usize = 10;

    /// Runs a reader beside a task that takes some steps, on one thread, and returns the reads until the last step.
    fn reads_beside_a_task(read: impl AsyncFn()) -> usize {
        const READS: usize = 100 * STEPS * READS_MAX;
        let (steps, reads) = (Cell::new(0), Cell::new(0));
        let other = async {
            while steps.get() < STEPS {
                steps.set(steps.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        let reader = async {
            while steps.get() < STEPS && reads.get() < READS {
                read().await;
                reads.set(reads.get() + 1);
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // The reader is polled first each time.
        runtime.block_on(async { tokio::join!(reader, other) });
        assert_eq!(steps.get(), STEPS, "no step beside {READS} reads");
        reads.get()
    }

    #[test]
    fn task_that_reads_in_place_lets_others_run() {
        // If this broke, a service with one thread would stand still while one of its tasks reads.
        let node = TestNode::start();
        let client = node.local_read_client();
        let segment = aio::Segment::from(&client.segment("plain").allocate(Spec::new(1 << 20)).unwrap());
        client.map::<u64, u64>("map").allocate(100).unwrap().put(&7, &8).unwrap();
        let tasks = client.aio().unwrap();
        let map = crate::testing::block_on(tasks.map::<u64, u64>("map").open()).unwrap();
        assert!(segment.location().can_read_locally());
        let small = reads_beside_a_task(async || drop(segment.get(0..8).await.unwrap()));
        assert!(small <= STEPS * READS_MAX, "{small} reads");
        let large = reads_beside_a_task(async || drop(segment.get(..).await.unwrap()));
        assert!(large <= STEPS, "{large} reads of a mebibyte");
        let keys =
            reads_beside_a_task(async || assert!(map.get(&7).await.unwrap().is_some_and(|entry| entry.value == 8)));
        assert!(keys <= STEPS * READS_MAX, "{keys} reads of a key");
        let batches = reads_beside_a_task(async || {
            let mut batch = Batch::new();
            for range in [0..8, 8..16] {
                batch.get(&segment, range).unwrap();
            }
            tasks.run(batch).await.unwrap().ok().unwrap();
        });
        assert!(batches <= STEPS * READS_MAX / 2, "{batches} batches of two reads");
        let counts = reads_beside_a_task(async || assert_eq!(map.len().await.unwrap(), 1));
        assert!(counts <= STEPS * READS_MAX, "{counts} counts of the map");
    }
}
