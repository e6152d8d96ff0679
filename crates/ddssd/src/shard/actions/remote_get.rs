//! The reads of a remote get: header, bytes and state word in one batch.

use super::transfers::{Transfers, failure_from_post};
use crate::peers::work_tag::Tag;
use crate::shard::client_arena::CHECKED;
use crate::storage::memory::NodeMemory;
use arrayvec::ArrayVec;
use ddss_core::limits::{RANGES_MAX, ROWS_MAX};
use ddss_core::{
    ArenaRange, ClientId, Failure, Header, NodeId, Range, RecordPlace, RemoteWindow, RowList, TableLayout, Timestamp,
};
use ddss_engine::{FetchTarget, RangeSet, StepId};
use ddss_verbs::{LocalRange, PeerId, RegionId, RemoteRange, Work};
use std::sync::atomic::Ordering;

/// Rows of a remote table that one request reads.
pub(crate) struct RowsToRead {
    pub(crate) layout: TableLayout,
    /// Number of rows of the table.
    pub(crate) rows: u64,
    pub(crate) client: ClientId,
    pub(crate) range: ArenaRange,
    pub(crate) list: RowList,
}

/// Reads of one get from a peer's window.
struct WindowReads {
    peer: PeerId,
    tag: u64,
    window: RemoteWindow,
}

impl WindowReads {
    fn read(&self, region: RegionId, offset: u64, bytes: u64, address: u64) -> Work<'static> {
        let Self { peer, tag, window } = *self;
        let (local, address) = (LocalRange { region, offset, bytes }, window.base + address);
        Work::Read { peer, tag, local, remote: RemoteRange { key: window.key, address } }
    }
}

impl Transfers<'_> {
    /// Returns the reads of a get; `None` without a connection to the node.
    fn reads_of(&self, node: NodeId, step: StepId, window: RemoteWindow) -> Option<WindowReads> {
        let (peer, _) = self.links.connection_to(node)?;
        Some(WindowReads { peer, tag: Tag::RemoteGet(step).to_bits(), window })
    }

    /// Returns the region of a target, and the offset there.
    fn destination(&self, target: FetchTarget) -> Option<(RegionId, u64)> {
        match target {
            FetchTarget::Arena(client, range) => self.arenas.of(client).map(|arena| (arena.region, range.offset())),
            FetchTarget::Pool(at) => self.areas.region_at(at),
        }
    }

    /// Posts header, bytes and state word as one batch of reads, which the home node executes in order.
    pub(crate) fn post_remote_get(
        &mut self,
        node: NodeId,
        step: StepId,
        window: RemoteWindow,
        line: u64,
        parts: &RangeSet,
        target: FetchTarget,
    ) {
        let (Some(reads), Some((region, from))) = (self.reads_of(node, step, window), self.destination(target)) else {
            return self.engine.on_refused(step, Failure::NodeDown);
        };
        let mut to = from;
        let read = |region, offset, bytes, address| reads.read(region, offset, bytes, line + address);
        let (scratch, index) = (self.scratch_region, step.index());
        let mut batch = ArrayVec::<Work<'_>, { RANGES_MAX + 2 }>::new();
        batch.push(read(scratch, NodeMemory::scratch_line(index), Header::READ_BYTES.into(), 0));
        for run in merge_adjacent(&self.engine.ranges(parts)) {
            let bytes = u64::from(run.bytes);
            batch.push(read(region, to, bytes, Header::DATA_OFFSET + run.offset));
            to += bytes;
        }
        batch.push(read(scratch, NodeMemory::scratch_state_after(index), 8, Header::STATE_OFFSET));
        self.post_reads(step, &batch, to - from + u64::from(Header::READ_BYTES) + 8);
    }

    /// Posts the reads of a remote record as one batch, which the home node executes in order.
    ///
    /// Identity and lock of the segment's header and the two words of the record together fill a scratch line as the
    /// header of a plain segment does.
    pub(crate) fn post_record_get(
        &mut self,
        node: NodeId,
        step: StepId,
        window: RemoteWindow,
        place: RecordPlace,
        parts: &RangeSet,
        target: FetchTarget,
    ) {
        let (Some(reads), Some((region, from))) = (self.reads_of(node, step, window), self.destination(target)) else {
            return self.engine.on_refused(step, Failure::NodeDown);
        };
        let (scratch, line) = (self.scratch_region, NodeMemory::scratch_line(step.index()));
        let mut batch = ArrayVec::<Work<'_>, { RANGES_MAX + 3 }>::new();
        let identity_bytes = u64::from(Header::READ_BYTES) - Header::SEGMENT_OFFSET;
        batch.push(reads.read(scratch, line + Header::SEGMENT_OFFSET, identity_bytes, Header::SEGMENT_OFFSET));
        batch.push(reads.read(scratch, line, TableLayout::RECORD_HEADER_BYTES, place.header));
        let mut to = from;
        for run in merge_adjacent(&self.engine.ranges(parts)) {
            batch.push(reads.read(region, to, run.bytes.into(), place.data + run.offset));
            to += u64::from(run.bytes);
        }
        let state_after = NodeMemory::scratch_state_after(step.index());
        batch.push(reads.read(scratch, state_after, 8, place.header + Header::STATE_OFFSET));
        self.post_reads(step, &batch, to - from + identity_bytes + TableLayout::RECORD_HEADER_BYTES + 8);
    }

    /// Posts one read for each row, and one of the segment's header behind them. The home's fabric has to take each row in one
    /// go; a fabric that does not is not asked.
    pub(crate) fn post_rows_get(&mut self, node: NodeId, step: StepId, window: RemoteWindow, rows: &RowsToRead) {
        let RowsToRead { layout, rows, client, range, list } = *rows;
        let (Some(reads), Some(arena)) = (self.reads_of(node, step, window), self.arenas.of(client)) else {
            return self.engine.on_refused(step, Failure::NodeDown);
        };
        let record_bytes = u64::from(list.record_bytes());
        // All nodes of a cluster have the same fabric.
        if record_bytes > self.links.fabric().capabilities().snapshot_bytes {
            return self.engine.on_refused(step, Failure::Unsupported);
        }
        let mut batch = ArrayVec::<Work<'_>, { ROWS_MAX + 1 }>::new();
        for index in 0..list.rows() {
            // Copied once: the client may change it meanwhile.
            let number = range.offset() as usize + index * RowList::NUMBER_BYTES;
            let row = u64::from_le(arena.memory.load(number, Ordering::Relaxed).expect(CHECKED));
            if row >= rows {
                return self.engine.on_refused(step, Failure::OutOfRange);
            }
            let to = range.offset() + list.record_at(index) as u64;
            batch.push(reads.read(arena.region, to, record_bytes, layout.record(row).header));
        }
        let line = NodeMemory::scratch_line(step.index());
        batch.push(reads.read(self.scratch_region, line, Header::READ_BYTES.into(), 0));
        self.post_reads(step, &batch, record_bytes * list.rows() as u64 + u64::from(Header::READ_BYTES));
    }

    /// Returns the greatest timestamp of records in a client's arena.
    pub(crate) fn greatest_timestamp(&self, client: ClientId, range: ArenaRange, list: RowList) -> Timestamp {
        let Some(arena) = self.arenas.of(client) else { return Timestamp(0) };
        let timestamp = |index| {
            let at = range.offset() as usize + list.record_at(index) + Header::TIMESTAMP_OFFSET as usize;
            u64::from_le(arena.memory.load(at, Ordering::Relaxed).expect(CHECKED))
        };
        Timestamp((0..list.rows()).map(timestamp).max().unwrap_or(0))
    }

    /// Posts the reads of one get.
    fn post_reads(&mut self, step: StepId, batch: &[Work<'_>], bytes: u64) {
        self.recorder.count_reads(batch.len(), bytes);
        match self.links.fabric_mut().post(batch) {
            Ok(()) => self.inflight_reads.begin(step, batch.len() as u16, None),
            Err(error) if error.index == 0 => self.engine.on_refused(step, failure_from_post(error.kind)),
            Err(error) => self.inflight_reads.begin(step, error.index as u16, Some(failure_from_post(error.kind))),
        }
    }
}

