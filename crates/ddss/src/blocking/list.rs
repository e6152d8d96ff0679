//! Iterators over lists.

use super::Client;
use super::api::MapEntries;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::plan::listing::ListCursor;
use crate::segment_info::SegmentInfo;
use ddss_core::Listing;

/// Iterator over the segments that [`Client::list`] finds, ordered by node, then shard, then name.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// # client.segment("scores/today").allocate(64)?;
/// for listing in client.list("scores/")? {
///     let listing = listing?;
///     println!("{} {} bytes on {}", listing.name, listing.len, listing.home);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SegmentList {
    client: Client,
    cursor: ListCursor,
    /// Set after an error; the iterator then ends.
    ended: bool,
    /// Entries of the current page, in reverse order.
    ready: Vec<Listing>,
}

impl Client {
    /// Lists the cluster's segments whose names begin with `prefix`.
    ///
    /// The list covers reachable nodes, and the segments that this user may read, write or release. The client requests
    /// it page by page, so the list is not an atomic snapshot. Each page has the timeout of one call.
    pub fn list(&self, prefix: &str) -> Result<SegmentList, Error> {
        let cursor = ListCursor::new(prefix)?;
        Ok(SegmentList { client: self.at_shard(0)?, cursor, ended: false, ready: Vec::new() })
    }
}

impl SegmentList {
    /// Requests the next page, of the next shard at the end of this one; `None` at the end.
    fn next_page(&mut self) -> Result<Option<Vec<Listing>>, Error> {
        loop {
            if let Some(found) = self.client.next_page(&mut self.cursor)? {
                return Ok(Some(found));
            }
            let next = self.client.shard() + 1;
            if next >= self.client.shard_count() {
                return Ok(None);
            }
            self.client = self.client.at_shard(next)?;
            self.cursor.restart();
        }
    }
}

impl Iterator for SegmentList {
    type Item = Result<SegmentInfo, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.ended {
            match self.next_page() {
                Ok(Some(mut found)) => {
                    found.reverse();
                    self.ready = found;
                }
                Ok(None) => self.ended = true,
                // Each error is reported once.
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop().map(|listing| Ok(SegmentInfo::of(&listing)))
    }
}

/// The items of a list, which the client requests part by part. After an error the list ends.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
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
