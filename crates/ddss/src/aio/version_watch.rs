//! The stream of a segment's versions.

use super::Segment;
use crate::call::backoff::Backoff;
use crate::error::Error;
use crate::value::Stamp;
use ddss_core::Version;
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An endless stream of the stamps of a segment's versions, like [`VersionWatch`](crate::VersionWatch): [`next`](Self::next), or a [`Stream`] for use with combinators.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let scores = client.aio()?.segment("scores").allocate(64).await?;
/// let mut versions = scores.watch();
/// let first = versions.next().await?;
/// let put = scores.put(0, b"the next one").await?;
/// assert_eq!(versions.next().await?, put);
/// # assert!(put.version > first.version);
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a watch does nothing until its next version is awaited"]
pub struct VersionWatch {
    segment: Segment,
    seen: Option<Version>,
    backoff: Backoff,
    /// The request in flight.
    asked: Option<Asked>,
}

type Asked = Pin<Box<dyn Future<Output = Result<Stamp, Error>> + Send>>;

impl Clone for VersionWatch {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), seen: self.seen, backoff: self.backoff, asked: None }
    }
}

impl std::fmt::Debug for VersionWatch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("aio::VersionWatch");
        out.field("segment", &self.segment).field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Segment {
    pub(crate) fn watch_from(&self, seen: Option<Version>) -> VersionWatch {
        VersionWatch { segment: self.clone(), seen, backoff: Backoff::default(), asked: None }
    }
}

impl VersionWatch {
    /// Returns the number of errors since the last version.
    pub fn errors(&self) -> u64 {
        self.backoff.errors()
    }

    /// Waits for the next version. Dropping the future loses no version.
    pub async fn next(&mut self) -> Result<Stamp, Error> {
        std::future::poll_fn(|context| self.poll_stamp(context)).await
    }

    fn poll_stamp(&mut self, context: &mut Context<'_>) -> Poll<Result<Stamp, Error>> {
        let (segment, seen, backoff) = (&self.segment, self.seen, self.backoff);
        let ask = || {
            let segment = segment.clone();
            Box::pin(async move { segment.version_after(seen, backoff.pause()).await }) as Asked
        };
        let asked = self.asked.get_or_insert_with(ask);
        let ended = std::task::ready!(asked.as_mut().poll(context));
        self.asked = None;
        self.backoff.note(ended.is_err());
        if let Ok(stamp) = &ended {
            self.seen = Some(stamp.version);
        }
        Poll::Ready(ended)
    }
}

/// Endless like [`VersionWatch`](crate::VersionWatch): an item may be an error, and later items may succeed again.
impl Stream for VersionWatch {
    type Item = Result<Stamp, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_stamp(context).map(Some)
    }
}
