//! Streams of a segment's versions.

use crate::async_client::AsyncSegment;
use crate::call::backoff::Backoff;
use crate::calls::calls;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::Stamp;
use ddss_core::{Failure, Version};
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// An endless iterator over the stamps of a segment's versions. Versions that follow each other quickly may be merged
/// into the newest one. The client does not poll: the home notifies it.
///
/// After an error, as while the home is unreachable, the next attempt is delayed, with a backoff up to a quarter of a
/// second. A loop that ignores errors therefore costs little and resumes when the home returns.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let scores = client.allocate("scores", ddss::Spec::new(64))?;
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
#[derive(Clone, Debug)]
pub struct VersionIter {
    segment: Segment,
    seen: Option<Version>,
    backoff: Backoff,
}

/// The asynchronous form of [`VersionIter`]: [`next`](Self::next), or a [`Stream`] for use with combinators.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let scores = client.to_async()?.allocate("scores", ddss::Spec::new(64)).await?;
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
pub struct VersionStream {
    segment: AsyncSegment,
    seen: Option<Version>,
    backoff: Backoff,
    /// The request in flight.
    asked: Option<Asked>,
}

type Asked = Pin<Box<dyn Future<Output = Result<Stamp, Error>> + Send>>;

impl Clone for VersionStream {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), seen: self.seen, backoff: self.backoff, asked: None }
    }
}

impl std::fmt::Debug for VersionStream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("VersionStream");
        out.field("segment", &self.segment).field("seen", &self.seen).finish_non_exhaustive()
    }
}

calls! {
    impl Segment, AsyncSegment {
        /// Watches the versions from now on, beginning with the present one.
        pub fn watch(&self) -> VersionIter | VersionStream {
            self.watch_from(None)
        }

        /// Watches the versions after `version`.
        pub fn watch_after(&self, version: Version) -> VersionIter | VersionStream {
            self.watch_from(Some(version))
        }
    }
}

calls! {
    impl Segment, AsyncSegment {
        /// Waits for the first version after `seen`, after a pause.
        pub(crate) async fn version_after(&self, seen: Option<Version>, pause: Option<Duration>)
            -> Result<Stamp, Error>
        {
            if let Some(pause) = pause {
                wait!(self.pause(pause));
            }
            loop {
                let stamp = match seen {
                    None => wait!(self.stat())
                        .map(|info| Stamp { version: info.version, timestamp: info.timestamp }),
                    Some(seen) => wait!(self.wait_newer_than(seen)),
                };
                match stamp {
                    // No new version came within the timeout of a call.
                    Err(Error::Failed { failure: Failure::TimedOut, .. }) => {}
                    ended => return ended,
                }
            }
        }
    }
}

impl Segment {
    fn watch_from(&self, seen: Option<Version>) -> VersionIter {
        VersionIter { segment: self.clone(), seen, backoff: Backoff::default() }
    }

    pub(crate) fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl AsyncSegment {
    fn watch_from(&self, seen: Option<Version>) -> VersionStream {
        VersionStream { segment: self.clone(), seen, backoff: Backoff::default(), asked: None }
    }
}

impl VersionIter {
    /// Returns the number of errors since the last version.
    pub fn errors(&self) -> u64 {
        self.backoff.errors()
    }
}

impl Iterator for VersionIter {
    type Item = Result<Stamp, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let stamp = self.segment.version_after(self.seen, self.backoff.pause());
        self.backoff.note(stamp.is_err());
        if let Ok(stamp) = &stamp {
            self.seen = Some(stamp.version);
        }
        Some(stamp)
    }
}

impl VersionStream {
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

/// Endless like [`VersionIter`]: an item may be an error, and later items may succeed again.
impl Stream for VersionStream {
    type Item = Result<Stamp, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_stamp(context).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on, poll_once};
    use crate::{Spec, Version};
    use futures_core::Stream;
    use std::pin::Pin;

    #[test]
    fn watch_reports_newest_version_and_end_of_segment() {
        // If this broke, a follower would stall, or watch a segment that is gone.
        let node = TestNode::start();
        let (client, hasty) = (node.client(), node.short_timeout_client());
        let segment = client.allocate("watched", Spec::new(8)).unwrap();
        let mut seen = hasty.open("watched").unwrap().watch();
        assert_eq!(seen.next().unwrap().unwrap().version, Version(0));
        let (has_seen, last_seen) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let follower = scope.spawn(move || {
                let last = seen.by_ref().find(|stamp| stamp.as_ref().is_ok_and(|stamp| stamp.version == Version(20)));
                has_seen.send(last.is_some()).unwrap();
                seen.next().unwrap().is_err()
            });
            for turn in 0..20u64 {
                // Longer than the follower's call timeout.
                std::thread::sleep(std::time::Duration::from_millis(if turn == 3 { 900 } else { 1 }));
                segment.put(0, &turn.to_le_bytes()).unwrap();
            }
            assert!(last_seen.recv().unwrap());
            segment.clone().release().unwrap();
            assert!(follower.join().unwrap());
        });
        let tasks = client.to_async().unwrap();
        let later = block_on(tasks.allocate("later", Spec::new(8))).unwrap();
        let mut versions = later.watch();
        assert_eq!(block_on(versions.next()).unwrap().version, Version(0));
        let put = block_on(later.put(0, &[1; 8])).unwrap();
        assert_eq!(block_on(versions.next()).unwrap(), put);
        // A dropped future that was waiting, then a stream of the same watch.
        drop(poll_once(&mut Box::pin(versions.next())));
        let put = block_on(later.put(0, &[2; 8])).unwrap();
        let mut after = later.watch_after(Version(1));
        for versions in [&mut versions, &mut after] {
            let next = std::future::poll_fn(|context| Pin::new(&mut *versions).poll_next(context));
            assert_eq!(block_on(next).unwrap().unwrap(), put);
        }
    }
}
