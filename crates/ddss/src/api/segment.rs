//! The handle of a segment.

use super::{Client, only_aio, only_blocking, twin};
use crate::deadline::Deadline;
use crate::location::SegmentLocation;
use ddss_core::limits::{TRANSFER_BYTES_MAX, VALUE_BYTES_MAX};
use ddss_core::{Model, OpenedSegment};
use std::time::Duration;

/// A segment somewhere in the cluster. Cheap to clone; dropping it changes nothing.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let scores = client.segment("scores").allocate(4096)?;
/// let put = scores.put(16, &42u64.to_le_bytes())?;
/// let mut bytes = [0; 8];
/// let got = scores.get_into(16, &mut bytes)?;
/// assert_eq!((u64::from_le_bytes(bytes), got.version), (42, put.version));
/// scores.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Clone)]
pub struct Segment {
    client: Client,
    location: SegmentLocation,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.location.describe(out, "Segment")
    }
}

#[twin]
impl Segment {
    /// Maximum bytes of one request: a vectored call, or a call of a [`Batch`](crate::Batch). A larger get or put is
    /// sent in parts of this size.
    pub const TRANSFER_BYTES_MAX: usize = TRANSFER_BYTES_MAX;
    /// Maximum bytes of one get or put.
    pub const VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX;

    /// Returns a handle whose calls ask for at least this model, each by itself. A call never gets less than the
    /// segment's own model: asking for a weaker model changes nothing.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let spec = ddss::Spec::new(64).model(ddss::Model::Temporal(100_000));
    /// # let prices = client.segment("prices").allocate(spec)?;
    /// // The segment allows a copy of up to 100 ms; this once it has to be the newest value.
    /// let now = prices.with_model(ddss::Model::Strict).get(..)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_model(&self, model: Model) -> Self {
        Self::at(self.client().clone(), self.location().with_model(Some(model)))
    }

    /// Returns a handle whose calls have this timeout instead of
    /// [`ConnectOptions::timeout`](crate::ConnectOptions::timeout).
    ///
    /// It holds for all calls of the handle and of the locks that it takes; a [`Batch`](crate::Batch) has its client's
    /// timeout. A call with more than 600 s fails with [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument).
    ///
    /// ```
    /// # use ddss::ErrorKind;
    /// # use std::time::Duration;
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let scores = client.segment("scores").allocate(64)?;
    /// let hasty = scores.with_timeout(Duration::from_millis(20));
    /// let nothing_new = hasty.wait_newer_than(hasty.get(0..8)?.version()).expect_err("nobody puts anything");
    /// assert_eq!(nothing_new.kind(), ErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self::at(self.client.with_timeout(timeout), self.location.clone())
    }

    pub(crate) fn at(client: Client, location: SegmentLocation) -> Self {
        Self { client, location }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn location(&self) -> &SegmentLocation {
        &self.location
    }

    /// Returns the deadline of a call of this handle.
    pub(crate) fn time(&self) -> Deadline {
        self.client.time()
    }
}

#[twin]
impl Client {
    /// Returns the handle of a segment that the daemon has opened. Its area is mapped by then.
    pub(crate) async fn into_segment(self, time: Deadline, name: &str, opened: OpenedSegment) -> Segment {
        let area = self.area_of(time, &opened).await;
        let location = SegmentLocation::new(name, opened, area.as_ref());
        Segment::at(self, location)
    }
}

#[only_blocking]
impl Segment {
    /// Does nothing: threads need no budget.
    #[inline(always)]
    pub(crate) fn spend_budget(&self, _reads: usize, _bytes: usize) {}

    pub(crate) fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[only_aio]
impl Segment {
    /// Counts reads in place of that many bytes in all; yields to the other tasks of the thread from time to time.
    pub(crate) fn spend_budget(&self, reads: usize, bytes: usize) -> crate::async_client::budget::Yield {
        crate::async_client::budget::spend(reads, bytes)
    }

    /// Creates a future that is ready after `time`.
    pub(crate) fn pause(&self, time: Duration) -> crate::reactor::pause::Pause {
        self.client.pause(time)
    }
}

/// Makes no call. The first call of the asynchronous handle starts the reactor thread of its client, unless it runs already.
#[only_aio]
impl From<&crate::Segment> for Segment {
    fn from(segment: &crate::Segment) -> Self {
        Self::at(Client::of(segment.client().clone()), segment.location().clone())
    }
}

/// Makes no call.
#[only_aio]
impl From<&Segment> for crate::Segment {
    fn from(segment: &Segment) -> Self {
        Self::at(segment.client.blocking().clone(), segment.location.clone())
    }
}
