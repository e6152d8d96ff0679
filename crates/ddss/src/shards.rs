//! The planes of a daemon as a client sees them: an attachment to each, made when the first name asks for it.
//!
//! A daemon may share its segments out among several progress threads, by their names. Each has rings and memory of
//! its own for each client; whoever makes or opens a segment goes to the plane of the name, and its handle stays there.
//! So the calls of a handle are what they are with one plane.

use crate::client::Client;
use crate::error::Error;
use crate::session::{AttachPlan, Inner};
use ddss_core::{Name, Shard};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What the clones of a client share, whichever plane they are attached to.
#[derive(Debug)]
pub(crate) struct Shards {
    plan: AttachPlan,
    timeout: Duration,
    near: bool,
    attached: Box<[OnceLock<Arc<Inner>>]>,
    /// Held by the one who attaches to another plane.
    turn: Mutex<()>,
}

impl Shards {
    /// Attaches to the first plane, which tells how many there are.
    pub(crate) fn begin(plan: AttachPlan, timeout: Duration, near: bool) -> Result<Client, Error> {
        let first = Arc::new(Inner::new(plan, timeout, near)?);
        let plan = first.plan.clone();
        let count = plan.planes.unwrap_or(1);
        let mut attached = Vec::from([OnceLock::from(Arc::clone(&first))]);
        attached.resize_with(count.max(1).into(), OnceLock::new);
        let planes = Self { plan, timeout, near, attached: attached.into(), turn: Mutex::new(()) };
        Ok(Client(first, Arc::new(planes)))
    }

    /// As if there were one plane.
    #[cfg(test)]
    fn alone(planes: &Self) -> Arc<Self> {
        let (plan, turn) = (planes.plan.clone(), Mutex::new(()));
        Arc::new(Self { plan, timeout: planes.timeout, near: planes.near, attached: [OnceLock::new()].into(), turn })
    }

    fn at(&self, plane: u8) -> Result<Arc<Inner>, Error> {
        let place = &self.attached[usize::from(plane) % self.attached.len()];
        if let Some(inner) = place.get() {
            return Ok(Arc::clone(inner));
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = place.get() {
            return Ok(Arc::clone(inner));
        }
        let inner = Arc::new(Inner::new(self.plan.to_plane(plane), self.timeout, self.near)?);
        Ok(Arc::clone(place.get_or_init(|| inner)))
    }
}

impl Client {
    /// How many progress threads the daemon has, among which it shares its segments out by their names. A client
    /// attaches to each of them when it needs it.
    ///
    /// ```
    /// # let node = ddssd::Ephemeral::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// assert_eq!(client.planes(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn planes(&self) -> u8 {
        self.1.attached.len() as u8
    }

    /// Which of them this clone is attached to.
    pub(crate) fn plane(&self) -> u8 {
        self.0.plan.plane
    }

    /// The same client at another plane.
    pub(crate) fn at_plane(&self, plane: u8) -> Result<Self, Error> {
        if plane == self.plane() {
            return Ok(self.clone());
        }
        Ok(Client(self.1.at(plane)?, Arc::clone(&self.1)))
    }

