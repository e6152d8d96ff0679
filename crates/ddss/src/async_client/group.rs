//! Groups of calls of a task: all calls with free capacity go out in one submission.

use super::client::Client;
use crate::batch::call_group::GroupResults;
use crate::call::channels::NoCompletion;
#[cfg(feature = "tracing")]
use crate::call::span;
use crate::deadline::Deadline;
use crate::plan::{CallPlan, Reply};
use ddss_core::Completion;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Futures of a group that are polled together: each wake polls those that are not ready.
const TOGETHER_MAX: usize = 512;

impl Client {
    /// Runs planned calls, each on its shard, and waits for the last one.
    pub(crate) async fn run_group(&self, time: Deadline, plans: Vec<(u8, CallPlan<'_>)>) -> GroupResults {
        #[cfg(feature = "tracing")]
        let span = span::of_group(plans.len());
        let running = self.run_plans(time, plans);
        #[cfg(feature = "tracing")]
        let running = tracing::Instrument::instrument(running, span.clone());
        let results = running.await;
        #[cfg(feature = "tracing")]
        span::record_group_error(&span, &results);
        results
    }

    async fn run_plans(&self, time: Deadline, plans: Vec<(u8, CallPlan<'_>)>) -> GroupResults {
        let mut time = time.started();
        let error = self.reactor(time.deadline(), true).await.err();
        if error.is_some() {
            let unsent = |(_, plan): (u8, CallPlan<'_>)| {
                Err(self.blocking().explain(NoCompletion::NotSent, plan.action, plan.target))
            };
            return (plans.into_iter().map(unsent).collect(), error);
        }
        let gathering = AtomicBool::new(false);
        let one = async |(shard, plan): (u8, CallPlan<'_>)| {
            let decode = |completion: &Completion, reply: &Reply<'_>| {
                let mut bytes = vec![0; plan.incoming()];
                reply.read(0, &mut bytes);
                (*completion, bytes)
            };
            let client = self.at_shard(shard)?;
            let ended = client.run_gathered(time, plan.returns(decode), Some(&gathering)).await;
            ended.map(|(reply, _)| reply)
        };
        (all(plans.into_iter().map(|call| Box::pin(one(call))), &gathering).await, None)
    }
}

/// Runs all futures, a window of them at the same time: where some have ended, the next ones begin. While the flag is set, calls
/// that begin gather; the next poll submits them.
async fn all<F: Future>(futures: impl ExactSizeIterator<Item = Pin<Box<F>>>, gathering: &AtomicBool) -> Vec<F::Output> {
    let mut ended: Vec<Option<F::Output>> = std::iter::repeat_with(|| None).take(futures.len()).collect();
    let mut waiting = futures.enumerate();
    let mut under_way: Vec<(usize, Pin<Box<F>>)> = Vec::with_capacity(TOGETHER_MAX.min(ended.len()));
    std::future::poll_fn(|context| {
        let mut poll = |under_way: &mut Vec<(usize, Pin<Box<F>>)>| {
            under_way.retain_mut(|(index, future)| match future.as_mut().poll(context) {
                Poll::Ready(output) => {
                    ended[*index] = Some(output);
                    false
                }
                Poll::Pending => true,
            });
        };
        poll(&mut under_way);
        let old = under_way.len();
        under_way.extend(waiting.by_ref().take(TOGETHER_MAX - old));
        if under_way.len() > old {
            gathering.store(true, Ordering::Relaxed);
            poll(&mut under_way);
            gathering.store(false, Ordering::Relaxed);
            poll(&mut under_way);
        }
        if under_way.is_empty() && waiting.len() == 0 {
            return Poll::Ready(());
        }
        if under_way.len() < TOGETHER_MAX && waiting.len() > 0 {
            // The next ones begin after other tasks of the executor.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    ended.into_iter().map(|output| output.expect("all have ended")).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{Batch, EntryOptions, Error, LockOptions, Replies, Spec};

    #[test]
    fn batch_is_submitted_with_one_wakeup() {
        // If this broke, a task that reads forty values would wake the daemon up to forty times.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        block_on(async {
            let segment = client.segment("together").allocate(Spec::new(4096)).await.unwrap();
            let (mut puts, mut gets) = (Batch::new(), Batch::new());
            for index in 0..40 {
                puts.put(&segment, index * 8, &index.to_le_bytes()).unwrap();
                gets.get(&segment, index * 8..index * 8 + 8).unwrap();
            }
            for batch in [puts, gets] {
                let before = client.rings();
                client.run(batch).await.unwrap().ok().unwrap();
                assert_eq!(client.rings() - before, 1, "for 40 calls");
            }
            let map = client.map::<u64, u64>("map").allocate(1000).await.unwrap();
            let (mut puts, mut gets, mut by_version) = (Batch::new(), Batch::new(), Batch::new());
            for key in 0..40 {
                puts.map_put(&map, &key, &key, EntryOptions::new()).unwrap();
                gets.map_get(&map, &key).unwrap();
            }
            for batch in [puts, gets] {
                let before = client.rings();
                client.run(batch).await.unwrap().ok().unwrap();
                assert_eq!(client.rings() - before, 1, "for 40 calls on a map");
            }
            for key in 0..40 {
                let entry = map.get(&key).await.unwrap().unwrap();
                by_version.map_put(&map, &key, &0, EntryOptions::new().if_version(entry.version)).unwrap();
            }
            let before = client.rings();
            let _replies = client.run(by_version).await.unwrap();
            assert_eq!(client.rings() - before, 2, "a read of each entry, and a put");
            let before = client.rings();
            segment.get(..).await.unwrap();
            segment.put(0, &[1]).await.unwrap();
            assert_eq!(client.rings() - before, 2, "what is no batch goes out by itself");
        });
    }

    #[test]
    fn slow_call_of_a_batch_stops_no_other_one() {
        // If this broke, a locked segment would end the calls of a thousand others at the deadline of their batch.
        const CALLS: u64 = 1500;
        let node = TestNode::start();
        let (client, other) = (node.client(), node.client());
        let tasks = client.aio().unwrap();
        let locked = other.segment("locked").allocate(64).unwrap();
        let free = client.segment("free").allocate(64).unwrap();
        let run: [&(dyn Fn(Batch) -> Result<Replies, Error> + Sync); 2] =
            [&|batch| client.run(batch), &|batch| block_on(tasks.run(batch))];
        for (round, run) in (1..).zip(run) {
            let for_long = LockOptions::new().lease(std::time::Duration::from_secs(600));
            let held = locked.lock_with(for_long).unwrap();
            let mut batch = Batch::new();
            batch.put(client.segment("locked").open().unwrap(), 0, b"slow").unwrap();
            for _ in 0..CALLS {
                batch.put(&free, 0, b"free").unwrap();
            }
            std::thread::scope(|scope| {
                let batch = scope.spawn(|| run(batch).unwrap());
                while free.get(0..4).unwrap().version().0 < round * CALLS {
                    assert!(!batch.is_finished(), "calls behind the slow one have not begun");
                    std::thread::yield_now();
                }
                held.unlock().unwrap();
                batch.join().unwrap().ok().unwrap();
            });
        }
    }

    #[test]
    fn async_batch_larger_than_capacity_returns_each_reply() {
        // If this broke, a task's batch would mix up replies, hang when its channel is full, or fail as a whole.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        block_on(async {
            let [one, other] = ["one", "other"].map(|name| client.segment(name).allocate(Spec::new(200_000)));
            let (one, other) = (one.await.unwrap(), other.await.unwrap());
            let mut batch = Batch::new();
            for index in 0..200u64 {
                let bytes = vec![index as u8; if index % 3 == 0 { 8 } else { 900 }];
                batch.put(if index % 2 == 0 { &one } else { &other }, index * 1000, &bytes).unwrap();
            }
            client.run(batch).await.unwrap().ok().unwrap();
            let (mut batch, mut tickets) = (Batch::new(), Vec::new());
            for index in 0..200u64 {
                let segment = if index % 2 == 0 { &one } else { &other };
                tickets.push(batch.get(segment, index * 1000..index * 1000 + 8).unwrap());
            }
            let mut replies = client.run(batch).await.unwrap();
            for (index, ticket) in tickets.into_iter().enumerate() {
                assert_eq!(replies.take(ticket).unwrap().value, [index as u8; 8]);
            }
            one.clone().release().await.unwrap();
            let mut batch = Batch::new();
            let (gone, present) = (batch.get(&one, 0..8).unwrap(), batch.get(&other, 0..8).unwrap());
            assert!(batch.get(&other, 200_000..200_001).is_err());
            let mut replies = client.run(batch).await.unwrap();
            assert!(replies.take(gone).is_err() && replies.take(present).is_ok());
            client.run(Batch::new()).await.unwrap().ok().unwrap();
        });
    }
}
