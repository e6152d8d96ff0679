//! Watches for threads.

use super::api::MapWatch;
use crate::call::backoff::Backoff;
use crate::deadline::Deadline;
use crate::encoding::Encoding;
use crate::error::{Error, ErrorKind};
use crate::map::known_entries::MapEvent;
use ddss_core::Failure;
use std::time::{Duration, Instant};

/// Events as they come, without polling. The watch ends with its segment.
///
/// An item may be an error, as while the home is unreachable, and later items may succeed again. The next attempt is then
/// delayed, with a back-off up to a quarter of a second. A loop that ignores errors therefore costs little and resumes when
/// the home returns.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
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
    Watch::new(move |until| {
        let usual = watch.time();
        watch.next_event(until.map_or(usual, |until| Deadline::until(usual.started().deadline().min(until))))
    })
}

impl<E> Watch<E> {
    /// Makes a watch of steps that end with an event, or at their deadline.
    fn new(step: impl FnMut(Option<Instant>) -> Result<E, Error> + Send + 'static) -> Self {
        Self { step: Box::new(step), backoff: Backoff::default(), is_ended: false }
    }

    /// Waits for the next event for at most `time`; `None` if none comes.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<E>, Error> {
        self.next_until(Some(Instant::now() + time)).transpose()
    }

    fn next_until(&mut self, until: Option<Instant>) -> Option<Result<E, Error>> {
        while !self.is_ended {
            if let Some(pause) = self.backoff.pause() {
                std::thread::sleep(pause);
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
