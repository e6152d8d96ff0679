//! The segment handle with asynchronous calls. `calls!` defines its methods together with the blocking ones.

use super::budget::{self, Yield};
use super::client::AsyncClient;
use super::pause::Pause;
use crate::deadline::Deadline;
use crate::location::SegmentLocation;
use crate::segment::Segment;
use ddss_core::{Model, OpenedSegment};
use std::time::Duration;

/// A [`Segment`](crate::Segment) with asynchronous calls. Cheap to clone; dropping it changes nothing.
///
/// The bytes of a get are copied at the end of the call: a future that is dropped leaves the destination unchanged. The
/// bytes of a put are copied once there is arena memory for them; a put whose future is dropped may take effect.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let scores = client.to_async()?.allocate("scores", ddss::Spec::new(64)).await?;
/// let put = scores.put(0, b"42").await?;
/// let value = scores.get(0..2).await?;
/// assert_eq!((&value[..], value.version()), (&b"42"[..], put.version));
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A handle of either kind converts into the other; no call is made. The first call of an `AsyncSegment` starts the
/// reactor thread of its client, unless it runs already.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # let segment = client.allocate("scores", ddss::Spec::new(64))?;
/// let for_tasks = ddss::AsyncSegment::from(&segment);
/// assert_eq!(ddss::Segment::from(&for_tasks).id(), segment.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncSegment {
    client: AsyncClient,
    location: SegmentLocation,
}

impl std::fmt::Debug for AsyncSegment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.location.describe(out, "AsyncSegment")
    }
}

impl From<&Segment> for AsyncSegment {
    fn from(segment: &Segment) -> Self {
        Self::at(AsyncClient::of(segment.client().clone()), segment.location().clone())
    }
}

impl From<&AsyncSegment> for Segment {
    fn from(segment: &AsyncSegment) -> Self {
        Self::at(segment.client.blocking().clone(), segment.location.clone())
    }
}

impl AsyncSegment {
    /// Returns a handle whose calls ask for at least this model: [`Segment::with_model`](crate::Segment::with_model).
    #[must_use]
    pub fn with_model(&self, model: Model) -> Self {
        Self::at(self.client().clone(), self.location().with_model(Some(model)))
    }

    /// Returns a handle whose calls have this timeout: [`Segment::with_timeout`](crate::Segment::with_timeout).
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self::at(self.client().clone(), self.location().with_timeout(timeout))
    }

    pub(crate) fn at(client: AsyncClient, location: SegmentLocation) -> Self {
        Self { client, location }
    }

    pub(crate) fn client(&self) -> &AsyncClient {
        &self.client
    }

    pub(crate) fn location(&self) -> &SegmentLocation {
        &self.location
    }

    /// Returns the deadline of a call of this handle.
    pub(crate) fn time(&self) -> Deadline {
        Deadline::of(self.location.timeout.unwrap_or(self.client.blocking().0.settings.timeout))
    }

    /// Counts reads in place of that many bytes in all; yields to the other tasks of the thread from time to time.
    pub(crate) fn spend_budget(&self, reads: usize, bytes: usize) -> Yield {
        budget::spend(reads, bytes)
    }

    /// Creates a future that is ready after `time`.
    pub(crate) fn pause(&self, time: Duration) -> Pause {
        self.client.pause(time)
    }
}

impl AsyncClient {
    pub(crate) fn into_segment(self, name: &str, opened: OpenedSegment) -> AsyncSegment {
        let location = SegmentLocation::new(&self.blocking().0, name, opened);
        AsyncSegment::at(self, location)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{Failure, Spec, Version};

    #[test]
    fn async_vectored_calls_are_atomic() {
        // If this broke, a task would mix the bytes of two versions, or write some ranges without the others.
        let node = TestNode::start();
        let client = node.client().to_async().unwrap();
        block_on(async {
            let table = client.allocate("table", Spec { history: 2, ..Spec::new(9000) }).await.unwrap();
            let first = table.put_many(&[(0, b"head"), (8990, b"tail")]).await.unwrap();
            let second = table.put_many_if(first.version, &[(0, b"HEAD")]).await.unwrap();
            let stale = table.put_many_if(first.version, &[(0, b"late")]).await.unwrap_err();
            assert_eq!(stale.failure(), Some(Failure::VersionMismatch));
            let ranges = [0..4, 8990..8994];
            for (values, head, stamp) in [
                (table.get_many(&ranges).await.unwrap(), b"HEAD", second),
                (table.get_many_at(first.version, &ranges).await.unwrap(), b"head", first),
            ] {
                assert_eq!((&values[0][..], &values[1][..]), (&head[..], &b"tail"[..]));
                assert!(values.iter().all(|value| value.stamp() == stamp));
            }
            let (mut head, mut tail) = ([0; 4], [0; 4]);
            let stamp = table.get_many_into(&mut [(0, &mut head), (8990, &mut tail)]).await.unwrap();
            assert_eq!((stamp, &head, &tail), (second, b"HEAD", b"tail"));
            let mut two = [0; 2];
            assert_eq!(table.get_into(1, &mut two).await.unwrap(), second);
            assert_eq!(&two, b"EA");
            assert_eq!(&table.get_newer_than(Version(1), 0..4).await.unwrap()[..], b"HEAD");
        });
    }
}