    /// The same client at the plane that has a name.
    pub(crate) fn at_plane_of(&self, name: &Name) -> Result<Self, Error> {
        self.at_plane(Shard::index_of(name, self.planes()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{BatchReply, Error, Failure, LockOptions, Shared, Spec};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn segments_of_all_planes_are_one_world() {
        // If this broke, a node with two progress threads would show a client half of its segments.
        let node = TestNode::start_with(|config| config.progress_threads = 3);
        for client in [node.client(), node.near_client()] {
            assert_eq!(client.planes(), 3);
            let names: Vec<String> = (0..24).map(|number| format!("table/{number}")).collect();
            let segments: Vec<_> = names.iter().map(|name| client.allocate(name, Spec::new(5000)).unwrap()).collect();
            let planes: BTreeSet<u8> = segments.iter().map(|segment| segment.id().plane()).collect();
            assert_eq!(planes, BTreeSet::from([0, 1, 2]), "all planes are used");
            let ids: BTreeSet<_> = segments.iter().map(|segment| segment.id()).collect();
            assert_eq!(ids.len(), segments.len(), "no two have one id");
            for (number, segment) in segments.iter().enumerate() {
                segment.put(0, &[number as u8; 4000]).unwrap();
                assert_eq!(client.open(segment.name()).unwrap().id(), segment.id());
            }
            // A batch goes over all planes, and its answers come in its own order.
            let mut batch = client.batch();
            for segment in &segments {
                batch.get(segment, 0..100).unwrap().put(segment, 4000, b"batched").unwrap();
            }
            let answers: Vec<BatchReply> = batch.run().unwrap().into_iter().map(Result::unwrap).collect();
            for (number, two) in answers.chunks(2).enumerate() {
                assert_eq!(two[0].bytes(), [number as u8; 100]);
                assert_eq!(two[1].stamp().version.0, 2);
            }
            let listed: BTreeSet<String> =
                client.list("table/").unwrap().map(|listing| listing.unwrap().name.to_string()).collect();
            assert_eq!(listed, names.into_iter().collect());
            let again = client.allocate("table/7", Spec::new(8)).unwrap_err();
            assert_eq!(again.failure(), Some(Failure::AlreadyExists));
            segments.into_iter().for_each(|segment| segment.release().unwrap());
            assert_eq!(client.list("").unwrap().count(), 0);
        }
    }

    #[test]
    fn the_planes_of_a_batch_do_not_wait_for_each_other() {
        // If this broke, a batch over several planes would take as long as one after the other.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let (client, other) = (node.client(), node.client());
        let made: Vec<_> =
            (0..8).map(|number| client.allocate(&format!("s{number}"), Spec::new(100_000)).unwrap()).collect();
        let on = |plane| made.iter().find(|segment| segment.id().plane() == plane).unwrap();
        let for_long = LockOptions::new().lease(Duration::from_secs(600));
        for (held, free) in [(on(0), on(1)), (on(1), on(0))] {
            let locked = other.open(held.name()).unwrap().lock_with(for_long).unwrap();
            let before = free.get(0..8).unwrap().version();
            std::thread::scope(|scope| {
                let batch = scope.spawn(|| {
                    let mut batch = client.batch();
                    for number in 0..300u64 {
                        // More than there is room for at once, in each of the two.
                        batch.put(held, number * 300, &[1; 300]).unwrap().put(free, number * 300, &[2; 300]).unwrap();
                    }
                    batch.run().unwrap()
                });
                let all = ddss_core::Version(before.0 + 300);
                while other.open(free.name()).unwrap().get(0..8).unwrap().version() < all {
                    std::thread::yield_now();
                }
                assert!(!batch.is_finished());
                locked.unlock().unwrap();
                assert!(batch.join().unwrap().into_iter().all(|answer| answer.is_ok()));
            });
        }
    }

    #[test]
    fn tasks_reach_all_planes_too() {
        // If this broke, an asynchronous service would find half of what a blocking one made.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let client = node.client().to_async().unwrap();
        block_on(async {
            let mut segments = Vec::new();
            for number in 0..8u8 {
                let segment = client.allocate(&format!("s{number}"), Spec::new(500)).await.unwrap();
                segment.put(0, &[number; 300]).await.unwrap();
                segments.push(segment);
            }
            let planes: BTreeSet<u8> = segments.iter().map(|segment| segment.id().plane()).collect();
            assert_eq!(planes.len(), 2);
            assert_eq!(client.list("").await.unwrap().len(), 8);
            let mut batch = client.batch();
            for segment in &segments {
                batch.get(segment, 0..300).unwrap();
            }
            for (number, answer) in batch.run().await.unwrap().into_iter().enumerate() {
                assert_eq!(answer.unwrap().bytes(), [number as u8; 300]);
            }
            assert_eq!(client.open("s3").await.unwrap().get(..3).await.unwrap()[..], [3; 3]);
        });
    }

    #[test]
    fn a_name_in_the_wrong_plane_is_refused() {
        // If this broke, a client that counts planes otherwise would make segments that nobody else ever finds.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let client = node.client();
        let segment = client.allocate("here", Spec::new(8)).unwrap();
        assert_eq!(segment.id().plane(), 1);
        let lying = crate::Client(client.0.clone(), crate::shards::Shards::alone(&client.1));
        for error in [lying.open("here").unwrap_err(), lying.allocate("here", Spec::new(8)).unwrap_err()] {
            assert_eq!(error.failure(), Some(Failure::WrongShard), "{error}");
        }
        let shared: Shared<u64> = Shared::open(&client, "here").unwrap();
        shared.put(&7).unwrap();
        assert!(matches!(client.open("nowhere").unwrap_err(), Error::Failed { failure: Failure::NotFound, .. }));
    }
}
