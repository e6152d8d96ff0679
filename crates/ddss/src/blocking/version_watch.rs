//! The iterator over a segment's versions.

use super::Segment;
use crate::call::backoff::Backoff;
use crate::error::Error;
use crate::value::Stamp;
use ddss_core::Version;

/// An endless iterator over the stamps of a segment's versions. Versions that follow each other quickly may be merged
/// into the newest one. The client does not poll: the home notifies it.
///
/// After an error, as while the home is unreachable, the next attempt is delayed, with a backoff up to a quarter of a
/// second. A loop that ignores errors therefore costs little and resumes when the home returns.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
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
#[derive(Clone, Debug)]
pub struct VersionWatch {
    segment: Segment,
    seen: Option<Version>,
    backoff: Backoff,
}

impl Segment {
    pub(crate) fn watch_from(&self, seen: Option<Version>) -> VersionWatch {
        VersionWatch { segment: self.clone(), seen, backoff: Backoff::default() }
    }
}

impl VersionWatch {
    /// Returns the number of errors since the last version.
    pub fn errors(&self) -> u64 {
        self.backoff.errors()
    }
}

impl Iterator for VersionWatch {
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
