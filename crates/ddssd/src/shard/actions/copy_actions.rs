//! Copies between a client's arena, the staging memory of a peer, and the memory of segments.

use crate::peers::links::Links;
use crate::shard::client_arena::{CHECKED, ClientArenas};
use crate::storage::memory::NodeMemory;
use ddss_core::{
    ArenaRange, BucketLayout, BucketSearch, ClientId, EntryChange, NodeId, Payload, Range, RecordPlace, SlotWord,
    TableLayout, Timestamp, Version,
};
use ddss_engine::{BufferId, CommitSource, Engine, GarbageSearch, Now, RangeSet};
use ddss_ipc::SharedMemory;

/// Parts of a shard whose bytes are copied. The engine holds the ranges, and short bytes of its own.
pub(crate) struct CopyActions<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) memory: &'a NodeMemory,
    pub(crate) arenas: &'a ClientArenas,
    pub(crate) links: &'a Links,
}

impl CopyActions<'_> {
    pub(crate) fn copy_out(&self, at: u64, parts: &RangeSet, client: ClientId, into: ArenaRange) {
        let Some(arena) = self.arenas.of(client) else { return };
        let mut to = into.offset() as usize;
        let (area, data) = self.memory.area_at(at);
        self.engine.ranges(parts).iter().for_each(|range| {
            let (from, bytes) = (data + range.offset as usize, range.bytes as usize);
            SharedMemory::copy(area, from, &arena.memory, to, bytes).expect(CHECKED);
            to += bytes;
        });
    }

    pub(crate) fn snapshot(&self, at: u64, parts: &RangeSet, to: u64) {
        let ((area, data), (aside, mut to)) = (self.memory.area_at(at), self.memory.area_at(to));
        for range in &self.engine.ranges(parts) {
            let (from, bytes) = (data + range.offset as usize, range.bytes as usize);
            SharedMemory::copy(area, from, aside, to, bytes).expect(CHECKED);
            to += bytes;
        }
    }

    /// Copies bytes that will be committed to pool memory, where no client can change them.
    pub(crate) fn copy_to_pool(&mut self, source: CommitSource, bytes: u32, to: u64) {
        let (area, at) = self.memory.area_at(to);
        if let CommitSource::Buffer(kept) = source {
            return self.engine.consume_buffer(kept, |bytes| area.write(at, bytes).expect(CHECKED));
        }
        self.copy_in(area, at, bytes, &source, 0);
    }

    /// Writes a part of a replica that is still incomplete.
    pub(crate) fn fill_replica(&mut self, at: u64, source: CommitSource, parts: &RangeSet) {
        for range in &self.engine.ranges(parts) {
            self.copy_to_pool(source, range.bytes, at + range.offset);
        }
    }

    pub(crate) fn copy_from_staging(&self, node: NodeId, at: u64, client: ClientId, into: ArenaRange) {
        if let (Some(arena), Some(staging)) = (self.arenas.of(client), self.links.staging_of(node)) {
            let (to, bytes) = (into.offset() as usize, into.bytes as usize);
            SharedMemory::copy(staging, at as usize, &arena.memory, to, bytes).expect(CHECKED);
        }
    }

    pub(crate) fn copy_from_buffer(&self, kept: BufferId, client: ClientId, into: ArenaRange) {
        if let Some(arena) = self.arenas.of(client) {
            arena.memory.write(into.offset() as usize, self.engine.buffer(kept)).expect(CHECKED);
        }
    }

    /// Searches a bucket for the key behind the word that the source begins with. The places are those of the map's
    /// description and of the bucket.
    pub(crate) fn find_entry(
        &self,
        (description, bucket): (u64, u64),
        change: EntryChange,
        source: &CommitSource,
    ) -> Option<BucketSearch> {
        let mut head = [0; SlotWord::BYTES + BucketLayout::KEY_BYTES_MAX];
        let head = &mut head[..change.head_bytes() as usize];
        self.read_head(source, head)?;
        let (area, at) = self.memory.area_at(bucket);
        let seed = |into: &mut [u8; BucketLayout::SEED_BYTES]| {
            let (area, at) = self.memory.area_at(description);
            area.read(at + BucketLayout::SEED_AT, into).expect(CHECKED);
        };
        change.search(head, seed, |offset, into| area.read(at + offset, into).expect(CHECKED))
    }

    /// Looks through buckets of the map in a table.
    pub(crate) fn find_garbage(
        &self,
        table: (u64, TableLayout, u64),
        buckets: (u64, u64),
        bytes_max: usize,
        now: Now,
    ) -> Option<GarbageSearch> {
        GarbageSearch::find(table, buckets, bytes_max, now.wall_us / 1000, |place, into| {
            let (area, at) = self.memory.area_at(place);
            area.read(at, into).expect(CHECKED);
        })
    }

    /// Copies the first bytes of a put, which its commit copies again; `None` if its client or peer is gone.
    fn read_head(&self, source: &CommitSource, head: &mut [u8]) -> Option<()> {
        match *source {
            CommitSource::Buffer(kept) => head.copy_from_slice(self.engine.buffer(kept).get(..head.len())?),
            CommitSource::Client(client, Payload::Arena(range)) => {
                self.arenas.of(client)?.memory.read(range.offset() as usize, head).expect(CHECKED);
            }
            CommitSource::Staged { node, at } => {
                self.links.staging_of(node)?.read(at as usize, head).expect(CHECKED);
            }
            CommitSource::Client(_, Payload::Inline { bytes, .. }) => {
                head.copy_from_slice(bytes.get(..head.len())?);
            }
            CommitSource::Pool(_) | CommitSource::Word(_) => return None,
        }
        Some(())
    }

    pub(crate) fn commit(&mut self, at: u64, parts: &RangeSet, source: CommitSource, stamp: (Version, Timestamp)) {
        self.commit_at(RecordPlace::of_plain_segment(at), parts, source, stamp);
    }

    /// Commits to a segment, or to a record of a table.
    #[inline]
    pub(crate) fn commit_at(
        &mut self,
        place: RecordPlace,
        parts: &RangeSet,
        source: CommitSource,
        stamp: (Version, Timestamp),
    ) {
        let (one, several);
        let ranges: &[Range] = match *parts {
            RangeSet::One { offset, bytes } => {
                one = [Range { offset, bytes }];
                &one
            }
            RangeSet::Many { .. } => {
                several = self.engine.ranges(parts);
                &several
            }
        };
        if let CommitSource::Buffer(kept) = source {
            let memory = self.memory;
            self.engine.consume_buffer(kept, |bytes| {
                memory.commit_at(place, stamp, ranges, |area, data| {
                    let mut left = bytes;
                    for range in ranges {
                        let (now, later) = left.split_at(range.bytes as usize);
                        area.write(data + range.offset as usize, now).expect(CHECKED);
                        left = later;
                    }
                });
            });
            return;
        }
        self.memory.commit_at(place, stamp, ranges, |area, data| {
            let mut done = 0;
            for range in ranges {
                self.copy_in(area, data + range.offset as usize, range.bytes, &source, done);
                done += u64::from(range.bytes);
            }
        });
    }

    /// Copies `length` bytes of the committed source, from offset `skip` on.
    fn copy_in(&self, area: &SharedMemory, to: usize, length: u32, source: &CommitSource, skip: u64) {
        let bytes = length as usize;
        match *source {
            CommitSource::Client(_, Payload::Inline { bytes: inline, .. }) => {
                area.write(to, &inline[..bytes]).expect(CHECKED)
            }
            CommitSource::Client(client, Payload::Arena(range)) => {
                if let Some(arena) = self.arenas.of(client) {
                    let from = (range.offset() + skip) as usize;
                    SharedMemory::copy(&arena.memory, from, area, to, bytes).expect(CHECKED);
                }
            }
            CommitSource::Staged { node, at } => {
                if let Some(staging) = self.links.staging_of(node) {
                    SharedMemory::copy(staging, (at + skip) as usize, area, to, bytes).expect(CHECKED);
                }
            }
            CommitSource::Pool(at) => {
                let (pool, from) = self.memory.area_at(at);
                SharedMemory::copy(pool, from + skip as usize, area, to, bytes).expect(CHECKED);
            }
            CommitSource::Word(word) => area.write(to, &word.to_le_bytes()).expect(CHECKED),
            CommitSource::Buffer(_) => unreachable!("the engine's own bytes are written by `commit`"),
        }
    }
}
