//! The shards of a daemon as a client sees them: one attachment each, made when the first name needs it.
//!
//! A daemon may distribute its segments over several progress threads by name. Each has its own channels and memory for
//! each client. Allocating or opening a segment selects the shard of its name, and the handle stays there. The calls of
//! a handle are therefore the same as with one shard.

use crate::error::Error;
use crate::lease::keeper::{KeptLeases, LeaseKeeper};
use crate::session::of_process::PerProcess;
use crate::session::{AttachPlan, CallSettings, Inner};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::Instant;

/// State that the clones of a client share over all shards.
#[derive(Debug)]
pub(crate) struct Shards {
    plan: AttachPlan,
    settings: CallSettings,
    inners: Box<[OnceLock<Arc<Inner>>]>,
    /// Taken by the thread that attaches to another shard.
    turn: Mutex<()>,
    /// Leases that the client renews.
    keeper: PerProcess<KeptLeases>,
}

impl Shards {
    /// Attaches to the first shard, which reports the number of shards.
    pub(crate) fn begin(plan: AttachPlan, settings: CallSettings) -> Result<(Arc<Inner>, Arc<Self>), Error> {
        let by = Instant::now() + plan.options.timeout;
        let first = Arc::new(Inner::new(plan, settings, by)?);
        let plan = first.plan.clone();
        let count = plan.shard_count.unwrap_or(1);
        let mut inners = Vec::from([OnceLock::from(Arc::clone(&first))]);
        inners.resize_with(count.max(1).into(), OnceLock::new);
        let (turn, keeper) = (Mutex::new(()), PerProcess::default());
        let shards = Self { plan, settings, inners: inners.into(), turn, keeper };
        Ok((first, Arc::new(shards)))
    }

    /// Returns the same state as if there were a single shard.
    #[cfg(test)]
    fn single(shards: &Self) -> Arc<Self> {
        let (plan, turn) = (shards.plan.clone(), Mutex::new(()));
        Arc::new(Self {
            plan,
            settings: shards.settings,
            inners: [OnceLock::new()].into(),
            turn,
            keeper: PerProcess::default(),
        })
    }

