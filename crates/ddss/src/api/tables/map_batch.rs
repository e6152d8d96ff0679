//! Ends of a batch's calls on maps that need more than the bucket of their key.

use super::super::segment::Segment;
use super::map_handle::{ByteMap, Map};
use super::table::Table;
use super::{Client, twin};
use crate::batch::MapTarget;
use crate::batch::map_call::{MapCall, MapCallKind, owned};
use crate::batch::reply::BatchReply;
use crate::batch::target::MapPlace;
use crate::deadline::Deadline;
use crate::encoding::{Encoding, Seal};
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::map::entry::{Entry, Linked};

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> MapTarget for Map<K, V> {
    type Key = K;
    type Value = V;

    fn place(&self, _: Seal) -> MapPlace<'_> {
        let segment = self.segment();
        MapPlace { client: segment.client().blocking(), location: segment.location(), shape: &self.map.shape }
    }
}

#[twin]
impl ByteMap {
    /// Returns the map of a call, for a client of the shard of the map.
    pub(in super::super) fn of_call(client: Client, call: &MapCall) -> Self {
        let table = Table::of_segment(Segment::at(client, call.location.clone()));
        Self { table, shape: call.shape.clone() }
    }

    /// Searches for the entries of gets behind links, a part of them by one request. `None` if only further reads can tell.
    pub(in super::super) async fn search(
        &self,
        time: Deadline,
        gets: &[(&MapCall, &Bucket)],
    ) -> Vec<Option<Option<Entry<Vec<u8>>>>> {
        /// Gets of one request: each has a few links.
        const TOGETHER_MAX: usize = 32;
        let mut found = Vec::with_capacity(gets.len());
        for gets in gets.chunks(TOGETHER_MAX) {
            let keys: Vec<_> = gets.iter().map(|(call, bucket)| (call.key(), *bucket)).collect();
            // Reads of each by itself have errors of their own.
            let unknown = |_| gets.iter().map(|_| Linked::Unknown).collect();
            let linked = self.find_linked(time, &keys).await.unwrap_or_else(unknown);
            found.extend(linked.iter().map(|linked| linked.entry().map(owned)));
        }
        found
    }

    /// Ends a call bucket by bucket.
    pub(in super::super) async fn end_call(&self, time: Deadline, call: &MapCall) -> Result<BatchReply, Error> {
        match call.kind {
            MapCallKind::Get => Ok(call.found(self.entry_by_hash(time, call.hash, call.key()).await?)),
            MapCallKind::Put(kind, expiry) => {
                let (was_present, version) =
                    self.put_by_buckets(time, (call.key(), call.value()), kind, expiry).await?;
                call.changed(was_present, version)
            }
            MapCallKind::PutIf(version, expiry) => {
                let version = self.put_entry_if(time, (call.key(), call.value()), version, expiry).await?;
                call.changed(true, version)
            }
            MapCallKind::Remove => call.changed(self.remove_by_buckets(time, call.key()).await?, Default::default()),
        }
    }
}
