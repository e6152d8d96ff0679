//! The client with asynchronous calls.

use super::call::{Call, CallPlan, Decoder, Encoder, Outgoing, Reply, as_given};
use super::dispatcher::Dispatcher;
use super::reactor::Reactor;
use super::reconnect::Reconnect;
use super::segment::AsyncSegment;
use super::sleep::Pause;
use crate::api::metadata::{after, listings};
use crate::call::channels::NoCompletion;
use crate::client::{Client, checked_name};
use crate::error::Error;
use crate::session::Session;
use arc_swap::{ArcSwap, Guard};
use ddss_core::{
    ArenaRange, Completion, Failure, ListPage, ListQuery, Listing, Name, NodeId, OpenedSegment, Operation, Outcome,
    Principal, Shard, Spec,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A [`Client`] with asynchronous calls. Clones share it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let client = client.to_async()?;
/// client.ping().await?;
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncClient {
    client: Client,
    shared: Arc<Shared>,
    /// One entry for each of the daemon's shards.
    shards: Arc<[(Client, Arc<Shared>)]>,
}

/// The channel for tasks, on the daemon that runs at present.
struct Shared {
    reactor: ArcSwap<Reactor>,
    /// Taken by the thread that creates a new reactor.
    turn: Mutex<()>,
    search: Arc<Reconnect>,
}

impl std::fmt::Debug for AsyncClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AsyncClient").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Creates the plan of a call without bytes.
pub(super) fn empty_plan() -> CallPlan<'static> {
    CallPlan { outgoing: Outgoing::Bytes(&[]), incoming: 0, operation: Operation::Null, gathering: None }
}

fn reactor_of(session: Arc<Session>) -> Result<Reactor, Error> {
    let (channel, runs) = session.channels.take_task_channel().ok_or(Error::AsyncClientExists)?;
    let dispatcher = Dispatcher::new(channel, session.channels.arena().clone(), runs);
    Reactor::start(session, dispatcher).map_err(Error::Thread)
}

impl AsyncClient {
    pub(crate) fn start(client: Client) -> Result<Self, Error> {
        // All shards at once, since a task cannot block for a connection later.
        let attach = |shard| {
            let client = client.at_shard(shard)?;
            let reactor = ArcSwap::from_pointee(reactor_of(Guard::into_inner(client.0.last_session()))?);
            Ok((client, Arc::new(Shared { reactor, turn: Mutex::new(()), search: Arc::default() })))
        };
        let shards: Arc<[_]> = (0..client.shard_count()).map(attach).collect::<Result<_, Error>>()?;
        let (client, shared) = shards[0].clone();
        Ok(Self { client, shared, shards })
    }

    /// Returns this client bound to another shard.
    fn at_shard(&self, shard: u8) -> Self {
        let (client, shared) = self.shards[usize::from(shard) % self.shards.len()].clone();
        Self { client, shared, shards: Arc::clone(&self.shards) }
    }

    /// Returns this client bound to the shard that serves a name.
    fn at_shard_of(&self, name: &Name) -> Self {
        self.at_shard(Shard::index_of(name, self.shards.len() as u8))
    }

    /// Returns the reactor of a daemon that takes calls, or of the next daemon if that comes in time. `harmless` marks
    /// a call without side effects, which any daemon may run.
    pub(super) async fn reactor(&self, deadline: Instant, harmless: bool) -> Result<Arc<Reactor>, Error> {
        loop {
            if let Some(reactor) = self.reactor_now() {
                return reactor;
            }
            self.shared.search.begin(&self.client.0, deadline, harmless)?.await?;
        }
    }

    fn reactor_now(&self) -> Option<Result<Arc<Reactor>, Error>> {
        Some(self.reactor_on(self.client.0.current_session()?))
    }

    fn reactor_on(&self, session: Guard<Arc<Session>>) -> Result<Arc<Reactor>, Error> {
        let reactor = self.shared.reactor.load();
        if Arc::ptr_eq(&reactor.session, &session) {
            return Ok(Guard::into_inner(reactor));
        }
        let _turn = self.shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let reactor = self.shared.reactor.load_full();
        if Arc::ptr_eq(&reactor.session, &session) {
            return Ok(reactor);
        }
        let reactor = Arc::new(reactor_of(Guard::into_inner(session))?);
        self.shared.reactor.store(Arc::clone(&reactor));
        Ok(reactor)
    }

    /// Creates a future that is ready after `time`.
    pub(crate) fn pause(&self, time: Duration) -> Pause {
        Pause::new(self.shared.reactor.load_full(), time)
    }

    /// Returns the client with blocking calls.
    pub fn blocking(&self) -> &Client {
        &self.client
    }

