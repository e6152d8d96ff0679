//! Metadata of segments: listing, permissions and ownership.

use super::segment::Segment;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::listing::{ListCursor, list_error};
use crate::plan::{CallPlan, Outgoing};
use crate::segment_info::{Permissions, SegmentInfo};
use ddss_core::{ArenaRange, Failure, Listing, Operation, PermissionUpdate, Principal};

#[twin]
impl Client {
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
