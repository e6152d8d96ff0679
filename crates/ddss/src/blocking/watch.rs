//! Watches for threads.

use super::api::{MapWatch, Segment};
use crate::aio::NameWatch;
use crate::async_client::wait;
use crate::call::backoff::Backoff;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::encoding::Encoding;
use crate::error::{Error, ErrorKind};
use crate::map::known_entries::MapEvent;
use crate::segment_info::{RowEvent, SegmentEvent};
use crate::value::Stamp;
use ddss_core::{Failure, Version};
use std::time::{Duration, Instant};

/// Events as they come, without polling. The watch ends with its segment.
///
/// An item may be an error, as while the home is unreachable, and later items may succeed again. The next attempt is then
/// delayed, with a back-off up to a quarter of a second. A loop that ignores errors therefore costs little and resumes when
/// the home returns.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Map, MapEvent, Watch};
/// use std::time::Duration;
///
/// let stock: Map<u64, u64> = client.map("stock").allocate(100)?;
/// let mut watch: Watch<MapEvent<u64, u64>> = stock.watch(&[]);
/// assert!(watch.next_within(Duration::from_millis(20))?.is_none());
/// stock.put(&4711, &12)?;
/// assert_eq!(watch.next().transpose()?, Some(MapEvent::Put { key: 4711, value: 12 }));
/// stock.segment().release()?;
/// assert!(watch.next().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a watch does nothing until its next event is taken"]
pub struct Watch<E> {
    step: Box<dyn FnMut(Option<Instant>) -> Result<E, Error> + Send>,
    backoff: Backoff,
    /// End of the pause after an error.
    resumes_at: Option<Instant>,
    is_ended: bool,
}

impl<E> std::fmt::Debug for Watch<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Watch").field("is_ended", &self.is_ended).finish_non_exhaustive()
    }
}

pub(crate) fn watch_map<K, V>(mut watch: MapWatch<K, V>) -> Watch<MapEvent<K::Output, V::Output>>
where
    K: Encoding + ?Sized,
    V: Encoding + ?Sized,
{
    Watch::new(move |until| watch.next_event(step_deadline(watch.time(), until)))
}

/// Watches the versions of a segment, or of a row of it.
pub(crate) fn watch_versions(segment: Segment, row: Option<u64>) -> Watch<Stamp> {
    let mut seen = None;
    Watch::new(move |until| {
        let stamp = segment.version_after(step_deadline(segment.time(), until), row, seen)?;
        seen = Some(stamp.version);
        Ok(stamp)
    })
}

/// Watches all rows of a table.
pub(crate) fn watch_rows(segment: Segment) -> Watch<RowEvent> {
    let mut seen = Version(0);
    Watch::new(move |until| {
        let (number, row) = segment.row_change_after(step_deadline(segment.time(), until), seen)?;
        seen = number;
        Ok(RowEvent::of(row))
    })
}

/// Returns the deadline of a step with this usual one.
fn step_deadline(usual: Deadline, until: Option<Instant>) -> Deadline {
    until.map_or(usual, |until| Deadline::until(usual.started().deadline().min(until)))
}

impl Client {
    /// Watches the names that begin with `prefix`: first those that exist, then each one that is created or released.
    ///
    /// A name that is created and released immediately may not appear. A name that is created again appears as released and
    /// created. The names of a node that cannot be reached stay as they were.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::SegmentEvent;
    /// use std::time::Duration;
    ///
    /// let mut names = client.watch("jobs/")?;
    /// assert!(names.next_within(Duration::from_millis(20))?.is_none());
    /// let job = client.segment("jobs/1").allocate(64)?;
    /// assert!(matches!(names.next().transpose()?, Some(SegmentEvent::Created(made)) if made.len == 64));
    /// job.release()?;
    /// assert!(matches!(names.next().transpose()?, Some(SegmentEvent::Released(name)) if name == "jobs/1"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(&self, prefix: &str) -> Result<Watch<SegmentEvent>, Error> {
        let mut names = NameWatch::new(self.aio()?, prefix)?;
        Ok(Watch::new(move |until| match until {
            None => wait::block_on(names.next()),
            Some(until) => wait::block_until(names.next(), until)
                .unwrap_or_else(|| Err(Error::failed("watch", "names", Failure::TimedOut))),
        }))
    }
}

impl<E> Watch<E> {
    /// Makes a watch of steps that end with an event, or at their deadline.
    fn new(step: impl FnMut(Option<Instant>) -> Result<E, Error> + Send + 'static) -> Self {
        Self { step: Box::new(step), backoff: Backoff::default(), resumes_at: None, is_ended: false }
    }

    /// Waits for the next event for at most `time`, or a millisecond if that is longer; `None` if none comes. Once the watch has
    /// ended, it fails with [`ErrorKind::NotFound`].
    pub fn next_within(&mut self, time: Duration) -> Result<Option<E>, Error> {
        let until = Instant::now().checked_add(time.max(Duration::from_millis(1)));
        match self.next_until(until) {
            Some(event) => event.map(Some),
            None if self.is_ended => Err(Error::failed("watch", "a segment that was released", Failure::NotFound)),
            None => Ok(None),
        }
    }

    fn next_until(&mut self, until: Option<Instant>) -> Option<Result<E, Error>> {
        while !self.is_ended {
            let now = Instant::now();
            if let Some(at) = self.resumes_at.filter(|at| *at > now) {
                let is_last = until.is_some_and(|until| until <= at);
                std::thread::sleep(until.map_or(at, |until| until.min(at)).saturating_duration_since(now));
                if is_last {
                    break;
                }
            }
            let event = (self.step)(until);
            match &event {
                Err(error) if error.has_failed_with(Failure::TimedOut) => {
                    if until.is_some_and(|until| until <= Instant::now()) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => self.is_ended = true,
                _ => {
                    self.backoff.note(event.is_err());
                    // A call that ends before the pause does not begin it anew.
                    self.resumes_at = self.backoff.pause().map(|pause| Instant::now() + pause);
                    return Some(event);
                }
            }
        }
        None
    }
}

impl<E> Iterator for Watch<E> {
    type Item = Result<E, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_until(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_hear_of_events_behind_errors() {
        // If this broke, a program that polls a watch would be deaf for ever once its home had been away for a second.
        let mut errors = 0;
        let mut watch = Watch::new(move |until: Option<Instant>| {
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Error::failed("watch", "x", Failure::TimedOut));
            }
            errors += 1;
            if errors <= 8 { Err(Error::failed("watch", "x", Failure::NodeDown)) } else { Ok(7) }
        });
        let (mut found, end) = (None, Instant::now() + Duration::from_secs(60));
        while found.is_none() && Instant::now() < end {
            found = watch.next_within(Duration::from_millis(20)).unwrap_or(None);
        }
        assert_eq!(found, Some(7));
        assert_eq!(watch.next_within(Duration::MAX).unwrap(), Some(7));
        assert_eq!(watch.next_within(Duration::ZERO).unwrap(), Some(7));
    }
}
