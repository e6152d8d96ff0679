//! Calls that wait for an event: a lock, or a newer version. Any number of threads may wait.
//!
//! The first waiting threads use channels of their own, which costs least. Threads beyond wait as tasks do, and the
//! daemon parks their calls.

use super::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::{Decoder, PlannedCall};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

impl crate::Client {
    /// Runs a planned call that waits for an event.
    pub(crate) fn run_wait<T: Send>(&self, time: Deadline, call: PlannedCall<'_, impl Decoder<T>>) -> Result<T, Error> {
        let session = self.inner.last_session();
        match session.channels.begin_wait() {
            Some(_waiting) => self.execute(time, call),
            None => block_on(Client::of(self.clone()).execute(time, call)),
        }
    }
}

#[cfg(test)]
impl crate::Client {
    /// Returns the number of this client's waits that the daemon has parked.
    fn parked(&self) -> usize {
        self.tasks.of(&self.inner).reactor.load_full().map_or(0, |reactor| reactor.channel.parked())
    }
}

impl Client {
    /// Runs a planned call that waits for an event.
    pub(crate) async fn run_wait<T: Send>(
        &self,
        time: Deadline,
        call: PlannedCall<'_, impl Decoder<T>>,
    ) -> Result<T, Error> {
        self.execute(time, call).await
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread. The reactor wakes it at the future's deadline at the latest.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs a future on this thread, at most until `deadline`.
pub(crate) fn block_until<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on, join_all, poll_once};
    use crate::{Client, ErrorKind, Limit, LockOptions, Segment, Spec, Version, aio};
    use std::future::Future;
    use std::pin::Pin;
    use std::time::{Duration, Instant};

