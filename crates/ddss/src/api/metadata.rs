//! Metadata of segments: listing, permissions and ownership.

use crate::call::priority::Priority;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use ddss_core::{
    ArenaRange, Completion, Failure, ListPage, ListQuery, Listing, NodeId, Operation, Outcome, PermissionUpdate,
    Principal, Spec,
};
use ddss_ipc::WaitClass;

/// Iterator over the segments that [`Client::list`] finds, ordered by node, then shard, then name.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # client.allocate("scores/today", ddss::Spec::new(64))?;
/// for listing in client.list("scores/")? {
///     let listing = listing?;
///     println!("{} {} bytes on {}", listing.name, listing.info.bytes, listing.info.segment.home());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SegmentList {
    client: Client,
    query: ListQuery,
    node: Option<NodeId>,
    /// Set after an error; the iterator then ends.
    ended: bool,
    /// Entries of the current page, in reverse order.
    ready: Vec<Listing>,
}

/// Decodes the page that a completion describes from the bytes in the arena.
pub(crate) fn listings(page: &ListPage, bytes: &[u8]) -> Result<Vec<Listing>, Failure> {
    let mut left = bytes.get(..page.bytes.into()).ok_or(Failure::Malformed)?;
    let mut found = Vec::new();
    while !left.is_empty() {
        found.push(Listing::take_from(&mut left)?);
    }
    Ok(found)
}

/// Advances the query past a page.
pub(crate) fn after(page: &ListPage, query: &mut ListQuery, last: Option<&Listing>) -> Option<NodeId> {
    match (page.node, last) {
        (NodeId::NONE, _) => None,
        (node, Some(last)) if page.more => {
            query.after.clear();
            query.after.push_str(last.name.as_str());
            Some(node)
        }
        (NodeId(node), _) => {
            query.after.clear();
            node.checked_add(1).map(NodeId)
        }
    }
}

/// Checks that a mode has no bits beside the nine Unix permission bits.
pub(crate) fn checked_mode(mode: u16, name: &str) -> Result<u16, Error> {
    // The same refusal as for a segment that is created with this mode.
    Spec::new(1).mode(mode).check().map_err(Error::argument("change the permissions of", name))?;
    Ok(mode)
}

impl Client {
    /// Lists the cluster's segments whose names begin with `prefix`.
    ///
    /// The list covers reachable nodes, and the segments that this user may read, write or release. The client requests
    /// it page by page, so the list is not an atomic snapshot. Each page has the timeout of one call.
    pub fn list(&self, prefix: &str) -> Result<SegmentList, Error> {
        let query = ListQuery::new(prefix, "").map_err(|failure| Error::Failed {
            action: "list",
            target: prefix.to_owned(),
            failure,
        })?;
        let client = self.at_shard(0)?;
        Ok(SegmentList { client, query, node: Some(NodeId(1)), ended: false, ready: Vec::new() })
    }

    /// Runs an operation whose reply is a page in the arena.
    fn page(
        &self,
        time: Deadline,
        action: &'static str,
        target: &str,
        text: &[u8],
        operation: impl Fn(ArenaRange) -> Operation,
    ) -> Result<(ListPage, Vec<Listing>), Error> {
        let (completion, found): (Completion, _) =
            self.with_call(time, Priority::Call, action, target, true, |mut call| {
                let buffer = call.buffer(Listing::PAGE_BYTES)?;
                let range = buffer.range(text.len());
                call.write(range.offset(), text);
                call.run(operation(range), Some(buffer), WaitClass::Sleeping, |completion, arena| {
                    let mut bytes = [0; Listing::PAGE_BYTES];
                    let read = arena.read(range.offset() as usize, &mut bytes);
                    read.expect("a buffer lies inside the arena");
                    let page = ListPage::decode(&completion.data);
                    let found =
                        if completion.outcome == Outcome::Done { listings(&page, &bytes) } else { Ok(Vec::new()) };
                    (*completion, found)
                })
            })?;
        Error::of(completion.outcome, action, target)?;
        let found = found.map_err(|failure| Error::Failed { action, target: target.to_owned(), failure })?;
        Ok((ListPage::decode(&completion.data), found))
    }
}

impl SegmentList {
    /// Moves to the next shard, if there is one.
    fn next_shard(&mut self) -> Result<bool, Error> {
        let next = self.client.shard() + 1;
        if self.ended || next >= self.client.shard_count() {
            self.ended = true;
            return Ok(false);
        }
        // Each error is reported once.
        self.ended = true;
        self.client = self.client.at_shard(next)?;
        self.query.after.clear();
        (self.node, self.ended) = (Some(NodeId(1)), false);
        Ok(true)
    }
}

