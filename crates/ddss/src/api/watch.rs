//! Waits for versions and for changes of rows, and watches of a segment's versions.

use super::segment::Segment;
use super::{Watch, twin, watch_versions};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::value::Stamp;
use ddss_core::{ANY_ROW, Operation, Version};

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
            let wanted = "a plain segment: of a table only rows have versions (Table::watch, Row::wait_newer_than)";
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

    /// Watches the versions, beginning with the present one. Versions that follow each other quickly may be merged into the
    /// newest one.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let scores = client.segment("scores").allocate(64)?;
    /// let mut versions = scores.watch();
    /// # let mut rounds = 0;
    /// while let Some(stamp) = versions.next().transpose()? {
    ///     println!("{} is there", stamp.version);
    /// #   rounds += 1;
    /// #   if rounds == 3 { break }
    ///     scores.put(0, b"the next one")?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(&self) -> Watch<Stamp> {
        watch_versions(self.clone(), None)
    }

    /// Returns the stamp of the first version after `seen`, or of the present one: of the segment, or of a row of it.
    pub(crate) async fn version_after(
        &self,
        time: Deadline,
        row: Option<u64>,
        seen: Option<Version>,
    ) -> Result<Stamp, Error> {
        let Some(row) = row else {
            return match seen {
                None => self.stat_by(time).await.map(|info| info.stamp),
                Some(seen) => self.wait_by(time, seen).await,
            };
        };
        let place = self.location().place_in_row("watch", row, 0, 0)?;
        match seen {
            None => self.get_by(time, place, &mut []).await,
            Some(seen) => self.wait_at(time, place, seen).await,
        }
    }

    /// Waits for the change of any row of a table after the change of that number. Returns its number and its row; no row if
    /// changes were missed.
    pub(crate) async fn row_change_after(
        &self,
        time: Deadline,
        number: Version,
    ) -> Result<(Version, Option<u64>), Error> {
        let stamp = self.wait_at(time, ANY_ROW, number).await?;
        Ok((stamp.version, stamp.timestamp.0.checked_sub(1)))
    }
}
