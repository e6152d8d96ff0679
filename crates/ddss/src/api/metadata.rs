//! Which segments there are, what they are, and who may use them.

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

/// The segments that a [`Client::list`] finds, node after node and in the order of their names; of daemons with several
/// progress threads, plane after plane.
///
/// ```
/// # let node = ddssd::Ephemeral::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # client.allocate("scores/today", ddss::Spec::new(64))?;
/// for listing in client.list("scores/")? {
///     let listing = listing?;
///     println!("{} {} bytes on {}", listing.name, listing.facts.bytes, listing.facts.segment.home());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SegmentList {
    client: Client,
    query: ListQuery,
    node: Option<NodeId>,
    /// After an error nothing comes any more.
    ended: bool,
    /// Of the last page, the last one first.
    ready: Vec<Listing>,
}

/// What a completion and the bytes in the arena say about a page.
pub(crate) fn listings(page: &ListPage, bytes: &[u8]) -> Result<Vec<Listing>, Failure> {
    let mut left = bytes.get(..page.bytes.into()).ok_or(Failure::Malformed)?;
    let mut found = Vec::new();
    while !left.is_empty() {
        found.push(Listing::take_from(&mut left)?);
    }
    Ok(found)
}

/// From where on a list goes on after a page.
pub(crate) fn after(page: &ListPage, query: &mut ListQuery, last: Option<&Listing>) -> Option<NodeId> {
    match (page.node, last) {
        (NodeId::NOBODY, _) => None,
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

/// The nine Unix bits, if there are no others.
pub(crate) fn checked_mode(mode: u16, name: &str) -> Result<u16, Error> {
    // As of a segment that is made with them.
    Spec::new(1).mode(mode).check().map_err(Error::argument("change the permissions of", name))?;
    Ok(mode)
}

impl Client {
    /// The segments of the cluster whose names begin like that, as far as their nodes can be reached and this user may
    /// read, write or release them. They are asked for page by page, so the list is no picture of one moment, and each page has the
    /// time of one call.
    pub fn list(&self, prefix: &str) -> Result<SegmentList, Error> {
        let query = ListQuery::new(prefix, "").map_err(|failure| Error::Failed {
            action: "list",
            target: prefix.to_owned(),
            failure,
        })?;
        let client = self.at_plane(0)?;
        Ok(SegmentList { client, query, node: Some(NodeId(1)), ended: false, ready: Vec::new() })
    }

    /// An operation whose answer is a page in the arena.
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
    /// Goes on at the next plane, if there is one.
    fn next_plane(&mut self) -> Result<bool, Error> {
        let next = self.client.plane() + 1;
        if self.ended || next >= self.client.planes() {
            self.ended = true;
            return Ok(false);
        }
        // Whatever happens here is told once.
        self.ended = true;
        self.client = self.client.at_plane(next)?;
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
                match self.next_plane() {
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
    /// All facts of the segment as its home sees it now. Of a segment with a mirror, a home that is cut off shows what it knew
    /// last: to look at, not to decide by.
    pub fn stat(&self) -> Result<Listing, Error> {
        let operation = |page| Operation::Stat { segment: self.id(), page };
        let (_, found) = self.client().page(self.time(), "stat", self.name(), &[], operation)?;
        found.into_iter().next().ok_or_else(|| Error::Failed {
            action: "stat",
            target: self.name().to_owned(),
            failure: Failure::Malformed,
        })
    }

    /// Changes its nine Unix bits. Only its owner and root may. If others may read it from now on, its bytes move to
    /// memory that the new readers share: who had the old one mapped sees it no more.
    pub fn set_mode(&self, mode: u16) -> Result<(), Error> {
        self.permit(PermissionUpdate { mode: Some(checked_mode(mode, self.name())?), owner: None })
    }

    /// Gives it to another user and group. Root may; its owner may only give it to the group of this process. Who may read it
    /// from now on is another matter, so its bytes move as with [`set_mode`](Self::set_mode).
    pub fn set_owner(&self, owner: Principal) -> Result<(), Error> {
        self.permit(PermissionUpdate { mode: None, owner: Some(owner) })
    }

    /// Both in one, as a segment is made for somebody.
    pub(crate) fn hand_over(&self, owner: Principal, mode: u16) -> Result<(), Error> {
        self.permit(PermissionUpdate { mode: Some(checked_mode(mode, self.name())?), owner: Some(owner) })
    }

    fn permit(&self, permit: PermissionUpdate) -> Result<(), Error> {
        let operation = Operation::Permit { segment: self.id(), permit };
        self.ask("change the permissions of", operation, WaitClass::Sleeping).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::{TestNode, block_on};

    #[test]
    fn a_segment_is_made_for_somebody_or_not_at_all() {
        // If this broke, a service could not make segments for its users, or would leave some behind that nobody can use.
        let node = TestNode::start();
        let client = node.near_client();
        let own = client.allocate("mine", Spec::new(64)).unwrap().stat().unwrap().facts.permissions.owner;
        let other = Principal { uid: own.uid + 12345, gid: own.gid + 12345 };
        let made = client.allocate_for("theirs", Spec::new(64).mode(0o640), other);
        if own.uid == 0 {
            let made = made.unwrap();
            made.put(0, b"for you").unwrap();
            assert_eq!(&*made.get(0..7).unwrap(), b"for you");
            let permissions = made.stat().unwrap().facts.permissions;
            assert_eq!((permissions.owner, permissions.mode), (other, 0o640));
            let future = block_on(async {
                let tasks = client.to_async().unwrap();
                let made = tasks.allocate_for("theirs-too", Spec::new(64), other).await.unwrap();
                made.stat().await.unwrap().facts.permissions
            });
            assert_eq!((future.owner, future.mode), (other, Spec::new(64).mode));
        } else {
            assert_eq!(made.unwrap_err().failure(), Some(Failure::PermissionDenied));
            let free = client.allocate("theirs", Spec::new(64));
            assert!(free.is_ok(), "it was left behind: {free:?}");
        }
    }

    #[test]
    fn a_segment_changes_hands_only_where_it_may() {
        // If this broke, whoever has a segment could be robbed of it, or an administrator could not hand it over.
        let node = TestNode::start();
        let client = node.near_client();
        let segment = client.allocate("mine", Spec::new(64)).unwrap();
        let put = segment.put(0, b"still here").unwrap();
        let own = segment.stat().unwrap().facts.permissions.owner;
        segment.set_owner(own).unwrap();
        let other = Principal { uid: own.uid + 12345, gid: own.gid + 12345 };
        let given = segment.set_owner(other);
        if own.uid == 0 {
            given.unwrap();
            let facts = segment.stat().unwrap().facts;
            assert_eq!((facts.permissions.owner, facts.permissions.mode), (other, 0o600));
            block_on(async {
                let same = client.to_async().unwrap().open("mine").await.unwrap();
                same.set_owner(own).await.unwrap();
                same.set_mode(0o644).await.unwrap();
            });
        } else {
            assert_eq!(given.unwrap_err().failure(), Some(Failure::PermissionDenied));
            segment.set_mode(0o644).unwrap();
        }
        let permissions = segment.stat().unwrap().facts.permissions;
        assert_eq!((permissions.owner, permissions.mode), (own, 0o644));
        // Its bytes have moved on the way, and are the same.
        let value = client.open("mine").unwrap().get(0..10).unwrap();
        assert_eq!((&value[..], value.stamp()), (&b"still here"[..], put));
    }
}
