//! Lists for tasks.

use super::api::{MapEntries, SegmentPages};
use super::unfold::unfold;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::segment_info::SegmentInfo;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The items of a list, like [`List`](crate::List): [`next`](Self::next), or a [`Stream`] for use with combinators.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let stock: ddss::aio::Map<u64, u64> = client.aio()?.map("stock").allocate(100).await?;
/// stock.put(&4711, &12).await?;
/// let mut entries: ddss::aio::List<(u64, u64)> = stock.entries();
/// assert_eq!(entries.next().await.transpose()?, Some((4711, 12)));
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a list does nothing until its next item is awaited"]
pub struct List<E>(Pin<Box<dyn Stream<Item = Result<E, Error>> + Send>>);

impl<E> std::fmt::Debug for List<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("aio::List").finish_non_exhaustive()
    }
}

impl<E> List<E> {
    /// Waits for the next item. Dropping the future loses no item: its call continues in the next `next`, and counts among
    /// the client's calls until then.
    pub async fn next(&mut self) -> Option<Result<E, Error>> {
        std::future::poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }
}

pub(crate) fn list_segments(pages: SegmentPages) -> List<SegmentInfo> {
    let next = |mut pages: SegmentPages| async move { Some((pages.next_segment().await?, pages)) };
    List(Box::pin(unfold(pages, next)))
}

pub(crate) fn list_map<K, V>(entries: MapEntries<K, V>) -> List<(K::Output, V::Output)>
where
    K: Encoding + ?Sized,
    V: Encoding + ?Sized,
{
    let next = |mut entries: MapEntries<K, V>| async move { Some((entries.next_entry().await?, entries)) };
    List(Box::pin(unfold(entries, next)))
}

impl<E> Stream for List<E> {
    type Item = Result<E, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}