impl Iterator for SegmentList {
    type Item = Result<Listing, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(listing) = self.ready.pop() {
                return Some(Ok(listing));
            }
            let Some(node) = self.node else {
                match self.next_shard() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => return Some(Err(error)),
                }
            };
            let (text, prefix) = (self.query.encode(), self.query.prefix);
            let page =
                self.client.page(self.client.time(), "list", &prefix, &text, |text| Operation::List { node, text });
            match page {
                Ok((page, mut found)) => {
                    self.node = after(&page, &mut self.query, found.last());
                    found.reverse();
                    self.ready = found;
                }
                Err(error) => {
                    (self.node, self.ended) = (None, true);
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Segment {
    /// Returns the segment's metadata as its home sees it now. For a replicated segment, a home that is cut off returns
    /// its last known state: fit for display, not for decisions.
    pub fn stat(&self) -> Result<Listing, Error> {
        let operation = |page| Operation::Stat { segment: self.id(), page };
        let (_, found) = self.client().page(self.time(), "stat", self.name(), &[], operation)?;
        found.into_iter().next().ok_or_else(|| Error::Failed {
            action: "stat",
            target: self.name().to_owned(),
            failure: Failure::Malformed,
        })
    }

    /// Changes the nine Unix permission bits. Only the owner and root may do so. If the set of readers changes, the
    /// bytes move to memory that only the new readers can map; old mappings no longer show the segment.
    pub fn set_mode(&self, mode: u16) -> Result<(), Error> {
        self.update_permissions(PermissionUpdate { mode: Some(checked_mode(mode, self.name())?), owner: None })
    }

    /// Changes the owning user and group. Only root may change the user; the owner may set a group of this process. The
    /// set of readers may change, so the bytes move as with [`set_mode`](Self::set_mode).
    pub fn set_owner(&self, owner: Principal) -> Result<(), Error> {
        self.update_permissions(PermissionUpdate { mode: None, owner: Some(owner) })
    }

    /// Sets owner and mode of a segment that was created for another user.
    pub(crate) fn set_owner_and_mode(&self, owner: Principal, mode: u16) -> Result<(), Error> {
        self.update_permissions(PermissionUpdate { mode: Some(checked_mode(mode, self.name())?), owner: Some(owner) })
    }

    fn update_permissions(&self, update: PermissionUpdate) -> Result<(), Error> {
        let operation = Operation::Permit { segment: self.id(), update };
        self.run_operation("change the permissions of", operation, WaitClass::Sleeping).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::{TestNode, block_on};

    #[test]
    fn allocate_for_is_all_or_nothing() {
        // If this broke, a service could not create segments for its users, or would leave unusable segments behind.
        let node = TestNode::start();
        let client = node.local_read_client();
        let own = client.allocate("mine", Spec::new(64)).unwrap().stat().unwrap().info.permissions.owner;
        let other = Principal { uid: own.uid + 12345, gid: own.gid + 12345 };
        let made = client.allocate_for("theirs", Spec::new(64).mode(0o640), other);
        if own.uid == 0 {
            let made = made.unwrap();
            made.put(0, b"for you").unwrap();
            assert_eq!(&*made.get(0..7).unwrap(), b"for you");
            let permissions = made.stat().unwrap().info.permissions;
            assert_eq!((permissions.owner, permissions.mode), (other, 0o640));
            let future = block_on(async {
                let tasks = client.to_async().unwrap();
                let made = tasks.allocate_for("theirs-too", Spec::new(64), other).await.unwrap();
                made.stat().await.unwrap().info.permissions
            });
            assert_eq!((future.owner, future.mode), (other, Spec::new(64).mode));
        } else {
            assert_eq!(made.unwrap_err().failure(), Some(Failure::PermissionDenied));
            let free = client.allocate("theirs", Spec::new(64));
            assert!(free.is_ok(), "it was left behind: {free:?}");
        }
    }

    #[test]
    fn set_owner_requires_permission() {
        // If this broke, an owner could lose a segment to another user, or an administrator could not transfer it.
        let node = TestNode::start();
        let client = node.local_read_client();
        let segment = client.allocate("mine", Spec::new(64)).unwrap();
        let put = segment.put(0, b"still here").unwrap();
        let own = segment.stat().unwrap().info.permissions.owner;
        segment.set_owner(own).unwrap();
        let other = Principal { uid: own.uid + 12345, gid: own.gid + 12345 };
        let given = segment.set_owner(other);
        if own.uid == 0 {
            given.unwrap();
            let info = segment.stat().unwrap().info;
            assert_eq!((info.permissions.owner, info.permissions.mode), (other, 0o600));
            block_on(async {
                let same = client.to_async().unwrap().open("mine").await.unwrap();
                same.set_owner(own).await.unwrap();
                same.set_mode(0o644).await.unwrap();
            });
        } else {
            assert_eq!(given.unwrap_err().failure(), Some(Failure::PermissionDenied));
            segment.set_mode(0o644).unwrap();
        }
        let permissions = segment.stat().unwrap().info.permissions;
        assert_eq!((permissions.owner, permissions.mode), (own, 0o644));
        // The bytes have moved and are unchanged.
        let value = client.open("mine").unwrap().get(0..10).unwrap();
        assert_eq!((&value[..], value.stamp()), (&b"still here"[..], put));
    }
}
