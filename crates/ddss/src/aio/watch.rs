//! Watches for tasks.

use super::Client;
use super::api::{MapWatch, Segment};
use super::name_watch::NameWatch;
use super::unfold::unfold;
use crate::call::backoff::Backoff;
use crate::encoding::Encoding;
use crate::error::{Error, ErrorKind};
use crate::map::known_entries::MapEvent;
use crate::segment_info::{RowEvent, SegmentEvent};
use crate::value::Stamp;
use ddss_core::{Failure, Version};
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Events as they come, like [`Watch`](crate::Watch): [`next`](Self::next), or a [`Stream`] for use with combinators.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use ddss::{MapEvent, aio};
/// let stock: aio::Map<u64, u64> = client.aio()?.map("stock").allocate(100).await?;
/// let mut watch: aio::Watch<MapEvent<u64, u64>> = stock.watch(&[]);
/// stock.put(&4711, &12).await?;
/// assert_eq!(watch.next().await.transpose()?, Some(MapEvent::Put { key: 4711, value: 12 }));
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a watch does nothing until its next event is awaited"]
pub struct Watch<E>(Pin<Box<dyn Stream<Item = Result<E, Error>> + Send>>);

impl<E> std::fmt::Debug for Watch<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("aio::Watch").finish_non_exhaustive()
    }
}

impl<E> Watch<E> {
    /// Waits for the next event. Dropping the future loses no event: its call continues in the next `next`, and counts among
    /// the client's calls until then.
    pub async fn next(&mut self) -> Option<Result<E, Error>> {
        std::future::poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }
}

impl<E: 'static> Watch<E> {
    /// Makes a watch of steps, each after a pause if the last one failed. A step ends with an event, or at the deadline of one
    /// call.
    fn new<S, N>(source: S, step: fn(S, Option<Duration>) -> N) -> Self
    where
        S: Send + Unpin + 'static,
        N: Future<Output = (Result<E, Error>, S)> + Send + 'static,
    {
        let next = move |(mut source, mut backoff): (S, Backoff)| async move {
            loop {
                let (event, after) = step(source, backoff.pause()).await;
                source = after;
                let is_error = match &event {
                    Err(error) if error.has_failed_with(Failure::TimedOut) => continue,
                    Err(error) if error.kind() == ErrorKind::NotFound => return None,
                    event => event.is_err(),
                };
                backoff.note(is_error);
                return Some((event, (source, backoff)));
            }
        };
        Self(Box::pin(unfold((source, Backoff::default()), next)))
    }
}

pub(crate) fn watch_map<K, V>(watch: MapWatch<K, V>) -> Watch<MapEvent<K::Output, V::Output>>
where
    K: Encoding + ?Sized,
    V: Encoding + ?Sized,
{
    Watch::new(watch, |mut watch, pause| async move {
        if let Some(pause) = pause {
            watch.segment().pause(pause).await;
        }
        (watch.next_event(watch.time()).await, watch)
    })
}

pub(crate) fn watch_versions(segment: Segment, row: Option<u64>) -> Watch<Stamp> {
    Watch::new((segment, row, None), |(segment, row, seen), pause| async move {
        if let Some(pause) = pause {
            segment.pause(pause).await;
        }
        let stamp = segment.version_after(segment.time(), row, seen).await;
        let seen = stamp.as_ref().map_or(seen, |stamp| Some(stamp.version));
        (stamp, (segment, row, seen))
    })
}

pub(crate) fn watch_rows(segment: Segment) -> Watch<RowEvent> {
    Watch::new((segment, Version(0)), |(segment, seen), pause| async move {
        if let Some(pause) = pause {
            segment.pause(pause).await;
        }
        let change = segment.row_change_after(segment.time(), seen).await;
        let seen = change.as_ref().map_or(seen, |(number, _)| *number);
        (change.map(|(_, row)| RowEvent::of(row)), (segment, seen))
    })
}

impl Client {
    /// Watches the names that begin with `prefix`: [`Client::watch`](crate::Client::watch).
    pub fn watch(&self, prefix: &str) -> Result<Watch<SegmentEvent>, Error> {
        Ok(Watch(Box::pin(NameWatch::new(self.clone(), prefix)?)))
    }
}

impl<E> Stream for Watch<E> {
    type Item = Result<E, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}
