//! A segment's versions as they come.

use crate::aio::AsyncSegment;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::Stamp;
use ddss_core::{Failure, Version};

/// The stamps of a segment's versions, one after the other: an endless iterator. Versions that follow each other quickly
/// may come as one, the newest. The network is not asked again and again: the home tells when it happens.
///
/// ```no_run
/// let scores = ddss::Client::connect()?.open("scores")?;
/// for stamp in scores.watch() {
///     println!("{} is there", stamp?.version);
/// }
/// # Ok::<(), ddss::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Versions {
    segment: Segment,
    seen: Option<Version>,
}

/// The same for tasks: [`next`](Self::next).
#[derive(Clone, Debug)]
pub struct AsyncVersions {
    segment: AsyncSegment,
    seen: Option<Version>,
}

fn is_late(error: &Error) -> bool {
    matches!(error, Error::Failed { failure: Failure::TimedOut, .. })
}

impl Segment {
    /// The versions from now on, the present one first.
    pub fn watch(&self) -> Versions {
        Versions { segment: self.clone(), seen: None }
    }

    /// The versions after that one.
    pub fn watch_after(&self, version: Version) -> Versions {
        Versions { segment: self.clone(), seen: Some(version) }
    }
}

impl AsyncSegment {
    /// The versions from now on, the present one first.
    pub fn watch(&self) -> AsyncVersions {
        AsyncVersions { segment: self.clone(), seen: None }
    }
}

impl Iterator for Versions {
    type Item = Result<Stamp, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let stamp = match self.seen {
                None => self.segment.stat().map(|facts| Stamp { version: facts.version, timestamp: facts.timestamp }),
                Some(seen) => self.segment.wait_newer_than(seen),
            };
            match stamp {
                // Nothing happened for as long as a call may take.
                Err(error) if is_late(&error) => {}
                Err(error) => return Some(Err(error)),
                Ok(stamp) => {
                    self.seen = Some(stamp.version);
                    return Some(Ok(stamp));
                }
            }
        }
    }
}

impl AsyncVersions {
    /// The next version. Dropping the future loses none.
    pub async fn next(&mut self) -> Result<Stamp, Error> {
        loop {
            let stamp = match self.seen {
                None => {
                    let facts = self.segment.stat().await;
                    facts.map(|facts| Stamp { version: facts.version, timestamp: facts.timestamp })
                }
                Some(seen) => self.segment.wait_newer_than(seen).await,
            };
            match stamp {
                Err(error) if is_late(&error) => {}
                Err(error) => return Err(error),
                Ok(stamp) => {
                    self.seen = Some(stamp.version);
                    return Ok(stamp);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{Spec, Version};

    #[test]
    fn whoever_watches_sees_the_newest_version_and_the_end() {
        // If this broke, a follower would stand still, or go on watching what is gone.
        let node = TestNode::start();
        let (client, hasty) = (node.client(), node.impatient_client());
        let segment = client.allocate("watched", Spec::new(8)).unwrap();
        let mut seen = hasty.open("watched").unwrap().watch();
        assert_eq!(seen.next().unwrap().unwrap().version, Version(0));
        std::thread::scope(|scope| {
            let follower = scope.spawn(move || {
                let last = seen.by_ref().find(|stamp| stamp.as_ref().is_ok_and(|stamp| stamp.version == Version(20)));
                (last.is_some(), seen.next().unwrap().is_err())
            });
            for turn in 0..20u64 {
                // Longer than one call of the follower may take.
                std::thread::sleep(std::time::Duration::from_millis(if turn == 3 { 900 } else { 1 }));
                segment.put(0, &turn.to_le_bytes()).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(30));
            segment.clone().release().unwrap();
            assert_eq!(follower.join().unwrap(), (true, true));
        });
        let tasks = client.to_async().unwrap();
        let later = block_on(tasks.allocate("later", Spec::new(8))).unwrap();
        let mut versions = later.watch();
        assert_eq!(block_on(versions.next()).unwrap().version, Version(0));
        let put = block_on(later.put(0, &[1; 8])).unwrap();
        assert_eq!(block_on(versions.next()).unwrap(), put);
    }
}
