//! Streams of the names that are made and released.
//!
//! A watch waits for the names of each node and shard to change, and then requests the list. So it shows a user what the
//! list shows, and costs nothing while no name changes.

use super::Client;
use crate::call::backoff::Backoff;
use crate::error::Error;
use crate::plan::CallPlan;
use crate::plan::listing::ListCursor;
use crate::segment_info::{SegmentEvent, SegmentInfo};
use ddss_core::{Failure, Listing, Name, NodeId, Operation, SegmentId, Version};
use futures_core::Stream;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An endless stream of the names with a prefix.
pub(crate) struct NameWatch {
    client: Client,
    prefix: String,
    /// Segments that the caller knows.
    known: BTreeMap<Name, (SegmentId, NodeId)>,
    /// Shards of nodes, each with a wait for its next change.
    sources: Vec<Source>,
    ready: VecDeque<SegmentEvent>,
    /// The list that is being requested.
    listing: Option<Boxed<Listed>>,
    /// Something has changed since the last list began.
    is_outdated: bool,
    backoff: Backoff,
}

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Names of one shard of one node.
struct Source {
    shard: u8,
    node: NodeId,
    seen: Version,
    backoff: Backoff,
    asked: Option<Boxed<Version>>,
}

/// A list, with the shards of nodes that it covers.
#[derive(Default)]
struct Listed {
    found: Vec<Listing>,
    covered: BTreeSet<(u8, NodeId)>,
}

impl Client {
    /// Requests the whole list, and the shards of nodes that took part.
    async fn list_covered(&self, prefix: &str) -> Result<Listed, Error> {
        let mut listed = Listed::default();
        for shard in 0..self.blocking().shard_count() {
            let (client, mut cursor) = (self.at_shard(shard)?, ListCursor::new(prefix)?);
            while let Some(found) = client.next_page(&mut cursor).await? {
                listed.found.extend(found);
            }
            listed.covered.extend(cursor.covered().iter().map(|&node| (shard, node)));
        }
        Ok(listed)
    }

    /// Waits until the names of a node have changed since a version.
    async fn names_changed(&self, node: NodeId, seen: Version) -> Result<Version, Error> {
        let segment = SegmentId::names_of(node).on_shard(self.shard());
        let plan = CallPlan::new("watch", "names", Operation::Await { segment, offset: 0, above: seen });
        self.run_wait(self.time(), plan.returns(|completion, _| completion.version)).await
    }
}

impl Source {
    fn new(shard: u8, node: NodeId) -> Self {
        Self { shard, node, seen: Version(0), backoff: Backoff::default(), asked: None }
    }

    /// Polls the wait: true if names have changed, or the node has to be asked anew.
    fn poll_changed(&mut self, client: &Client, context: &mut Context<'_>) -> bool {
        loop {
            let (client, shard, node, seen) = (client.clone(), self.shard, self.node, self.seen);
            let pause = self.backoff.pause();
            let ask = || {
                Box::pin(async move {
                    let client = client.at_shard(shard)?;
                    if let Some(pause) = pause {
                        client.pause(pause).await;
                    }
                    client.names_changed(node, seen).await
                }) as _
            };
            let asked: &mut Boxed<Version> = self.asked.get_or_insert_with(ask);
            let Poll::Ready(ended) = asked.as_mut().poll(context) else { return false };
            self.asked = None;
            self.backoff.note(ended.is_err());
            match ended {
                Ok(version) => {
                    self.seen = version;
                    return true;
                }
                // No name changed within the timeout of a call.
                Err(error) if error.has_failed_with(Failure::TimedOut) => {}
                Err(_) => {
                    self.seen = Version(0);
                    return true;
                }
            }
        }
    }
}

impl NameWatch {
    pub(crate) fn new(client: Client, prefix: &str) -> Result<Self, Error> {
        ListCursor::new(prefix)?;
        Ok(Self {
            client,
            prefix: prefix.to_owned(),
            known: BTreeMap::new(),
            sources: Vec::new(),
            ready: VecDeque::new(),
            listing: None,
            is_outdated: true,
            backoff: Backoff::default(),
        })
    }

