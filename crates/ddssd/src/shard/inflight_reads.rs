//! The reads of a get that are under way: a header, the bytes, a state word; one end.

use super::executor::{ActionExecutor, failure_of};
use crate::storage::memory::NodeMemory;
use arrayvec::ArrayVec;
use ddss_core::engine::{FetchTarget, RangeSet, ServedGetId, StepId};
use ddss_core::limits::{OPERATIONS_MAX, RANGES_MAX};
use ddss_core::{Failure, Header, NodeId, Range, RemoteWindow};
use ddss_verbs::{LocalRange, RemoteRange, Work};

/// What a tag that comes back from the fabric stands for; the low bits are the engine's step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    /// A read of a fetch.
    Fetch(StepId),
    /// The write of a staged put.
    Stage(StepId),
    /// The write of bytes that a peer asked for.
    Hand(ServedGetId),
    /// A message: its end tells nothing that the connection's end does not.
    Send,
}

impl Tag {
    const FETCH: u64 = 1;
    const STAGE: u64 = 2;
    const HAND: u64 = 3;

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Tag::Fetch(step) => Self::FETCH << StepId::BITS | step.to_bits(),
            Tag::Stage(step) => Self::STAGE << StepId::BITS | step.to_bits(),
            Tag::Hand(hand) => Self::HAND << StepId::BITS | hand.to_bits(),
            Tag::Send => 0,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let step = StepId::from_bits(bits & ((1 << StepId::BITS) - 1));
        match bits >> StepId::BITS {
            Self::FETCH => Tag::Fetch(step),
            Self::STAGE => Tag::Stage(step),
            Self::HAND => Tag::Hand(ServedGetId::from_bits(step.to_bits())),
            _ => Tag::Send,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct InflightRead {
    reads: u8,
    failure: Option<Failure>,
}

/// All fetches under way, by the index of their step.
#[derive(Debug)]
pub(crate) struct InflightReads(Box<[InflightRead]>);

impl InflightReads {
    pub(crate) fn new() -> Self {
        Self(vec![InflightRead::default(); OPERATIONS_MAX].into_boxed_slice())
    }

    /// So many reads of it went out; a failure if not all of them could.
    pub(crate) fn begin(&mut self, step: StepId, reads: u8, failure: Option<Failure>) {
        self.0[step.index()] = InflightRead { reads, failure };
    }

    /// One read ended. With the last one: how the fetch went.
    pub(crate) fn ended(&mut self, step: StepId, failure: Option<Failure>) -> Option<Result<(), Failure>> {
        let fetch = &mut self.0[step.index()];
        assert!(fetch.reads > 0, "the fabric ends each read once");
        fetch.reads -= 1;
        fetch.failure = fetch.failure.or(failure);
        (fetch.reads == 0).then_some(fetch.failure.map_or(Ok(()), Err))
    }
}

impl ActionExecutor {
    /// Header, bytes, state word again: some reads in one batch, which the home carries out in order.
    pub(crate) fn fetch(
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
        let (Some((peer, _)), Some((region, from))) = (self.links.road_to(node), into) else {
            return self.engine.refused(step, Failure::NodeDown);
        };
        let mut to = from;
        let tag = Tag::Fetch(step).to_bits();
        let read = |region, offset, bytes, address| Work::Read {
            peer,
            tag,
            local: LocalRange { region, offset, bytes },
            remote: RemoteRange { key: window.key, address: window.base + line + address },
        };
        let (scratch, index) = (self.scratch_region, step.index());
        let mut batch = ArrayVec::<Work<'_>, { RANGES_MAX + 2 }>::new();
        batch.push(read(scratch, NodeMemory::scratch_line(index), Header::READ_BYTES.into(), 0));
        for run in runs(&self.engine.ranges(parts)) {
            let bytes = u64::from(run.bytes);
            batch.push(read(region, to, bytes, Header::DATA_OFFSET + run.offset));
            to += bytes;
        }
        batch.push(read(scratch, NodeMemory::scratch_state_after(index), 8, Header::STATE_OFFSET));
        self.tally.read(batch.len(), to - from + u64::from(Header::READ_BYTES) + 8);
        match self.fabric.post(&batch) {
            Ok(()) => self.fetches.begin(step, batch.len() as u8, None),
            Err(error) if error.index == 0 => self.engine.refused(step, failure_of(error.kind)),
            Err(error) => self.fetches.begin(step, error.index as u8, Some(failure_of(error.kind))),
        }
    }
}

/// What is asked for, as few reads as can be: ranges that lie one behind the other there do so in the arena, too.
fn runs(ranges: &[Range]) -> ArrayVec<Range, RANGES_MAX> {
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
    fn neighbours_are_one_read_and_others_are_not() {
        // If this broke, sixteen pages in a row would cost sixteen requests, or a page would come from a wrong place.
        let range = |offset, bytes| Range { offset, bytes };
        let of = |ranges: &[Range]| runs(ranges).to_vec();
        assert_eq!(of(&[range(8, 8), range(16, 100), range(116, 4)]), [range(8, 112)]);
        assert_eq!(of(&[range(16, 8), range(8, 8)]), [range(16, 8), range(8, 8)], "the order is the caller's");
        assert_eq!(of(&[range(0, 8), range(0, 8)]), [range(0, 8); 2]);
        assert_eq!(of(&[range(0, 8), range(4, 8)]), [range(0, 8), range(4, 8)]);
        assert_eq!(of(&[range(0, 8), range(50, 0), range(8, 8)]), [range(0, 16)]);
        assert_eq!(of(&[range(3, 0)]), []);
    }

    #[test]
    fn a_fetch_ends_with_its_last_read_and_remembers_a_failure() {
        // If this broke, a client would be told of bytes that are still on their way, or that never came.
        let mut fetches = InflightReads::new();
        let step = StepId::from_bits(5);
        fetches.begin(step, 3, None);
        assert_eq!(fetches.ended(step, None), None);
        assert_eq!(fetches.ended(step, Some(Failure::NodeDown)), None);
        assert_eq!(fetches.ended(step, None), Some(Err(Failure::NodeDown)));
        fetches.begin(step, 1, None);
        assert_eq!(fetches.ended(step, None), Some(Ok(())));
    }

    #[test]
    fn a_tag_comes_back_as_it_went_out() {
        // If this broke, the end of one operation would be taken for the end of another.
        let step = StepId::from_bits((1 << StepId::BITS) - 1);
        for tag in [Tag::Fetch(step), Tag::Stage(step), Tag::Hand(ServedGetId::from_bits(7)), Tag::Send] {
            assert_eq!(Tag::from_bits(tag.to_bits()), tag);
        }
    }
}
