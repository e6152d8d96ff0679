//! Iterators over lists.

use super::api::{MapEntries, SegmentPages};
use crate::encoding::Encoding;
use crate::error::Error;
use crate::segment_info::SegmentInfo;

/// The items of a list, which the client requests part by part. After an error the list ends.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let stock: ddss::Map<u64, u64> = client.map("stock").allocate(100)?;
/// stock.put(&4711, &12)?;
/// let entries: ddss::List<(u64, u64)> = stock.entries();
/// assert_eq!(entries.collect::<Result<Vec<_>, _>>()?, [(4711, 12)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a list does nothing until its items are taken"]
pub struct List<E>(Box<dyn FnMut() -> Option<Result<E, Error>> + Send>);

impl<E> std::fmt::Debug for List<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("List").finish_non_exhaustive()
    }
}

pub(crate) fn list_segments(mut pages: SegmentPages) -> List<SegmentInfo> {
    List(Box::new(move || pages.next_segment()))
}

pub(crate) fn list_map<K, V>(mut entries: MapEntries<K, V>) -> List<(K::Output, V::Output)>
where
    K: Encoding + ?Sized,
    V: Encoding + ?Sized,
{
    List(Box::new(move || entries.next_entry()))
}

impl<E> Iterator for List<E> {
    type Item = Result<E, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.0)()
    }
}