    /// Allocates a segment: [`Client::allocate`].
    pub async fn allocate(&self, name: &str, spec: Spec) -> Result<AsyncSegment, Error> {
        let checked = checked_name(name, "allocate")?;
        spec.check().map_err(Error::argument("allocate", name))?;
        let client = self.at_shard_of(&checked);
        let mut outgoing = spec.encode().to_vec();
        outgoing.extend_from_slice(checked.as_str().as_bytes());
        let make: Encoder = |range, _| Operation::Allocate { spec_and_name: range };
        client.by_text("allocate", name, &outgoing, make).await
    }

    /// Allocates a segment for another user: [`Client::allocate_for`].
    pub async fn allocate_for(&self, name: &str, spec: Spec, owner: Principal) -> Result<AsyncSegment, Error> {
        spec.check().map_err(Error::argument("allocate", name))?;
        let made = self.allocate(name, Spec { mode: 0, ..spec }).await?;
        if let Err(error) = made.set_owner_and_mode(owner, spec.mode).await {
            drop(made.release().await);
            return Err(error);
        }
        self.open(name).await
    }

    /// Opens a segment by name: [`Client::open`].
    pub async fn open(&self, name: &str) -> Result<AsyncSegment, Error> {
        let checked = checked_name(name, "open")?;
        let text = checked.as_str().as_bytes();
        self.at_shard_of(&checked).by_text("open", name, text, |range, _| Operation::Open { name: range }).await
    }

    async fn by_text(
        self,
        action: &'static str,
        name: &str,
        outgoing: &[u8],
        make: Encoder,
    ) -> Result<AsyncSegment, Error> {
        let plan = CallPlan { outgoing: Outgoing::Bytes(outgoing), ..empty_plan() };
        let completion = self.call(action, name, plan, make, &mut |_| {}).await?;
        let opened = OpenedSegment::decode(&completion.data);
        Ok(AsyncSegment::new(self, name, opened))
    }

    /// Makes one round trip to the progress thread: [`Client::ping`].
    pub async fn ping(&self) -> Result<(), Error> {
        self.call("reach", "the daemon", empty_plan(), |_, _| Operation::Null, &mut |_| {}).await.map(drop)
    }

