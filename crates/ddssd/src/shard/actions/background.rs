//! Long-running work on segment memory, cut into slices.
//!
//! Reserving, moving or clearing a large segment takes long. The progress thread does one slice a turn, so that no
//! client's call waits for a whole gigabyte.

use crate::storage::large_undo::LargeCommit;
use crate::storage::memory::NodeMemory;
use ddss_core::limits::PAGE_BYTES;
use ddss_core::{Header, Record, SegmentId};
use ddss_ipc::MemoryError;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A long-running task on segment memory.
#[allow(clippy::large_enum_variant, reason = "few of them wait, and none is moved often")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BackgroundTask {
    /// Reserve the pages of a new segment, then write its registry record.
    Form { record: Record, header: Header, bytes: u64 },
    /// Move a segment to another area; the engine decides which users may map it there.
    Move { record: Record, from: u64, bytes: u64 },
    /// Zero memory and release its pages.
    Clear { at: u64, bytes: u64 },
    /// Reserve the memory of the undo log, then replace bytes of a segment.
    Commit { segment: SegmentId, commit: LargeCommit },
    /// Give the memory of the undo log back.
    ClearUndo { commit: LargeCommit },
}

/// All unfinished tasks; they take turns, one slice each.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks {
    /// Each task with the number of finished bytes.
    waiting: VecDeque<(BackgroundTask, u64)>,
    /// Consecutive rounds without other work.
    idle_rounds: u32,
    /// True from the first slice of a large commit until its undo log is free for the next one.
    is_committing: bool,
    /// Time at which the next slice is due, even under load.
    next_due: Option<Instant>,
}

impl BackgroundTasks {
    /// Bytes of one slice: ten microseconds of work, and some tens where a hypervisor has to find the pages first. A
    /// shorter task is done at once.
    pub(crate) const SLICE_BYTES: u64 = 32 << 10;

    /// Bytes of one slice of a large commit: readers of that segment wait for its end, so the slices are larger, and
    /// there is no rest between them.
    pub(crate) const COMMIT_SLICE_BYTES: u64 = 256 << 10;

    /// Rest between two slices under load: a client that calls without a pause meets a slice in less than every
    /// hundredth call.
    const REST: Duration = Duration::from_micros(200);
    /// Total rest of one task: the client that allocates a gigabyte has a deadline, too.
    const REST_TOTAL_MAX: Duration = Duration::from_millis(500);
    /// Idle rounds after which there is no rest: a busy client on another core calls again within fewer rounds.
    const IDLE_ROUNDS_MIN: u32 = 4;

    /// Returns the rest after each slice of a task of `bytes` bytes.
    fn rest_for(bytes: u64) -> Duration {
        let slices = u32::try_from(bytes.div_ceil(Self::SLICE_BYTES)).unwrap_or(u32::MAX).max(1);
        Self::REST.min(Self::REST_TOTAL_MAX / slices)
    }