    /// Waits until the daemon has parked that many waits of a client.
    fn until_parked(client: &Client, waits: usize) {
        let patience = Instant::now() + Duration::from_secs(60);
        while client.parked() != waits {
            assert!(Instant::now() < patience, "{} of {waits} waits are parked", client.parked());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Polls waits until the daemon has parked that many of their client.
    fn poll_until_parked<F: Future>(client: &Client, futures: &mut [Pin<Box<F>>], waits: usize) {
        let patience = Instant::now() + Duration::from_secs(60);
        while client.parked() != waits {
            assert!(Instant::now() < patience, "{} of {waits} waits are parked", client.parked());
            assert!(futures.iter_mut().all(|future| poll_once(future).is_pending()));
        }
    }

    fn is_late(error: crate::Error) {
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn thousands_of_watchers_are_parked_and_woken_by_their_own_put_only() {
        // If this broke, watchers would occupy the places of calls, or a put would wake those of other segments.
        const WATCHERS: usize = 5000;
        let node = TestNode::start();
        let client = node.client();
        let (seen, other) = (
            client.segment("seen").allocate(Spec::new(8)).unwrap(),
            client.segment("other").allocate(Spec::new(8)).unwrap(),
        );
        let watch = |segment: &Segment| {
            let segment = aio::Segment::from(segment);
            let waits = (0..WATCHERS).map(|_| segment.clone());
            let waits = waits.map(|segment| Box::pin(async move { segment.wait_newer_than(Version(0)).await }));
            waits.collect::<Vec<_>>()
        };
        let (mut first, mut second) = (watch(&seen), watch(&other));
        // The first waits keep their places, the others are parked.
        poll_until_parked(&client, &mut first, WATCHERS - 16);
        poll_until_parked(&client, &mut second, 2 * WATCHERS - 16);
        for _ in 0..100 {
            client.segment("seen").open().unwrap();
            assert_eq!(other.get(0..8).unwrap().version(), Version(0));
        }
        seen.put(0, &[1; 8]).unwrap();
        for wait in first {
            assert_eq!(block_on(wait).unwrap().version, Version(1));
        }
        assert_eq!(client.parked(), WATCHERS);
        other.put(0, &[1; 8]).unwrap();
        for wait in second {
            assert_eq!(block_on(wait).unwrap().version, Version(1));
        }
        until_parked(&client, 0);
    }

    #[test]
    fn waits_beyond_the_places_end_at_their_own_deadline() {
        // If this broke, a wait would be refused as busy, or never end.
        let node = TestNode::start();
        let client = node.client();
        let segment = client.segment("quiet").allocate(Spec::new(8)).unwrap();
        let other = client.segment("other").allocate(Spec::new(8)).unwrap();
        let soon = aio::Segment::from(&segment).with_timeout(Duration::from_millis(300));
        let watch = || async { is_late(soon.wait_newer_than(Version(0)).await.expect_err("no put was made")) };
        block_on(join_all((0..300).map(|_| watch()).collect()));
        let held = segment.lock().unwrap();
        let lock = || async { is_late(soon.lock().await.expect_err("the lock is held")) };
        block_on(join_all((0..300).map(|_| lock()).collect()));
        until_parked(&client, 0);
        // Threads as well, far beyond the channels of their client.
        let soon = Segment::from(&soon);
        std::thread::scope(|scope| {
            for _ in 0..60 {
                scope.spawn(|| soon.wait_newer_than(Version(0)).map_or_else(is_late, |_| panic!("no put was made")));
                scope.spawn(|| soon.lock().map_or_else(is_late, |_| panic!("the lock is held")));
            }
            other.put(0, b"a call").unwrap();
        });
        held.unlock().unwrap();
    }

    #[test]
    fn threads_that_wait_leave_the_channels_to_calls() {
        // If this broke, sixty threads that watch would make every put of their service wait.
        const THREADS: usize = 60;
        let node = TestNode::start();
        let client = node.client();
        let segment = client.segment("watched").allocate(Spec::new(8)).unwrap();
        let other = client.segment("other").allocate(Spec::new(8)).unwrap();
        std::thread::scope(|scope| {
            let watchers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| segment.wait_newer_than(Version(0)))).collect();
            until_parked(&client, THREADS - 4 - 16);
            // As many calls at once as there are channels, all beside the waiting threads.
            std::thread::scope(|calls| {
                for thread in 0..8u8 {
                    let other = &other;
                    calls.spawn(move || (0..100).for_each(|_| _ = other.put(0, &[thread; 8]).unwrap()));
                }
            });
            assert!(watchers.iter().all(|watcher| !watcher.is_finished()));
            segment.put(0, &[1; 8]).unwrap();
            assert!(watchers.into_iter().all(|watcher| watcher.join().unwrap().unwrap().version == Version(1)));
        });
        until_parked(&client, 0);
    }

    #[test]
    fn lock_passes_through_a_long_queue_and_over_dropped_and_dead_waiters() {
        // If this broke, the lock would stop at a waiter that is gone.
        const WAITERS: usize = 2000;
        let node = TestNode::start();
        let (client, gone) = (node.client(), node.client());
        let segment = client.segment("locked").allocate(Spec::new(8)).unwrap();
        let held = segment.lock().unwrap();
        let wait = |client: &Client| {
            let segment = aio::Segment::from(&client.segment("locked").open().unwrap());
            let waits =
                (0..WAITERS).map(|_| segment.clone()).map(|segment| Box::pin(async move { segment.lock().await }));
            let mut waits: Vec<_> = waits.collect();
            assert!(waits.iter_mut().all(|wait| poll_once(wait).is_pending()));
            waits
        };
        let long_gone = wait(&gone);
        let mut dropped = wait(&client);
        poll_until_parked(&client, &mut dropped, WAITERS - 16);
        let rest = dropped.split_off(WAITERS - 20);
        drop(dropped);
        drop((long_gone, gone));
        held.unlock().unwrap();
        let mut tokens = Vec::new();
        for wait in rest {
            let guard = block_on(wait).unwrap();
            tokens.push(guard.token());
            block_on(guard.unlock()).unwrap();
        }
        assert!(tokens.len() == 20 && tokens.is_sorted());
        segment.lock_with(LockOptions::new()).unwrap().unlock().unwrap();
        until_parked(&client, 0);
    }

    #[test]
    fn limit_of_a_client_refuses_further_waits_only() {
        // If this broke, one client could take the memory of its node.
        let node = TestNode::start_with(|config| config.waits_per_client = 50);
        let client = node.client();
        let segment = aio::Segment::from(&client.segment("watched").allocate(Spec::new(8)).unwrap());
        let mut waits: Vec<_> = (0..100).map(|_| Box::pin(segment.wait_newer_than(Version(0)))).collect();
        let (mut refused, patience) = (0, Instant::now() + Duration::from_secs(60));
        while waits.len() > 66 {
            assert!(Instant::now() < patience, "{} waits are left", waits.len());
            waits.retain_mut(|wait| match poll_once(wait) {
                std::task::Poll::Ready(end) => {
                    let error = end.unwrap_err();
                    let reached = error.limit().unwrap();
                    assert_eq!((reached.limit, reached.value), (Limit::Waits, Some(50)), "{error}");
                    assert!(error.is_retryable() && error.to_string().contains("--waits-per-client"), "{error}");
                    refused += 1;
                    false
                }
                std::task::Poll::Pending => true,
            });
        }
        assert_eq!((refused, client.parked()), (34, 50));
        block_on(segment.put(0, &[1; 8])).unwrap();
        waits.into_iter().for_each(|wait| assert_eq!(block_on(wait).unwrap().version, Version(1)));
        until_parked(&client, 0);
    }

    #[test]
    fn handles_of_one_client_share_its_channel_for_tasks() {
        // If this broke, a second library of a program could not use tasks.
        let node = TestNode::start();
        let client = node.client();
        let (first, second) = (client.aio().unwrap(), client.aio().unwrap());
        let segment = client.segment("shared").allocate(Spec::new(8)).unwrap();
        block_on(aio::Segment::from(&segment).put(0, b"a handle")).unwrap();
        let opened = block_on(first.segment("shared").open()).unwrap();
        assert_eq!(&block_on(opened.get(0..8)).unwrap()[..], b"a handle");
        block_on(second.ping()).unwrap();
        drop((first, second));
        assert_eq!(block_on(opened.get(0..8)).unwrap().version(), Version(1));
        let text = format!("{segment:?} {opened:?} {client:?}");
        assert!(text.len() < 400 && text.contains("\"shared\""), "{text}");
    }
}
