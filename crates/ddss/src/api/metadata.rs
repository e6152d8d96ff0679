//! Metadata of segments: listing, permissions and ownership.

use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::error::Error;
use crate::plan::{CallPlan, Decoder, Outgoing, PlannedCall};
use crate::segment::Segment;
use ddss_core::{
    ArenaRange, Failure, ListPage, ListQuery, Listing, NodeId, Operation, PermissionUpdate, Principal, Spec,
};

/// A page of a listing, or the reason why its bytes are invalid.
type Page = Result<(ListPage, Vec<Listing>), Failure>;

impl<'a> CallPlan<'a> {
    /// Adds the decoder of a page in the arena.
    fn returns_page(self) -> PlannedCall<'a, impl Decoder<Page>> {
        self.receives(Listing::PAGE_BYTES).returns(|completion, reply| {
            let mut bytes = [0; Listing::PAGE_BYTES];
            reply.read(0, &mut bytes);
            let page = ListPage::decode(&completion.data);
            let mut left = bytes.get(..page.bytes.into()).ok_or(Failure::Malformed)?;
            let mut found = Vec::new();
            while !left.is_empty() {
                found.push(Listing::take_from(&mut left)?);
            }
            Ok((page, found))
        })
    }
}

/// Position of a listing on one shard.
#[derive(Debug)]
pub(crate) struct ListCursor {
    query: ListQuery,
    /// Node of the next page; `None` at the end.
    node: Option<NodeId>,
    /// Nodes of this shard whose pages are complete.
    covered: Vec<NodeId>,
}

impl ListCursor {
    pub(crate) fn new(prefix: &str) -> Result<Self, Error> {
        let query = ListQuery::new(prefix, "").map_err(|failure| list_error(prefix, failure))?;
        Ok(Self { query, node: Some(NodeId(1)), covered: Vec::new() })
    }

    /// Returns the nodes of this shard whose pages are complete.
    pub(crate) fn covered(&self) -> &[NodeId] {
        &self.covered
    }

    /// Moves to the begin of the next shard.
    fn restart(&mut self) {
        self.query.after.clear();
        self.covered.clear();
        self.node = Some(NodeId(1));
    }

    /// Moves past a page.
    fn advance(&mut self, page: &ListPage, last: Option<&Listing>) {
        self.query.after.clear();
        self.node = match (page.node, last) {
            (NodeId::NONE, _) => None,
            (node, Some(last)) if page.more => {
                self.query.after.push_str(last.name.as_str());
                Some(node)
            }
            (node, _) => {
                if !page.away {
                    self.covered.push(node);
                }
                node.0.checked_add(1).map(NodeId)
            }
        };
    }
}

fn list_error(prefix: &str, failure: Failure) -> Error {
    Error::Failed { action: "list", target: prefix.to_owned(), failure }
}

calls! {
    impl Client, AsyncClient {
        /// Requests the next page of a listing, and moves the cursor past it; `None` at the end.
        pub(crate) async fn next_page(&self, cursor: &mut ListCursor) -> Result<Option<Vec<Listing>>, Error> {
            let Some(node) = cursor.node else { return Ok(None) };
            let (text, prefix) = (cursor.query.encode(), cursor.query.prefix);
            let plan = CallPlan::new("list", &prefix, Operation::List { node, text: ArenaRange::NOWHERE });
            let page = wait!(self.run(self.time(), plan.sends(Outgoing::Bytes(&text)).returns_page()))?;
            let (page, found) = page.map_err(|failure| list_error(&prefix, failure))?;
            cursor.advance(&page, found.last());
            Ok(Some(found))
        }
    }
}

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
    cursor: ListCursor,
    /// Set after an error; the iterator then ends.
    ended: bool,
    /// Entries of the current page, in reverse order.
    ready: Vec<Listing>,
}

