//! The watch of names for threads.

use super::Client;
use crate::async_client::wait;
use crate::error::Error;
use crate::segment_info::SegmentEvent;
use std::time::{Duration, Instant};

/// An endless iterator over the names with a prefix: first those that exist, then each one that is made or released. The
/// client does not poll: each node tells it that its names have changed.
///
/// A name that is made and released at once may not appear. A name that is made again appears as released and made. The
/// names of a node that cannot be reached stay as they were.
///
/// After an error the next attempt is delayed, as with [`VersionWatch`](crate::VersionWatch).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// use ddss::SegmentEvent;
/// use std::time::Duration;
///
/// let mut names = client.watch_names("jobs/")?;
/// assert!(names.next_within(Duration::from_millis(20))?.is_none());
/// let job = client.segment("jobs/1").allocate(64)?;
/// assert!(matches!(names.next().transpose()?, Some(SegmentEvent::Created(made)) if made.len == 64));
/// job.release()?;
/// assert!(matches!(names.next().transpose()?, Some(SegmentEvent::Released(name)) if name == "jobs/1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NameWatch(crate::aio::NameWatch);

impl Client {
    /// Watches the names that begin with `prefix`. The first names are those that exist.
    pub fn watch_names(&self, prefix: &str) -> Result<NameWatch, Error> {
        self.aio()?.watch_names(prefix).map(NameWatch)
    }
}

impl NameWatch {
    /// Returns the number of errors since the last list.
    pub fn errors(&self) -> u64 {
        self.0.errors()
    }

    /// Waits for the next name for at most `time`; `None` if none comes.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<SegmentEvent>, Error> {
        wait::block_until(self.0.next(), Instant::now() + time).transpose()
    }
}

impl Iterator for NameWatch {
    type Item = Result<SegmentEvent, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(wait::block_on(self.0.next()))
    }
}