    pub(crate) fn add(&mut self, task: BackgroundTask) {
        self.waiting.push_back((task, 0));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if a slice is due after a round that did `work` other work.
    pub(crate) fn is_due(&mut self, work: usize) -> bool {
        if self.is_empty() {
            return false;
        }
        self.idle_rounds = if work == 0 { self.idle_rounds.saturating_add(1) } else { 0 };
        self.idle_rounds >= Self::IDLE_ROUNDS_MIN || self.next_due.is_none_or(|next| next <= Instant::now())
    }

    /// Does one slice of the next task. Returns the task when it is finished or has failed.
    pub(crate) fn step(&mut self, memory: &mut NodeMemory) -> Option<(BackgroundTask, Result<(), MemoryError>)> {
        let (task, done) = self.waiting.pop_front()?;
        if let BackgroundTask::Commit { commit, .. } | BackgroundTask::ClearUndo { commit } = task {
            return self.step_commit(memory, task, commit, done);
        }
        let (at, bytes) = match task {
            BackgroundTask::Form { record, bytes, .. } | BackgroundTask::Move { record, bytes, .. } => {
                (record.at, bytes)
            }
            BackgroundTask::Clear { at, bytes } => (at, bytes),
            BackgroundTask::Commit { .. } | BackgroundTask::ClearUndo { .. } => return None,
        };
        // Each slice ends with a page: of a page that two slices share the memory would not be given back.
        let slice = (Self::SLICE_BYTES - (at + done) % PAGE_BYTES as u64).min(bytes - done);
        let ended = match task {
            BackgroundTask::Form { record, .. } => memory.reserve(at + done, record.spec.storage, slice),
            BackgroundTask::Move { record, from, .. } => memory.relocate(&record, from, done, slice),
            _ => memory.clear(at + done, slice),
        };
        self.next_due = Some(Instant::now() + Self::rest_for(bytes));
        if ended.is_err() {
            return Some((task, ended));
        }
        if done + slice < bytes {
            self.waiting.push_back((task, done + slice));
            return None;
        }
        match task {
            BackgroundTask::Form { record, header, .. } => Some((task, memory.publish(&record, &header))),
            _ => Some((task, ended)),
        }
    }

    /// Does one slice of a large commit: first of its reservation, then of its bytes, later of the end of its log. One
    /// commit at a time uses the log.
    fn step_commit(
        &mut self,
        memory: &mut NodeMemory,
        task: BackgroundTask,
        commit: LargeCommit,
        done: u64,
    ) -> Option<(BackgroundTask, Result<(), MemoryError>)> {
        let is_first = done == 0 && matches!(task, BackgroundTask::Commit { .. });
        if is_first && std::mem::replace(&mut self.is_committing, true) {
            self.waiting.push_back((task, 0));
            return None;
        }
        let at = done % commit.bytes;
        let slice = Self::COMMIT_SLICE_BYTES.min(commit.bytes - at);
        self.next_due = None;
        let (ended, total) = match task {
            BackgroundTask::ClearUndo { .. } => (memory.clear_undo(&commit, at, slice), commit.bytes),
            _ if done < commit.bytes => (memory.reserve_undo(&commit, at, slice), 2 * commit.bytes),
            _ => {
                memory.write_slice(&commit, at, slice);
                (Ok(()), 2 * commit.bytes)
            }
        };
        if ended.is_ok() && done + slice < total {
            self.waiting.push_back((task, done + slice));
            return None;
        }
        match task {
            BackgroundTask::ClearUndo { .. } => self.is_committing = false,
            _ => self.waiting.push_back((BackgroundTask::ClearUndo { commit }, 0)),
        }
        Some((task, ended))
    }
}

const _: () = assert!(BackgroundTasks::SLICE_BYTES.is_multiple_of(PAGE_BYTES as u64));

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{Name, NodeId, Permissions, Principal, SegmentId, Spec, Storage};

    const LARGE: u64 = 16 * BackgroundTasks::SLICE_BYTES;

    fn form(index: u32, at: u64, bytes: u64) -> BackgroundTask {
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
    fn small_task_overtakes_large_one() {
        // If this broke, all calls would stall while a client allocates or releases a gigabyte.
        let folder = std::env::temp_dir().join(format!("ddssd-background_tasks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), 4 * LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let mut background_tasks = BackgroundTasks::default();
        let (large, small) = (form(0, 0, LARGE), form(1, LARGE, 2 * BackgroundTasks::SLICE_BYTES));
        background_tasks.add(large);
        background_tasks.add(small);
        let mut ended = Vec::new();
        for turn in 1..=18 {
            ended.extend(background_tasks.step(&mut memory).map(|(task, result)| (turn, task, result.is_ok())));
        }
        assert_eq!(ended, [(4, small, true), (18, large, true)]);
        assert!(background_tasks.is_empty() && memory.registry.entries().count() == 2);
        // The same for the release.
        background_tasks.add(BackgroundTask::Clear { at: 1 << 48, bytes: LARGE });
        let turns = (1..).find(|_| background_tasks.step(&mut memory).is_some()).unwrap();
        assert_eq!(turns, 16);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn slices_rest_while_clients_call() {
        // If this broke, each call would wait for a slice of another client's allocation, or allocations would starve
        // under load.
        let folder = std::env::temp_dir().join(format!("ddssd-background_tasks-rest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let mut background_tasks = BackgroundTasks::default();
        assert!(!background_tasks.is_due(0), "nothing waits");
        background_tasks.add(form(0, 0, LARGE));
        assert!(background_tasks.is_due(1), "the first slice is due at once");
        let began = Instant::now();
        assert!(background_tasks.step(&mut memory).is_none());
        while !background_tasks.is_due(1) {}
        assert!(began.elapsed() >= BackgroundTasks::REST, "others called without a pause");
        assert!(background_tasks.step(&mut memory).is_none());
        let _ = (1..BackgroundTasks::IDLE_ROUNDS_MIN).filter(|_| background_tasks.is_due(0)).count();
        assert!(background_tasks.is_due(0), "no client calls");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn failed_task_is_reported_and_not_retried() {
        // If this broke, an allocation on a full disk would never end, or the daemon would retry for ever.
        let folder = std::env::temp_dir().join(format!("ddssd-background_tasks-full-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let mut background_tasks = BackgroundTasks::default();
        // Its second half lies outside of the area.
        background_tasks.add(form(0, LARGE / 2, LARGE));
        let ended = (0..100).find_map(|_| background_tasks.step(&mut memory)).unwrap();
        assert!(ended.1.is_err() && background_tasks.is_empty());
        assert_eq!(memory.registry.entries().count(), 0, "a segment without memory is written down");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