    /// Lists all segments whose names begin with `prefix`: [`Client::list`]. Each page has the timeout of one call.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listing>, Error> {
        let mut all = Vec::new();
        for shard in 0..self.shards.len() as u8 {
            self.at_shard(shard).list_shard(prefix, &mut all).await?;
        }
        Ok(all)
    }

    async fn list_shard(&self, prefix: &str, all: &mut Vec<Listing>) -> Result<(), Error> {
        let failed = |failure| Error::Failed { action: "list", target: prefix.to_owned(), failure };
        let mut query = ListQuery::new(prefix, "").map_err(failed)?;
        let mut next = Some(NodeId(1));
        while let Some(node) = next {
            let operation = Operation::List { node, text: ArenaRange { slot: 0, bytes: 0 } };
            let text = query.encode();
            let plan =
                CallPlan { outgoing: Outgoing::Bytes(&text), incoming: Listing::PAGE_BYTES, operation, ..empty_plan() };
            let make: Encoder = |range, plan| {
                let text = ArenaRange { bytes: plan.outgoing.bytes() as u32, ..range };
                plan.operation.with_range(text)
            };
            let (completion, bytes) = self.call_for("list", prefix, plan, make).await?;
            let page = ListPage::decode(&completion.data);
            let found = listings(&page, &bytes).map_err(failed)?;
            next = after(&page, &mut query, found.last());
            all.extend(found);
        }
        Ok(())
    }

    /// Returns the id of this client's node.
    pub fn node(&self) -> NodeId {
        self.client.node()
    }

    /// Returns the deadline of a call that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.client.0.timeout
    }

    /// Makes a call and passes its reply to `take`. Does not allocate.
    pub(super) async fn call(
        &self,
        action: &'static str,
        target: &str,
        plan: CallPlan<'_>,
        make: Encoder,
        take: &mut Decoder<'_>,
    ) -> Result<Completion, Error> {
        self.call_by(self.deadline(), action, target, plan, make, take).await.map(|(completion, _)| completion)
    }

    /// Makes a call with this deadline; also returns the reactor that served it.
    pub(super) async fn call_by(
        &self,
        deadline: Instant,
        action: &'static str,
        target: &str,
        plan: CallPlan<'_>,
        make: Encoder,
        take: &mut Decoder<'_>,
    ) -> Result<(Completion, Arc<Reactor>), Error> {
        let harmless = plan.is_harmless(make);
        let mut refused = false;
        let (ended, reactor) = loop {
            let reactor = match self.reactor(deadline, harmless).await {
                // No daemon has replaced the one that is shutting down.
                Err(_) if refused => return Err(self.client.explain(NoCompletion::ShuttingDown, action, target)),
                reactor => reactor?,
            };
            let mut take = |brought: &Reply<'_>| take(brought);
            match Call::new(Arc::clone(&reactor), deadline, plan, make, &mut take).await {
                // The daemon ended during the call. A call without side effects is repeated on the next daemon.
                Err(NoCompletion::Gone) if harmless => {}
                // No part of the call went out.
                Err(NoCompletion::NotSent) => {}
                // The daemon did not begin the call, so the next daemon is asked, whatever the call does.
                Ok(Completion { outcome: Outcome::Failed(Failure::GoingDown), .. }) => {
                    reactor.session.attachment.set_draining();
                    refused = true;
                }
                ended => break (ended, reactor),
            }
        };
        let completion = ended.map_err(|none| self.client.explain(none, action, target))?;
        Error::of_completion(&completion, action, target)?;
        Ok((completion, reactor))
    }

    /// Makes a call on this daemon only.
    pub(super) async fn call_on(
        &self,
        reactor: &Arc<Reactor>,
        action: &'static str,
        target: &str,
        plan: CallPlan<'_>,
    ) -> Result<Completion, Error> {
        let ended = Call::new(Arc::clone(reactor), self.deadline(), plan, as_given, &mut |_| {}).await;
        let completion = ended.map_err(|none| self.client.explain(none, action, target))?;
        Error::of_completion(&completion, action, target)?;
        Ok(completion)
    }

    /// Makes a call that returns bytes as a vector.
    pub(super) async fn call_for(
        &self,
        action: &'static str,
        target: &str,
        plan: CallPlan<'_>,
        make: Encoder,
    ) -> Result<(Completion, Vec<u8>), Error> {
        self.call_for_by(self.deadline(), action, target, plan, make).await
    }

    /// Makes a call that returns bytes as a vector, with this deadline.
    pub(super) async fn call_for_by(
        &self,
        deadline: Instant,
        action: &'static str,
        target: &str,
        plan: CallPlan<'_>,
        make: Encoder,
    ) -> Result<(Completion, Vec<u8>), Error> {
        let mut bytes = vec![0; plan.incoming];
        let mut take = |brought: &Reply<'_>| brought.read(0, &mut bytes);
        let (completion, _) = self.call_by(deadline, action, target, plan, make, &mut take).await?;
        Ok((completion, bytes))
    }

    /// Returns the number of wake-ups that its channel sent for calls.
    #[cfg(test)]
    pub(super) fn rings(&self) -> usize {
        self.shared.reactor.load().dispatcher.rings()
    }

    /// Returns true if no call is in flight on its channel.
    #[cfg(test)]
    fn is_quiet(&self) -> bool {
        self.shared.reactor.load().dispatcher.is_quiet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNode, block_on, poll_once};
    use ddss_core::Failure;
    use std::pin::pin;

    #[test]
    fn async_put_and_get_run_on_bare_executor() {
        // If this broke, an asynchronous service could not share any segment.
        let node = TestNode::start();
        let client = node.client().to_async().unwrap();
        block_on(async {
            client.ping().await.unwrap();
            for bytes in [8, 32, 33, 5000, 1 << 20] {
                let segment = client.allocate(&format!("s{bytes}"), Spec::new(bytes)).await.unwrap();
                let value = vec![bytes as u8 ^ 0x5a; bytes as usize];
                let put = segment.put(0, &value).await.unwrap();
                let got = segment.get(..).await.unwrap();
                assert_eq!((&got[..], got.version()), (&value[..], put.version));
                assert!(matches!(segment.get(1..=bytes).await, Err(Error::OutOfRange { .. })));
                segment.release().await.unwrap();
            }
            assert_eq!(client.open("nothing").await.unwrap_err().failure(), Some(Failure::NotFound));
        });
    }

    #[test]
    fn hundreds_of_concurrent_calls_queue_and_complete() {
        // If this broke, a burst of tasks would fail, grow without bound, or hang.
        let node = TestNode::start();
        let client = node.client().to_async().unwrap();
        block_on(async {
            let segment = client.allocate("many", Spec::new(64 * 500)).await.unwrap();
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
        let client = node.client().to_async().unwrap();
        let segment = block_on(client.allocate("dropped", Spec::new(1 << 20))).unwrap();
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
        let client = node.client().to_async().unwrap();
        let segment = block_on(client.allocate("threads", Spec::new(8))).unwrap();
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
        let client = node.client().to_async().unwrap();
        let (words, locked) =
            (block_on(client.allocate("words", Spec::new(4096))), block_on(client.allocate("locked", Spec::new(8))));
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
        let client = node.short_timeout_client().to_async().unwrap();
        block_on(client.ping()).unwrap();
        drop(node);
        assert!(matches!(block_on(client.ping()), Err(Error::DaemonGone { .. } | Error::NoDaemon { .. })));
    }
}