/// The first words of a record are those of a header.
const _: () = assert!(
    Header::STATE_OFFSET == 0
        && Header::TIMESTAMP_OFFSET == 8
        && Header::SEGMENT_OFFSET == TableLayout::RECORD_HEADER_BYTES
);

/// Merges adjacent ranges into as few reads as possible; adjacent ranges are adjacent in the arena, too.
fn merge_adjacent(ranges: &[Range]) -> ArrayVec<Range, RANGES_MAX> {
    let mut runs = ArrayVec::<Range, RANGES_MAX>::new();
    for range in ranges.iter().filter(|range| range.bytes > 0) {
        match runs.last_mut() {
            Some(last) if last.offset + u64::from(last.bytes) == range.offset => last.bytes += range.bytes,
            _ => runs.push(*range),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_are_merged_into_one_read() {
        // If this broke, sixteen pages in a row would cost sixteen requests, or a page would come from a wrong place.
        let range = |offset, bytes| Range { offset, bytes };
        let of = |ranges: &[Range]| merge_adjacent(ranges).to_vec();
        assert_eq!(of(&[range(8, 8), range(16, 100), range(116, 4)]), [range(8, 112)]);
        assert_eq!(of(&[range(16, 8), range(8, 8)]), [range(16, 8), range(8, 8)], "the order is the caller's");
        assert_eq!(of(&[range(0, 8), range(0, 8)]), [range(0, 8); 2]);
        assert_eq!(of(&[range(0, 8), range(4, 8)]), [range(0, 8), range(4, 8)]);
        assert_eq!(of(&[range(0, 8), range(50, 0), range(8, 8)]), [range(0, 16)]);
        assert_eq!(of(&[range(3, 0)]), []);
    }
}
