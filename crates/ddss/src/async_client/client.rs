//! The client with asynchronous calls.

use super::call::{Call, Receiver};
use crate::call::channels::NoCompletion;
use crate::call::retry::Retry;
#[cfg(feature = "tracing")]
use crate::call::span;
use crate::deadline::{Deadline, TIMEOUT_MAX};
use crate::error::Error;
use crate::error::reason::Reason;
use crate::plan::{CallPlan, Decoder, PlannedCall, Reply};
use crate::reactor::pause::Pause;
use crate::reactor::reactor::Reactor;
use crate::reactor::tasks::TaskChannel;
use crate::session::ended::Ended;
use crate::session::mapped_areas::MappedAreas;
use crate::session::of_process::OfProcess;
use ddss_core::{Completion, Failure, Name, NodeId, OpenedSegment, Outcome};
use ddss_ipc::SharedMemory;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A [`Client`] with asynchronous calls. Clones share it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let client = client.aio()?;
/// client.ping().await?;
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client(crate::Client);

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.describe(out, "aio::Client")
    }
}

fn successful(completion: Completion) -> Result<(), Completion> {
    if completion.outcome == Outcome::Done { Ok(()) } else { Err(completion) }
}

/// An area for whose mapping tasks wait.
struct OwedArea {
    areas: Arc<OfProcess<MappedAreas>>,
    area: usize,
}

impl Drop for OwedArea {
    fn drop(&mut self) {
        self.areas.end(self.area);
    }
}

impl crate::Client {
    /// Returns the asynchronous client. All asynchronous clients of one client share its channel for tasks.
    pub fn aio(&self) -> Result<Client, Error> {
        let mut time = self.time();
        self.leave_parent();
        // All shards at once, since a task cannot block for a connection later.
        for shard in 0..self.shard_count() {
            let client = self.at_shard_by(shard, &mut time)?;
            // Without a daemon the first call attaches.
            if let Some(session) = client.inner.current_session() {
                client.tasks.of(&client.inner).reactor_on(&session)?;
            }
        }
        Ok(Client::of(self.clone()))
    }
}

impl Client {
    /// Returns the asynchronous form of a client. Its channel for tasks is created at the first call.
    pub(crate) fn of(client: crate::Client) -> Self {
        Self(client)
    }

    /// Returns this client bound to another shard. [`crate::Client::aio`] has attached to all of them.
    pub(crate) fn at_shard(&self, shard: u8) -> Result<Self, Error> {
        self.0.at_shard(shard).map(Self)
    }

    pub(crate) fn shard(&self) -> u8 {
        self.0.shard()
    }

    /// Returns this client bound to the shard that serves a name.
    pub(crate) fn at_shard_of(&self, name: &Name) -> Result<Self, Error> {
        self.0.at_shard_of(name).map(Self)
    }

    /// Returns the memory of the area that holds a segment, if this process may read it in place. A thread maps an area: the
    /// acceptor may be slow, and a task must not block.
    pub(crate) async fn area_of(&self, mut time: Deadline, opened: &OpenedSegment) -> Option<SharedMemory> {
        let inner = &self.0.inner;
        let area = inner.area_of(opened)?;
        let areas = inner.areas.get().ok()?;
        if let Ok(known) = areas.get(area) {
            return known;
        }
        let (mapped, by) = (Arc::new(Ended::default()), time.deadline());
        if areas.wait(area, &mapped) {
            // Its drop wakes the tasks, also if there is no thread or if it panics.
            let (owed, inner) = (OwedArea { areas, area }, Arc::clone(inner));
            let map = move || drop((inner.map_area(owed.area, by), owed));
            let _ = std::thread::Builder::new().name("ddss-map".to_owned()).spawn(map);
        }
        std::future::poll_fn(|context| mapped.poll(context)).await
    }

    fn channel(&self) -> &TaskChannel {
        self.0.tasks.of(&self.0.inner)
    }

    /// Returns the reactor of a daemon that takes calls, or of the next daemon if that comes in time and the call `waits`
    /// for one.
    pub(super) async fn reactor(&self, deadline: Instant, waits: bool) -> Result<Arc<Reactor>, Error> {
        loop {
            if let Some(session) = self.0.inner.current_session() {
                match self.channel().reactor_on(&session) {
                    // Another call has found a newer daemon in the meantime: its reactor serves this call.
                    Err(_) if !Arc::ptr_eq(&session, &self.0.inner.last_session()) => continue,
                    reactor => return reactor,
                }
            }
            let search = self.channel().search.get().map_err(Reason::Thread)?;
            search.begin(&self.0.inner, deadline, waits)?.await?;
        }
    }

    /// Creates a future that is ready after `time`; at once if no call has created the channel for tasks.
    pub(crate) fn pause(&self, time: Duration) -> Pause {
        Pause::new(self.channel().reactor.load_full(), time)
    }

    /// Returns the client with blocking calls.
    pub fn blocking(&self) -> &crate::Client {
        &self.0
    }

