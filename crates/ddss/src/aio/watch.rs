//! Watches for tasks.

use super::api::MapWatch;
use super::unfold::unfold;
use crate::call::backoff::Backoff;
use crate::encoding::Encoding;
use crate::error::{Error, ErrorKind};
use crate::map::known_entries::MapEvent;
use ddss_core::Failure;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Events as they come, like [`Watch`](crate::Watch): [`next`](Self::next), or a [`Stream`] for use with combinators.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
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
    /// Waits for the next event. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Result<E, Error>> {
        std::future::poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }
}

pub(crate) fn watch_map<K, V>(watch: MapWatch<K, V>) -> Watch<MapEvent<K::Output, V::Output>>
where
    K: Encoding + ?Sized,
    V: Encoding + ?Sized,
{
    let next = |(mut watch, mut backoff): (MapWatch<K, V>, Backoff)| async move {
        loop {
            if let Some(pause) = backoff.pause() {
                watch.pause(pause).await;
            }
            let event = watch.next_event(watch.time()).await;
            let is_error = match &event {
                Err(error) if error.has_failed_with(Failure::TimedOut) => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => return None,
                event => event.is_err(),
            };
            backoff.note(is_error);
            return Some((event, (watch, backoff)));
        }
    };
    Watch(Box::pin(unfold((watch, Backoff::default()), next)))
}

impl<E> Stream for Watch<E> {
    type Item = Result<E, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}
