//! Watches of a segment's versions.

use super::segment::Segment;
use super::{VersionWatch, twin};
use crate::error::Error;
use crate::value::Stamp;
use ddss_core::{Failure, Version};
use std::time::Duration;

#[twin]
impl Segment {
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