    /// Lets no other thread attach to a shard.
    #[cfg(test)]
    pub(crate) fn turn(&self) -> std::sync::MutexGuard<'_, ()> {
        self.turn.lock().unwrap()
    }

    /// Returns the keeper of the client's leases in this process.
    pub(crate) fn keeper(&self) -> io::Result<Arc<LeaseKeeper>> {
        self.keeper.get()
    }

    /// Attaches in place of a parent of this process.
    pub(crate) fn leave_parent(&self) {
        self.inners.iter().filter_map(OnceLock::get).for_each(|inner| inner.leave_parent());
    }

    /// Returns the number of shards.
    pub(crate) fn count(&self) -> u8 {
        self.inners.len() as u8
    }

    /// Returns the attachment to a shard, made by then if this is its first use.
    pub(crate) fn at(&self, shard: u8, end: Instant) -> Result<Arc<Inner>, Error> {
        let place = &self.inners[usize::from(shard) % self.inners.len()];
        if let Some(inner) = place.get() {
            return Ok(Arc::clone(inner));
        }
        let (plan, mut last) = (self.plan.to_shard(shard), None);
        loop {
            match self.try_begin(place, &plan, end) {
                Ok(inner) => return Ok(inner),
                // As each call, the first one of a shard waits for the next daemon.
                Err(Some(error)) if error.kind() == crate::error::ErrorKind::NoDaemon && self.settings.retries => {
                    last = Some(error)
                }
                Err(Some(error)) => return Err(error),
                Err(None) => {}
            }
            if Instant::now() + Inner::RETRY_INTERVAL >= end {
                return Err(last.unwrap_or_else(|| plan.no_daemon_error(ErrorKind::TimedOut)));
            }
            std::thread::sleep(Inner::RETRY_INTERVAL);
        }
    }

    /// Makes one attempt to attach to a shard. No error: another thread attaches to one.
    fn try_begin(
        &self,
        place: &OnceLock<Arc<Inner>>,
        plan: &AttachPlan,
        by: Instant,
    ) -> Result<Arc<Inner>, Option<Error>> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(None),
        };
        if let Some(inner) = place.get() {
            return Ok(Arc::clone(inner));
        }
        let inner = Arc::new(Inner::new(plan.clone(), self.settings, by)?);
        Ok(Arc::clone(place.get_or_init(|| inner)))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{Batch, ErrorKind, LockOptions, Spec};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn client_finds_segments_of_all_shards() {
        // If this broke, a node with two progress threads would show a client half of its segments.
        let node = TestNode::start_with(|config| config.progress_threads = 3);
        for client in [node.client(), node.local_read_client()] {
            assert_eq!(client.shard_count(), 3);
            let names: Vec<String> = (0..24).map(|number| format!("table/{number}")).collect();
            let segments: Vec<_> =
                names.iter().map(|name| client.segment(name).allocate(Spec::new(5000)).unwrap()).collect();
            let shards: BTreeSet<u8> = segments.iter().map(|segment| segment.id().shard()).collect();
            assert_eq!(shards, BTreeSet::from([0, 1, 2]), "all shards are used");
            let ids: BTreeSet<_> = segments.iter().map(|segment| segment.id()).collect();
            assert_eq!(ids.len(), segments.len(), "no two have one id");
            for (number, segment) in segments.iter().enumerate() {
                segment.put(0, &[number as u8; 4000]).unwrap();
                assert_eq!(client.segment(segment.name()).open().unwrap().id(), segment.id());
            }
            // A batch covers all shards, and its replies come in its own order.
            let (mut batch, mut tickets) = (Batch::new(), Vec::new());
            for segment in &segments {
                let got = batch.get(segment, 0..100).unwrap();
                tickets.push((got, batch.put(segment, 4000, b"batched").unwrap()));
            }
            let mut replies = client.run(batch).unwrap();
            for (number, (got, put)) in tickets.into_iter().enumerate() {
                assert_eq!(replies.take(got).unwrap().value, [number as u8; 100]);
                assert_eq!(replies.take(put).unwrap().version.0, 2);
            }
            let listed: BTreeSet<String> =
                client.list("table/").map(|listing| listing.unwrap().name.to_string()).collect();
            assert_eq!(listed, names.into_iter().collect());
            let again = client.segment("table/7").allocate(Spec::new(8)).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::AlreadyExists);
            segments.into_iter().for_each(|segment| segment.release().unwrap());
            assert_eq!(client.list("").count(), 0);
        }
    }

    #[test]
    fn caller_whose_turn_does_not_come_ends_at_its_own_deadline() {
        // If this broke, many threads that first use a shard of a stopped daemon would end one after the other.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let client = node.short_timeout_client();
        let turn = client.shards.turn();
        let (ended, ends) = std::sync::mpsc::channel();
        for _ in 0..8 {
            let (client, ended) = (client.clone(), ended.clone());
            std::thread::spawn(move || ended.send(client.at_shard(1).map(drop)).unwrap());
        }
        for _ in 0..8 {
            let end = ends.recv_timeout(Duration::from_secs(60)).expect("it does not wait for the turn");
            assert_eq!(end.unwrap_err().kind(), ErrorKind::NoDaemon);
        }
        drop(turn);
        assert!(client.shards.inners[1].get().is_none(), "nobody searches after its deadline");
    }

    #[test]
    fn batch_runs_on_all_shards_at_once() {
        // If this broke, a batch over several shards would run them one after the other.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let (client, other) = (node.client(), node.client());
        let made: Vec<_> =
            (0..8).map(|number| client.segment(&format!("s{number}")).allocate(Spec::new(100_000)).unwrap()).collect();
        let on = |shard| made.iter().find(|segment| segment.id().shard() == shard).unwrap();
        let for_long = LockOptions::new().lease(Duration::from_secs(600));
        for (held, free) in [(on(0), on(1)), (on(1), on(0))] {
            let locked = other.segment(held.name()).open().unwrap().lock_with(for_long).unwrap();
            let before = free.get(0..8).unwrap().version();
            std::thread::scope(|scope| {
                let batch = scope.spawn(|| {
                    let mut batch = Batch::new();
                    for number in 0..300u64 {
                        // More calls than either shard has capacity for at once.
                        batch.put(held, number * 300, &[1; 300]).unwrap();
                        batch.put(free, number * 300, &[2; 300]).unwrap();
                    }
                    client.run(batch).unwrap()
                });
                let all = ddss_core::Version(before.0 + 300);
                while other.segment(free.name()).open().unwrap().get(0..8).unwrap().version() < all {
                    std::thread::yield_now();
                }
                assert!(!batch.is_finished());
                locked.unlock().unwrap();
                batch.join().unwrap().ok().unwrap();
            });
        }
    }

    #[test]
    fn async_client_finds_segments_of_all_shards() {
        // If this broke, an asynchronous service would find half of the segments of a blocking one.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let client = node.client().aio().unwrap();
        block_on(async {
            let mut segments = Vec::new();
            for number in 0..8u8 {
                let segment = client.segment(&format!("s{number}")).allocate(Spec::new(500)).await.unwrap();
                segment.put(0, &[number; 300]).await.unwrap();
                segments.push(segment);
            }
            let shards: BTreeSet<u8> = segments.iter().map(|segment| segment.id().shard()).collect();
            assert_eq!(shards.len(), 2);
            let mut listed = BTreeSet::new();
            let mut list = client.list("");
            while let Some(found) = list.next().await {
                listed.insert(found.unwrap().name);
            }
            assert_eq!(listed.len(), 8);
            let refused = client.list(&"a".repeat(1000)).next().await.unwrap().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::BadArgument);
            let mut batch = Batch::new();
            let tickets: Vec<_> = segments.iter().map(|segment| batch.get(segment, 0..300).unwrap()).collect();
            let mut replies = client.run(batch).await.unwrap();
            for (number, ticket) in tickets.into_iter().enumerate() {
                assert_eq!(replies.take(ticket).unwrap().value, [number as u8; 300]);
            }
            assert_eq!(client.segment("s3").open().await.unwrap().get(..3).await.unwrap()[..], [3; 3]);
        });
    }

    #[test]
    fn client_of_a_shard_that_no_longer_exists_has_to_connect_again() {
        // If this broke, each call of such a handle would search for a daemon until its deadline, although one runs.
        let mut node = TestNode::start_with(|config| config.progress_threads = 3);
        let (client, new) = (node.client(), node.client());
        let last = client.at_shard(2).unwrap();
        last.ping().unwrap();
        block_on(last.aio().unwrap().ping()).unwrap();
        node.restart_with(|config| config.progress_threads = 2);
        for ended in [last.ping(), block_on(crate::aio::Client::of(last).ping()), new.at_shard(2).map(drop)] {
            let error = ended.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectAgain, "{error}");
        }
        assert_eq!(node.client().shard_count(), 2);
    }

    #[test]
    fn name_is_refused_by_wrong_shard() {
        // If this broke, a client with a wrong number of shards would create segments that no other client finds.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let client = node.client();
        let segment = client.segment("here").allocate(Spec::new(8)).unwrap();
        assert_eq!(segment.id().shard(), 1);
        let lying = crate::Client { shards: crate::shards::Shards::single(&client.shards), ..client.clone() };
        for error in
            [lying.segment("here").open().unwrap_err(), lying.segment("here").allocate(Spec::new(8)).unwrap_err()]
        {
            assert_eq!(error.kind(), ErrorKind::ReleaseMismatch, "{error}");
        }
        let shared = client.segment("here").open().unwrap();
        shared.cell::<u64>(0).unwrap().put(&7).unwrap();
        assert!(client.segment("nowhere").open().unwrap_err().has_failed_with(ddss_core::Failure::NotFound));
    }
}