    /// Returns a client whose calls have this timeout: [`Client::with_timeout`](crate::Client::with_timeout).
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self(self.0.with_timeout(timeout))
    }

    /// Returns the id of this client's node.
    pub fn node(&self) -> NodeId {
        self.0.node()
    }

    pub(crate) fn retries(&self) -> bool {
        self.0.retries()
    }

    /// Returns the default deadline of a call.
    pub(crate) fn time(&self) -> Deadline {
        self.0.time()
    }

    /// Runs a planned call.
    pub(crate) async fn execute<T: Send>(
        &self,
        time: Deadline,
        call: PlannedCall<'_, impl Decoder<T>>,
    ) -> Result<T, Error> {
        self.run_gathered(time, call, None).await.map(|(value, _)| value)
    }

    /// Runs a planned call, of a batch that may still gather; also returns the reactor that served it.
    pub(crate) async fn run_gathered<T: Send>(
        &self,
        time: Deadline,
        call: PlannedCall<'_, impl Decoder<T>>,
        gathering: Option<&AtomicBool>,
    ) -> Result<(T, Arc<Reactor>), Error> {
        // The span of a group stands for its calls.
        #[cfg(feature = "tracing")]
        let span = if gathering.is_some() { tracing::Span::none() } else { span::of_call(&call.plan) };
        let running = self.run_planned(time, call, gathering);
        #[cfg(feature = "tracing")]
        let running = tracing::Instrument::instrument(running, span.clone());
        let result = running.await;
        #[cfg(feature = "tracing")]
        span::record_error(&span, result.as_ref().err());
        result
    }

    async fn run_planned<T: Send>(
        &self,
        mut time: Deadline,
        call: PlannedCall<'_, impl Decoder<T>>,
        gathering: Option<&AtomicBool>,
    ) -> Result<(T, Arc<Reactor>), Error> {
        let PlannedCall { plan, mut decode } = call;
        // Before the deadline begins, so that the error names the timeout as the caller set it.
        let timeout = time.remaining();
        if timeout > TIMEOUT_MAX {
            return Err(self.0.explain(NoCompletion::TooLong(timeout), plan.action, plan.target));
        }
        let mut value = None;
        let mut take = |completion: &Completion, reply: &Reply<'_>| value = Some(decode(completion, reply));
        let reactor = self.call(time.deadline(), &plan, gathering, &mut take).await?;
        Ok((value.expect("each successful call is decoded"), reactor))
    }

    /// Makes a call and passes its reply to `take`. Does not allocate. Returns the reactor that served the call.
    async fn call(
        &self,
        deadline: Instant,
        plan: &CallPlan<'_>,
        gathering: Option<&AtomicBool>,
        take: &mut Receiver<'_>,
    ) -> Result<Arc<Reactor>, Error> {
        let retries = self.retries();
        let (mut refused, mut retry) = (false, Retry::new(retries));
        let (ended, reactor) = loop {
            let reactor = match self.reactor(deadline, plan.waits_for_daemon()).await {
                // No daemon has replaced the one that is shutting down.
                Err(_) if refused => {
                    return Err(self.0.explain(NoCompletion::ShuttingDown, plan.action, plan.target));
                }
                reactor => reactor?,
            };
            let mut take = |completion: &Completion, reply: &Reply<'_>| take(completion, reply);
            match Call::new(Arc::clone(&reactor), deadline, plan, gathering, &mut take).await {
                // The daemon ended during the call. A call without side effects is repeated on the next daemon.
                Err(NoCompletion::Gone) if plan.is_harmless && retries => {}
                // No part of the call went out.
                Err(NoCompletion::NotSent) => {}
                // The daemon did not begin the call, so the next daemon is asked, whatever the call does.
                Ok(Completion { outcome: Outcome::Failed(Failure::GoingDown), .. }) => {
                    reactor.session.attachment.set_draining();
                    refused = true;
                }
                Ok(completion) if completion.outcome != Outcome::Done => {
                    match retry.pause(plan, completion.outcome, deadline) {
                        Some(pause) => self.pause(pause).await,
                        None => break (Ok(completion), reactor),
                    }
                }
                ended => break (ended, reactor),
            }
        };
        self.0.conclude(ended.map(successful), plan.action, plan.target)?;
        Ok(reactor)
    }

    /// Makes a call on this daemon only; nothing is decoded.
    pub(crate) async fn run_on(
        &self,
        reactor: &Arc<Reactor>,
        mut time: Deadline,
        plan: CallPlan<'_>,
    ) -> Result<(), Error> {
        let ended = Call::new(Arc::clone(reactor), time.deadline(), &plan, None, &mut |_, _| {}).await;
        self.0.conclude(ended.map(successful), plan.action, plan.target)
    }

    /// Returns the number of wake-ups that its channel sent for calls.
    #[cfg(test)]
    pub(super) fn rings(&self) -> usize {
        self.channel().reactor.load_full().unwrap().channel.rings()
    }

    /// Returns true if no call is in flight on its channel.
    #[cfg(test)]
    fn is_quiet(&self) -> bool {
        self.channel().reactor.load_full().unwrap().channel.is_quiet()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on, poll_once};
    use crate::{ErrorKind, Spec};
    use std::pin::pin;

    #[test]
    fn async_put_and_get_run_on_bare_executor() {
        // If this broke, an asynchronous service could not share any segment.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        block_on(async {
            client.ping().await.unwrap();
            for bytes in [8, 32, 33, 5000, 1 << 20] {
                let segment = client.segment(&format!("s{bytes}")).allocate(Spec::new(bytes)).await.unwrap();
                let value = vec![bytes as u8 ^ 0x5a; bytes as usize];
                let put = segment.put(0, &value).await.unwrap();
                let got = segment.get(..).await.unwrap();
                assert_eq!((&got[..], got.version()), (&value[..], put.version));
                assert_eq!(segment.get(1..=bytes).await.unwrap_err().kind(), ErrorKind::OutOfRange);
                segment.release().await.unwrap();
            }
            assert_eq!(client.segment("nothing").open().await.unwrap_err().kind(), ErrorKind::NotFound);
        });
    }

    #[test]
    fn hundreds_of_concurrent_calls_queue_and_complete() {
        // If this broke, a burst of tasks would fail, grow without bound, or hang.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        block_on(async {
            let segment = client.segment("many").allocate(Spec::new(64 * 500)).await.unwrap();
            let tasks: Vec<_> = (0..500u64)
                .map(|index| {
                    let segment = segment.clone();
                    async move {
                        segment.put(index * 64, &[index as u8; 64]).await.unwrap();
                        let got = segment.get(index * 64..index * 64 + 64).await.unwrap();
                        assert_eq!(&got[..], &[index as u8; 64]);
                    }
                })
                .collect();
            crate::testing::join_all(tasks).await;
        });
        assert!(client.is_quiet());
    }

    #[test]
    fn memory_of_dropped_future_is_not_reused_until_daemon_completes_call() {
        // If this broke, the bytes of one call could land in the buffer of another.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        let segment = block_on(client.segment("dropped").allocate(Spec::new(1 << 20))).unwrap();
        block_on(segment.put(0, &vec![1; 1 << 20])).unwrap();
        for turn in 0..200u32 {
            let mut dropped = Box::pin(segment.get(..));
            // Half of the futures are dropped in flight, half before they begin.
            if turn % 2 == 0 {
                let _ = poll_once(&mut dropped);
            }
            drop(dropped);
            let value = block_on(segment.get(0..4096)).unwrap();
            assert!(value.iter().all(|&byte| byte == 1));
        }
        // All capacity returns in the end.
        while !client.is_quiet() {
            std::thread::yield_now();
        }
        assert!(poll_once(&mut pin!(client.ping())).is_ready() || block_on(client.ping()).is_ok());
    }

    #[test]
    fn tasks_on_several_threads_share_one_client() {
        // If this broke, a multi-threaded runtime could not use it.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        let segment = block_on(client.segment("threads").allocate(Spec::new(8))).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let segment = segment.clone();
                scope.spawn(move || {
                    block_on(async {
                        for turn in 0..500u64 {
                            segment.put(0, &turn.to_le_bytes()).await.unwrap();
                            segment.get(..).await.unwrap();
                        }
                    });
                });
            }
        });
        assert_eq!(block_on(segment.get(..)).unwrap().version().0, 2000);
    }

    #[test]
    fn concurrent_drops_of_futures_leak_nothing() {
        // If this broke, a service that cancels tasks would run out of calls or memory, or leak locks.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        let (words, locked) = (
            block_on(client.segment("words").allocate(Spec::new(4096))),
            block_on(client.segment("locked").allocate(Spec::new(8))),
        );
        let (words, locked) = (words.unwrap(), locked.unwrap());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (words, locked) = (words.clone(), locked.clone());
                scope.spawn(move || {
                    for turn in 0..300u64 {
                        // Each task finds its own writes in its part of the segment.
                        let (from, value) = (thread * 1024, turn << 8 | thread);
                        block_on(words.put(from, &[value.to_le_bytes(); 128].concat())).unwrap();
                        let mut dropped = Box::pin(words.get(from..from + 1024));
                        let _ = poll_once(&mut dropped);
                        if turn % 3 == thread % 3 {
                            let _ = poll_once(&mut Box::pin(locked.lock()));
                        }
                        drop(dropped);
                        let got = block_on(words.get(from..from + 1024)).unwrap();
                        assert!(got.chunks_exact(8).all(|word| word == value.to_le_bytes()));
                    }
                });
            }
        });
        // The lock is free again, whichever future it was granted to.
        block_on(async { locked.lock().await.unwrap().unlock().await.unwrap() });
        while !client.is_quiet() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn every_task_fails_when_daemon_ends() {
        // If this broke, tasks would wait forever for a dead daemon.
        let node = TestNode::start();
        let client = node.short_timeout_client().aio().unwrap();
        block_on(client.ping()).unwrap();
        drop(node);
        assert!(matches!(block_on(client.ping()).unwrap_err().kind(), ErrorKind::DaemonGone | ErrorKind::NoDaemon));
    }
}