    /// Waits for the next name. Dropping the future loses no name.
    pub(crate) async fn next(&mut self) -> Result<SegmentEvent, Error> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<SegmentEvent, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Ok(event));
            }
            if let Some(listing) = &mut self.listing {
                let listed = std::task::ready!(listing.as_mut().poll(context));
                self.listing = None;
                self.backoff.note(listed.is_err());
                match listed {
                    Ok(listed) => self.compare(listed),
                    Err(error) => {
                        self.is_outdated = true;
                        return Poll::Ready(Err(error));
                    }
                }
                continue;
            }
            if !self.is_outdated {
                let changed = self.sources.iter_mut().map(|source| source.poll_changed(&self.client, context));
                // Each wait is polled, so that each wakes this task.
                if !changed.fold(false, |any, changed| any | changed) {
                    return Poll::Pending;
                }
            }
            self.is_outdated = false;
            let (client, prefix, pause) = (self.client.clone(), self.prefix.clone(), self.backoff.pause());
            self.listing = Some(Box::pin(async move {
                if let Some(pause) = pause {
                    client.pause(pause).await;
                }
                client.list_covered(&prefix).await
            }));
        }
    }

    /// Compares a list with the known names.
    fn compare(&mut self, listed: Listed) {
        let mut gone = std::mem::take(&mut self.known);
        for listing in listed.found {
            let now = (listing.info.segment, listing.home);
            match gone.remove(&listing.name) {
                Some((segment, _)) if segment == now.0 => {}
                before => {
                    self.ready.extend(before.map(|_| SegmentEvent::Released(listing.name.to_string())));
                    self.ready.push_back(SegmentEvent::Created(SegmentInfo::of(&listing)));
                }
            }
            self.known.insert(listing.name, now);
        }
        for (name, (segment, home)) in gone {
            if listed.covered.contains(&(segment.shard(), home)) {
                self.ready.push_back(SegmentEvent::Released(name.to_string()));
            } else {
                // Its node did not take part.
                self.known.entry(name).or_insert((segment, home));
            }
        }
        self.sources.retain(|source| listed.covered.contains(&(source.shard, source.node)));
        for (shard, node) in listed.covered {
            if !self.sources.iter().any(|source| (source.shard, source.node) == (shard, node)) {
                self.sources.push(Source::new(shard, node));
            }
        }
    }
}

/// Endless: an item may be an error, and later items may succeed again.
impl Stream for NameWatch {
    type Item = Result<SegmentEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(context).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNode, block_on, poll_once};
    use crate::{ErrorKind, Spec};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns the text of an event.
    fn text(event: &SegmentEvent) -> String {
        match event {
            SegmentEvent::Created(listing) => format!("+{}", listing.name),
            SegmentEvent::Released(name) => format!("-{name}"),
        }
    }

    #[test]
    fn watch_reports_each_name_made_and_released_with_its_prefix() {
        // If this broke, a service would not see its jobs, or work on one that is gone.
        let node = TestNode::start();
        let (client, hasty) = (node.client(), node.short_timeout_client());
        let first = client.segment("jobs/1").allocate(Spec::new(8)).unwrap();
        client.segment("others/1").allocate(Spec::new(8)).unwrap();
        let mut names = hasty.watch("jobs/").unwrap();
        let mut next = || text(&names.next_within(PATIENCE).unwrap().expect("it is told"));
        assert_eq!(next(), "+jobs/1");
        let second = client.segment("jobs/2").allocate(Spec::new(8)).unwrap();
        assert_eq!(next(), "+jobs/2");
        first.release().unwrap();
        assert_eq!(next(), "-jobs/1");
        // The name returns with another segment, while the watcher does not look.
        second.release().unwrap();
        client.segment("jobs/2").allocate(Spec::new(8)).unwrap();
        assert_eq!([next(), next()], ["-jobs/2", "+jobs/2"]);
        client.segment("others/2").allocate(Spec::new(8)).unwrap();
        // Longer than the timeout of a call.
        assert_eq!(names.next_within(Duration::from_millis(900)).unwrap(), None, "not of this prefix");
        let third = client.segment("jobs/3").allocate(Spec::new(8)).unwrap();
        assert_eq!(text(&names.next().unwrap().unwrap()), "+jobs/3");
        let own = third.stat().unwrap().permissions;
        third.set_permissions(crate::Permissions { mode: crate::Mode(0o640), ..own }).unwrap();
        third.release().unwrap();
        assert_eq!(text(&names.next().unwrap().unwrap()), "-jobs/3");
    }

    #[test]
    fn dropped_future_loses_no_name_and_its_waits_end() {
        // If this broke, a task that selects among events would miss one, or fill the daemon with waits.
        let node = TestNode::start();
        let client = node.client();
        let mut names = client.aio().unwrap().watch("").unwrap();
        assert!(poll_once(&mut Box::pin(names.next())).is_pending());
        client.segment("one").allocate(Spec::new(8)).unwrap();
        assert_eq!(text(&block_on(names.next()).unwrap().unwrap()), "+one");
        for _ in 0..3 {
            assert!(poll_once(&mut Box::pin(names.next())).is_pending());
        }
        client.segment("two").allocate(Spec::new(8)).unwrap();
        let next = std::future::poll_fn(|context| Pin::new(&mut names).poll_next(context));
        assert_eq!(text(&block_on(next).unwrap().unwrap()), "+two");
        assert!(client.watch(&"x".repeat(200)).is_err(), "no name is that long");
    }

    #[test]
    fn id_of_names_takes_no_other_call() {
        // If this broke, a client could write through an id that has no memory.
        let node = TestNode::start();
        let client = node.client();
        let segment = SegmentId::names_of(client.node());
        let run = |operation| {
            let call = CallPlan::new("use", "names", operation).returns(|_, _| ());
            client.execute(client.time(), call).unwrap_err().kind()
        };
        let lock_request = ddss_core::LockRequest { shared: false, no_wait: false, lease_us: 1000, row_offset: None };
        let from = ddss_core::Payload::Arena(ddss_core::ArenaRange::NOWHERE);
        for operation in [
            Operation::Put { segment, offset: 0, from, conditions: Default::default() },
            Operation::Lock { segment, lock_request },
            Operation::Release { segment },
        ] {
            assert_eq!(run(operation), ErrorKind::NotFound, "{operation:?}");
        }
    }
}
