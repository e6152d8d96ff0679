//! Metadata of segments: listing, permissions and ownership.

use super::segment::Segment;
use super::{Client, List, list_segments, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::listing::{ListCursor, list_error};
use crate::plan::{CallPlan, Outgoing};
use crate::segment_info::{Permissions, SegmentInfo};
use ddss_core::{ArenaRange, Failure, Listing, Operation, PermissionUpdate, Principal};
use std::collections::VecDeque;

/// The segments with a prefix, which a client requests page by page and shard by shard.
#[twin]
pub(crate) struct SegmentPages {
    client: Client,
    /// `None` at the end.
    cursor: Option<ListCursor>,
    ready: VecDeque<Result<Listing, Error>>,
}

#[twin]
impl SegmentPages {
    fn new(client: Client, prefix: &str) -> Self {
        match ListCursor::new(prefix) {
            Ok(cursor) => Self { client, cursor: Some(cursor), ready: VecDeque::new() },
            Err(error) => Self { client, cursor: None, ready: [Err(error)].into() },
        }
    }

    /// Returns the next segment; `None` at the end, and after an error.
    pub(crate) async fn next_segment(&mut self) -> Option<Result<SegmentInfo, Error>> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Some(found.map(|listing| SegmentInfo::of(&listing)));
            }
            match self.next_page().await.transpose()? {
                Ok(found) => self.ready.extend(found.into_iter().map(Ok)),
                Err(error) => {
                    self.cursor = None;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Requests the next page, of the next shard at the end of this one; `None` at the end.
    async fn next_page(&mut self) -> Result<Option<Vec<Listing>>, Error> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        loop {
            if let Some(found) = self.client.next_page(cursor).await? {
                return Ok(Some(found));
            }
            let next = self.client.shard() + 1;
            if next >= self.client.blocking().shard_count() {
                return Ok(None);
            }
            self.client = self.client.at_shard(next)?;
            cursor.restart();
        }
    }
}

#[twin]
impl Client {
    /// Lists the cluster's segments whose names begin with `prefix`, ordered by shard, then node, then name.
    ///
    /// The list covers reachable nodes, and the segments that this user may read, write or release. The client requests
    /// it page by page, so the list is not an atomic snapshot. Each page has the timeout of one call.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # client.segment("scores/today").allocate(64)?;
    /// for segment in client.list("scores/") {
    ///     let segment = segment?;
    ///     println!("{} {} bytes on {}", segment.name, segment.len, segment.home);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&self, prefix: &str) -> List<SegmentInfo> {
        list_segments(SegmentPages::new(self.clone(), prefix))
    }

    /// Requests the next page of a listing, and moves the cursor past it; `None` at the end.
    pub(crate) async fn next_page(&self, cursor: &mut ListCursor) -> Result<Option<Vec<Listing>>, Error> {
        let Some(node) = cursor.node else { return Ok(None) };
        let (text, prefix) = (cursor.query.encode(), cursor.query.prefix);
        let plan = CallPlan::new("list", &prefix, Operation::List { node, text: ArenaRange::NOWHERE });
        let page = self.execute(self.time(), plan.sends(Outgoing::Bytes(&text)).returns_page()).await?;
        let (page, found) = page.map_err(|failure| list_error(&prefix, failure))?;
        cursor.advance(&page, found.last());
        Ok(Some(found))
    }
}

/// Checks that a mode has no bits beside the nine Unix permission bits.
fn checked_mode(mode: u16, name: &str) -> Result<u16, Error> {
    // The same refusal as for a segment that is created with this mode.
    ddss_core::Spec::new(1).mode(mode).check().map_err(Error::argument("change the permissions of", name))?;
    Ok(mode)
}

#[twin]
impl Segment {
    /// Returns the segment's metadata as its home sees it now. For a replicated segment, a home that is cut off
    /// returns its last known state: fit for display, not for decisions.
    pub async fn stat(&self) -> Result<SegmentInfo, Error> {
        self.stat_by(self.time()).await
    }

    pub(crate) async fn stat_by(&self, time: Deadline) -> Result<SegmentInfo, Error> {
        let operation = Operation::Stat { segment: self.id(), page: ArenaRange::NOWHERE };
        let page = self.client().execute(time, self.location().plan("stat", operation).returns_page()).await?;
        let found = page.and_then(|(_, found)| found.into_iter().next().ok_or(Failure::Malformed));
        let found = found.map_err(|failure| Error::failed("stat", self.name(), failure))?;
        Ok(SegmentInfo::of(&found))
    }

    /// Sets owner and mode. Only the owner and root may do so; only root may name another user, and the owner a group of
    /// this process. If the set of readers changes, the bytes move to memory that only the new readers can map; old
    /// mappings no longer show the segment.
    pub async fn set_permissions(&self, permissions: Permissions) -> Result<(), Error> {
        let Permissions { uid, gid, mode } = permissions;
        self.set_owner_and_mode(Principal { uid, gid }, mode.0).await
    }

    /// Sets owner and mode, as the wire has them.
    pub(crate) async fn set_owner_and_mode(&self, owner: Principal, mode: u16) -> Result<(), Error> {
        let mode = Some(checked_mode(mode, self.name())?);
        self.update_permissions(PermissionUpdate { mode, owner: Some(owner) }).await
    }

    pub(crate) async fn update_permissions(&self, update: PermissionUpdate) -> Result<(), Error> {
        let operation = Operation::Permit { segment: self.id(), update };
        self.run_operation("change the permissions of", operation, |_| ()).await
    }
}
