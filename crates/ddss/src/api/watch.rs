//! Waits for versions, and watches of a segment's versions.

use super::segment::Segment;
use super::{VersionWatch, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::value::Stamp;
use ddss_core::{Failure, Operation, Version};
use std::time::Duration;

#[twin]
impl Segment {
    /// Waits until the segment's version is above `version`, and returns the stamp of the version it then has.
    ///
    /// The client does not poll: the home answers when the version comes. At the deadline the call fails with
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    pub async fn wait_newer_than(&self, version: Version) -> Result<Stamp, Error> {
        self.wait_by(self.time(), version).await
    }

    pub(crate) async fn wait_by(&self, time: Deadline, version: Version) -> Result<Stamp, Error> {
        if self.location().row_bytes != 0 {
            let wanted = "a plain segment: of a table only rows have versions (Row::wait_newer_than)";
            return Err(Error::wrong_shape("watch", self.name(), "a table", wanted));
        }
        self.wait_at(time, 0, version).await
    }

    /// Waits for a version of the segment, or of the row of a table at `offset`.
    pub(crate) async fn wait_at(&self, time: Deadline, offset: u64, version: Version) -> Result<Stamp, Error> {
        let operation = Operation::Await { segment: self.id(), offset, above: version };
        let plan = self.location().plan("watch", operation);
        self.client().run_wait(time, plan.returns(|completion, _| Stamp::of(completion))).await
    }

    /// Watches the versions from now on, beginning with the present one.
    pub fn watch(&self) -> VersionWatch {
        self.watch_from(None)
    }

    /// Watches the versions after `version`.
    pub fn watch_after(&self, version: Version) -> VersionWatch {
        self.watch_from(Some(version))
    }

    /// Waits for the first version after `seen`, after a pause.
    pub(crate) async fn version_after(&self, seen: Option<Version>, pause: Option<Duration>) -> Result<Stamp, Error> {
        if let Some(pause) = pause {
            self.pause(pause).await;
        }
        loop {
            let stamp = match seen {
                None => self.stat().await.map(|info| info.stamp),
                Some(seen) => self.wait_newer_than(seen).await,
            };
            match stamp {
                // No new version came within the timeout of a call.
                Err(error) if error.has_failed_with(Failure::TimedOut) => {}
                ended => return ended,
            }
        }
    }
}
