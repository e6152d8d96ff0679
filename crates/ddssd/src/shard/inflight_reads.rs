//! In-flight reads of a remote get: header, bytes and state word, with one completion.

use super::executor::{ActionExecutor, failure_from_post};
use crate::storage::memory::NodeMemory;
use arrayvec::ArrayVec;
use ddss_core::engine::{FetchTarget, RangeSet, ServedGetId, StepId};
use ddss_core::limits::{OPERATIONS_MAX, RANGES_MAX};
use ddss_core::{Failure, Header, NodeId, Range, RemoteWindow};
use ddss_verbs::{LocalRange, RemoteRange, Work};

/// Completion tag of a fabric work request; the low bits hold the engine's step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    /// A read of a remote get.
    RemoteGet(StepId),
    /// The write of a staged put.
    StagedPut(StepId),
    /// The write of a served get.
    ServedGet(ServedGetId),
    /// A message: its completion says nothing that the end of the connection does not.
    Send,
}

impl Tag {
    const REMOTE_GET: u64 = 1;
    const STAGED_PUT: u64 = 2;
    const SERVED_GET: u64 = 3;

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Tag::RemoteGet(step) => Self::REMOTE_GET << StepId::BITS | step.to_bits(),
            Tag::StagedPut(step) => Self::STAGED_PUT << StepId::BITS | step.to_bits(),
            Tag::ServedGet(hand) => Self::SERVED_GET << StepId::BITS | hand.to_bits(),
            Tag::Send => 0,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let step = StepId::from_bits(bits & ((1 << StepId::BITS) - 1));
        match bits >> StepId::BITS {
            Self::REMOTE_GET => Tag::RemoteGet(step),
            Self::STAGED_PUT => Tag::StagedPut(step),
            Self::SERVED_GET => Tag::ServedGet(ServedGetId::from_bits(step.to_bits())),
            _ => Tag::Send,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct InflightRead {
    reads: u8,
    failure: Option<Failure>,
}

/// All remote gets in flight, by the index of their step.
#[derive(Debug)]
pub(crate) struct InflightReads(Box<[InflightRead]>);

impl InflightReads {
    pub(crate) fn new() -> Self {
        Self(vec![InflightRead::default(); OPERATIONS_MAX].into_boxed_slice())
    }

    /// Records the number of posted reads; a failure if some could not be posted.
    pub(crate) fn begin(&mut self, step: StepId, reads: u8, failure: Option<Failure>) {
        self.0[step.index()] = InflightRead { reads, failure };
    }

    /// Records the end of one read. Returns the result with the last one.
    pub(crate) fn complete_read(&mut self, step: StepId, failure: Option<Failure>) -> Option<Result<(), Failure>> {
        let fetch = &mut self.0[step.index()];
        assert!(fetch.reads > 0, "the fabric ends each read once");
        fetch.reads -= 1;
        fetch.failure = fetch.failure.or(failure);
        (fetch.reads == 0).then_some(fetch.failure.map_or(Ok(()), Err))
    }
}

impl ActionExecutor {
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
        let into = match target {
            FetchTarget::Arena(client, range) => self.arena(client).map(|arena| (arena.region, range.offset())),
            FetchTarget::Pool(at) => self.region_at(at),
        };
        let (Some((peer, _)), Some((region, from))) = (self.links.connection_to(node), into) else {
            return self.engine.refused(step, Failure::NodeDown);
        };
        let mut to = from;
        let tag = Tag::RemoteGet(step).to_bits();
        let read = |region, offset, bytes, address| Work::Read {
            peer,
            tag,
            local: LocalRange { region, offset, bytes },
            remote: RemoteRange { key: window.key, address: window.base + line + address },
        };
        let (scratch, index) = (self.scratch_region, step.index());
        let mut batch = ArrayVec::<Work<'_>, { RANGES_MAX + 2 }>::new();
        batch.push(read(scratch, NodeMemory::scratch_line(index), Header::READ_BYTES.into(), 0));
        for run in merge_adjacent(&self.engine.ranges(parts)) {
            let bytes = u64::from(run.bytes);
            batch.push(read(region, to, bytes, Header::DATA_OFFSET + run.offset));
            to += bytes;
        }
        batch.push(read(scratch, NodeMemory::scratch_state_after(index), 8, Header::STATE_OFFSET));
        self.recorder.count_reads(batch.len(), to - from + u64::from(Header::READ_BYTES) + 8);
        match self.fabric.post(&batch) {
            Ok(()) => self.inflight_reads.begin(step, batch.len() as u8, None),
            Err(error) if error.index == 0 => self.engine.refused(step, failure_from_post(error.kind)),
            Err(error) => self.inflight_reads.begin(step, error.index as u8, Some(failure_from_post(error.kind))),
        }
    }
}

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

    #[test]
    fn remote_get_completes_with_last_read_and_reports_failure() {
        // If this broke, a client would get bytes that are still on their way, or that never came.
        let mut inflight_reads = InflightReads::new();
        let step = StepId::from_bits(5);
        inflight_reads.begin(step, 3, None);
        assert_eq!(inflight_reads.complete_read(step, None), None);
        assert_eq!(inflight_reads.complete_read(step, Some(Failure::NodeDown)), None);
        assert_eq!(inflight_reads.complete_read(step, None), Some(Err(Failure::NodeDown)));
        inflight_reads.begin(step, 1, None);
        assert_eq!(inflight_reads.complete_read(step, None), Some(Ok(())));
    }

    #[test]
    fn tag_survives_encoding() {
        // If this broke, the end of one operation would be taken for the end of another.
        let step = StepId::from_bits((1 << StepId::BITS) - 1);
        for tag in [Tag::RemoteGet(step), Tag::StagedPut(step), Tag::ServedGet(ServedGetId::from_bits(7)), Tag::Send] {
            assert_eq!(Tag::from_bits(tag.to_bits()), tag);
        }
    }
}
