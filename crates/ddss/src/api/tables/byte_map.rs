//! Views of a table as a map, and gets of an entry by its bytes. `map.rs` makes calls of them.
//!
//! Row 0 describes the map, each other row is a bucket. The version of its bucket decides each change of a key. The home
//! executes most of them on the bucket. Otherwise a client reads it, and its conditional put fails if any other change of
//! the bucket came first. So two clients never both insert one key.
//!
//! An entry that finds no free slot in its bucket is written into a later bucket first, where no get finds it. A
//! conditional put of a link into its own bucket then makes it visible. A client that dies between the two leaves an
//! orphan. The sweep of the home frees it: it changes the bucket first, so that the put of the link fails if the client
//! lives after all.

use super::map_handle::ByteMap;
use super::table::Table;
use super::twin;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::map::entry::{Entry, HEADER_BYTES, KeyHash, Lengths, attempt, check_time, now_ms};
use crate::map::shape::MapShape;
use ddss_core::{Failure, Model, Operation, SlotWord, Version};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Time that a table without a description may still become a map.
const DESCRIBED_WITHIN: Duration = Duration::from_millis(100);

#[twin]
impl Table {
    /// Views the table as a map of those lengths. The first view that knows both writes the description.
    pub(super) async fn into_map(self, time: Deadline, wanted: Lengths) -> Result<ByteMap, Error> {
        // A client searches and changes whole buckets only, also where the segment has no model.
        let is_mixed = self.segment().location().model == Model::Null;
        let table = if is_mixed { Self::of_segment(self.segment().with_model(Model::Write)) } else { self };
        let (segment, row_bytes) = (table.segment(), table.row_len());
        let layout = wanted.layout().map_err(Error::argument("view as a map", segment.name()))?;
        let is_fitting = layout.is_none_or(|layout| layout.row_bytes() as u64 == row_bytes);
        if !is_fitting || row_bytes < HEADER_BYTES as u64 || table.len() < 3 {
            return ByteMap::of_header(table, [0; 6], wanted);
        }
        let (time, mut began, mut described) = (time.started(), Instant::now(), layout);
        loop {
            check_time("open", segment.name(), time)?;
            let mut header = [0; 6];
            let read = &mut header.as_mut_bytes()[..HEADER_BYTES];
            let stamp = segment.get_by(time, 0, read).await?;
            if stamp.version > Version(0) || described.is_none() && began.elapsed() > DESCRIBED_WITHIN {
                return ByteMap::of_header(table, header, wanted);
            }
            let Some(layout) = described else {
                // The process that allocates the map is about to describe it.
                segment.client().pause(DESCRIBED_WITHIN / 20).await;
                continue;
            };
            let conditions = segment.location().put_conditions(Some(Version(0)));
            let header = MapShape::new_header(layout);
            match attempt(segment.put_by(time, 0, header.as_bytes(), conditions).await) {
                // A process that may only read waits for the one that allocates the map.
                Err(error) if error.has_failed_with(Failure::PermissionDenied) => {
                    (began, described) = (Instant::now(), None);
                }
                ended => _ = ended?,
            }
        }
    }
}

#[twin]
impl ByteMap {
    pub(crate) async fn entry_by_hash(
        &self,
        time: Deadline,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Option<Entry<Vec<u8>>>, Error> {
        let mut time = time;
        loop {
            let (home, place) = self.find(time, hash, key).await?;
            let Some(place) = place else { return Ok(None) };
            let image = place.image.as_ref().unwrap_or(&home);
            let word = image.word(place.slot).filter(|word| word.expiry_ms() == 0 || !word.is_expired(now_ms()));
            let Some(expiry_ms) = word.map(SlotWord::expiry_ms) else { return Ok(None) };
            if let Some(value) = self.value_of(time, place.bucket, image, place.slot).await? {
                let version = self.entry_version(hash.bucket, place.bucket, image.version);
                return Ok(Some(Entry { value, version, expiry_ms }));
            }
            time = time.started();
            check_time("get from", self.table.segment().name(), time)?;
        }
    }

    /// Lets the home free the slots of expired entries, and of entries whose client died before it linked them, in some
    /// buckets. Returns their number.
    pub(crate) async fn sweep(&self, time: Deadline, first: u64, buckets: u64) -> Result<u64, Error> {
        let segment = self.table.segment();
        let sweep = Operation::Sweep { segment: segment.id(), first, buckets };
        let plan = segment.location().plan("remove expired entries of", sweep);
        segment.client().execute(time, plan.returns(|completion, _| crate::value::first_word(completion))).await
    }
}