impl Client {
    /// Lists the cluster's segments whose names begin with `prefix`.
    ///
    /// The list covers reachable nodes, and the segments that this user may read, write or release. The client requests
    /// it page by page, so the list is not an atomic snapshot. Each page has the timeout of one call.
    pub fn list(&self, prefix: &str) -> Result<SegmentList, Error> {
        let cursor = ListCursor::new(prefix)?;
        Ok(SegmentList { client: self.at_shard(0)?, cursor, ended: false, ready: Vec::new() })
    }
}

impl AsyncClient {
    /// Lists all segments whose names begin with `prefix`: [`Client::list`]. Each page has the timeout of one call.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listing>, Error> {
        let (mut all, mut cursor) = (Vec::new(), ListCursor::new(prefix)?);
        for shard in 0..self.blocking().shard_count() {
            let client = self.at_shard(shard)?;
            while let Some(found) = client.next_page(&mut cursor).await? {
                all.extend(found);
            }
            cursor.restart();
        }
        Ok(all)
    }
}

impl SegmentList {
    /// Requests the next page, of the next shard at the end of this one; `None` at the end.
    fn next_page(&mut self) -> Result<Option<Vec<Listing>>, Error> {
        loop {
            if let Some(found) = self.client.next_page(&mut self.cursor)? {
                return Ok(Some(found));
            }
            let next = self.client.shard() + 1;
            if next >= self.client.shard_count() {
                return Ok(None);
            }
            self.client = self.client.at_shard(next)?;
            self.cursor.restart();
        }
    }
}

impl Iterator for SegmentList {
    type Item = Result<Listing, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.ended {
            match self.next_page() {
                Ok(Some(mut found)) => {
                    found.reverse();
                    self.ready = found;
                }
                Ok(None) => self.ended = true,
                // Each error is reported once.
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop().map(Ok)
    }
}

/// Checks that a mode has no bits beside the nine Unix permission bits.
fn checked_mode(mode: u16, name: &str) -> Result<u16, Error> {
    // The same refusal as for a segment that is created with this mode.
    Spec::new(1).mode(mode).check().map_err(Error::argument("change the permissions of", name))?;
    Ok(mode)
}

calls! {
    impl Segment, AsyncSegment {
        /// Returns the segment's metadata as its home sees it now. For a replicated segment, a home that is cut off
        /// returns its last known state: fit for display, not for decisions.
        pub async fn stat(&self) -> Result<Listing, Error> {
            let operation = Operation::Stat { segment: self.id(), page: ArenaRange::NOWHERE };
            let page = wait!(self.client().run(self.time(), self.location().plan("stat", operation).returns_page()))?;
            let found = page.and_then(|(_, found)| found.into_iter().next().ok_or(Failure::Malformed));
            found.map_err(|failure| Error::Failed { action: "stat", target: self.name().to_owned(), failure })
        }

        /// Changes the nine Unix permission bits. Only the owner and root may do so. If the set of readers changes, the
        /// bytes move to memory that only the new readers can map; old mappings no longer show the segment.
        pub async fn set_mode(&self, mode: u16) -> Result<(), Error> {
            let mode = Some(checked_mode(mode, self.name())?);
            wait!(self.update_permissions(PermissionUpdate { mode, owner: None }))
        }

        /// Changes the owning user and group. Only root may change the user; the owner may set a group of this process.
        /// The set of readers may change, so the bytes move as with [`set_mode`](Self::set_mode).
        pub async fn set_owner(&self, owner: Principal) -> Result<(), Error> {
            wait!(self.update_permissions(PermissionUpdate { mode: None, owner: Some(owner) }))
        }

        /// Sets owner and mode of a segment that was created for another user.
        pub(crate) async fn set_owner_and_mode(&self, owner: Principal, mode: u16) -> Result<(), Error> {
            let mode = Some(checked_mode(mode, self.name())?);
            wait!(self.update_permissions(PermissionUpdate { mode, owner: Some(owner) }))
        }

        pub(crate) async fn update_permissions(&self, update: PermissionUpdate) -> Result<(), Error> {
            let operation = Operation::Permit { segment: self.id(), update };
            wait!(self.run_operation("change the permissions of", operation, |_| ()))
        }
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
