//! Work on the memory of segments that takes long, cut into slices: a large segment is brought to other people's memory, its
//! pages are taken, or made zeroes and given back, a slice a turn of the progress thread, so that nobody's call waits for a whole gigabyte.

use crate::storage::memory::NodeMemory;
use ddss_core::limits::BLOCK_BYTES;
use ddss_core::{Header, Record};
use ddss_ipc::MemoryError;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Something that takes long.
#[allow(clippy::large_enum_variant, reason = "few of them wait, and none is moved often")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BackgroundTask {
    /// Take the pages of a new segment; when all are there, write it down.
    Form { record: Record, header: Header, bytes: u64 },
    /// Bring a segment to another place; who may find it there is for the engine to say.
    Move { record: Record, from: u64, bytes: u64 },
    /// Make memory zeroes and give its pages back.
    Clear { at: u64, bytes: u64 },
}

/// Everything that is not done yet, one slice of each in turn.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks {
    /// Each with the number of bytes that are done.
    waiting: VecDeque<(BackgroundTask, u64)>,
    /// Rounds in a row in which nobody wanted anything else.
    quiet: u32,
    /// When the next slice is due, whoever calls.
    next: Option<Instant>,
}

impl BackgroundTasks {
    /// Bytes of one slice: ten microseconds, and some tens where a virtual machine's host has to find the pages first. What is no
    /// longer than this is done at once.
    pub(crate) const SLICE: u64 = 32 << 10;

    /// Between two slices, while others call: who calls without a pause meets one in less than a hundred calls.
    const REST: Duration = Duration::from_micros(200);
    /// All rests of one chore: who allocates a gigabyte has a deadline, too.
    const RESTS_MAX: Duration = Duration::from_millis(500);
    /// After so many rounds in which nobody did, there is no rest: a caller on another core calls again within less.
    const QUIET: u32 = 4;

    /// The rest after each slice of so many bytes.
    fn rest(bytes: u64) -> Duration {
        let slices = u32::try_from(bytes.div_ceil(Self::SLICE)).unwrap_or(u32::MAX).max(1);
        Self::REST.min(Self::RESTS_MAX / slices)
    }

    pub(crate) fn add(&mut self, chore: BackgroundTask) {
        self.waiting.push_back((chore, 0));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether it is time for a slice, after a round that did so much else.
    pub(crate) fn are_due(&mut self, work: usize) -> bool {
        if self.is_empty() {
            return false;
        }
        self.quiet = if work == 0 { self.quiet.saturating_add(1) } else { 0 };
        self.quiet >= Self::QUIET || self.next.is_none_or(|next| next <= Instant::now())
    }

    /// Does one slice of the next chore. One that is over, or cannot be done, is told and gone.
    pub(crate) fn step(&mut self, memory: &mut NodeMemory) -> Option<(BackgroundTask, Result<(), MemoryError>)> {
        let (chore, done) = self.waiting.pop_front()?;
        let (at, bytes) = match chore {
            BackgroundTask::Form { record, bytes, .. } | BackgroundTask::Move { record, bytes, .. } => {
                (record.at, bytes)
            }
            BackgroundTask::Clear { at, bytes } => (at, bytes),
        };
        let slice = Self::SLICE.min(bytes - done);
        let ended = match chore {
            BackgroundTask::Form { record, .. } => memory.reserve(at + done, record.spec.storage, slice),
            BackgroundTask::Move { record, from, .. } => memory.relocate(&record, from, done, slice),
            BackgroundTask::Clear { .. } => memory.clear(at + done, slice),
        };
        self.next = Some(Instant::now() + Self::rest(bytes));
        if ended.is_err() {
            return Some((chore, ended));
        }
        if done + slice < bytes {
            self.waiting.push_back((chore, done + slice));
            return None;
        }
        match chore {
            BackgroundTask::Form { record, header, .. } => Some((chore, memory.write_down(&record, &header))),
            BackgroundTask::Move { .. } | BackgroundTask::Clear { .. } => Some((chore, ended)),
        }
    }
}

const _: () = assert!(BackgroundTasks::SLICE.is_multiple_of(BLOCK_BYTES as u64));

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{Name, NodeId, Permissions, Principal, SegmentId, Spec, Storage};

    const LARGE: u64 = 16 * BackgroundTasks::SLICE;

    fn form(index: u16, at: u64, bytes: u64) -> BackgroundTask {
        let record = Record {
            segment: SegmentId::new(NodeId(1), index, 1),
            known_as: SegmentId::new(NodeId(1), index, 1),
            at: 1 << 48 | at,
            name: Name::new("n").unwrap(),
            spec: Spec::new(bytes - Header::DATA_OFFSET),
            permissions: Permissions { owner: Principal { uid: 1, gid: 1 }, mode: 0o600 },
        };
        let segment = record.segment.to_bits();
        let header = Header { state: 0, timestamp: 1, segment, bytes: record.spec.bytes, locked: 0 };
        BackgroundTask::Form { record, header, bytes }
    }

    #[test]
    fn a_large_segment_takes_many_turns_and_a_smaller_one_overtakes_it() {
        // If this broke, everybody's calls would stand still while somebody allocates or releases a gigabyte.
        let folder = std::env::temp_dir().join(format!("ddssd-chores-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), 4 * LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let mut chores = BackgroundTasks::default();
        let (large, small) = (form(0, 0, LARGE), form(1, LARGE, 2 * BackgroundTasks::SLICE));
        chores.add(large);
        chores.add(small);
        let mut ended = Vec::new();
        for turn in 1..=18 {
            ended.extend(chores.step(&mut memory).map(|(chore, result)| (turn, chore, result.is_ok())));
        }
        assert_eq!(ended, [(4, small, true), (18, large, true)]);
        assert!(chores.is_empty() && memory.register.entries().count() == 2);
        // And the same on its way back.
        chores.add(BackgroundTask::Clear { at: 1 << 48, bytes: LARGE });
        let turns = (1..).find(|_| chores.step(&mut memory).is_some()).unwrap();
        assert_eq!(turns, 16);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn while_others_call_there_is_a_rest_between_two_slices() {
        // If this broke, each call would wait for a slice of what a stranger allocates; or nobody could allocate while others call.
        let folder = std::env::temp_dir().join(format!("ddssd-chores-rest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let mut chores = BackgroundTasks::default();
        assert!(!chores.are_due(0), "nothing waits");
        chores.add(form(0, 0, LARGE));
        assert!(chores.are_due(1), "the first slice waits for nobody");
        let began = Instant::now();
        assert!(chores.step(&mut memory).is_none());
        while !chores.are_due(1) {}
        assert!(began.elapsed() >= BackgroundTasks::REST, "others called without a pause");
        assert!(chores.step(&mut memory).is_none());
        let _ = (1..BackgroundTasks::QUIET).filter(|_| chores.are_due(0)).count();
        assert!(chores.are_due(0), "nobody calls");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_had_is_told_and_never_tried_again() {
        // If this broke, an allocation on a full disk would never end, or the daemon would try for ever.
        let folder = std::env::temp_dir().join(format!("ddssd-chores-full-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let mut chores = BackgroundTasks::default();
        // The second half of it lies outside of the area.
        chores.add(form(0, LARGE / 2, LARGE));
        let ended = (0..100).find_map(|_| chores.step(&mut memory)).unwrap();
        assert!(ended.1.is_err() && chores.is_empty());
        assert_eq!(memory.register.entries().count(), 0, "a segment without memory is written down");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
