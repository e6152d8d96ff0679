//! Long-running work on segment memory, cut into slices.
//!
//! Reserving, moving or clearing a large segment takes long. The progress thread does one slice a turn, so that no
//! client's call waits for a whole gigabyte.

use crate::storage::large_undo::LargeCommit;
use crate::storage::memory::NodeMemory;
use ddss_core::limits::PAGE_BYTES;
use ddss_core::{Header, Record, SegmentId, Timestamp};
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
    /// Reserve the memory of the undo log for a later commit to the segment at a place.
    ReserveUndo { segment: SegmentId, at: u64, bytes: u64, timestamp: Timestamp },
    /// Reserve the memory of the undo log unless that is done, then replace bytes of a segment.
    Commit { segment: SegmentId, commit: LargeCommit },
    /// Do a slice of the sweep of a map; the engine decides what it is.
    Sweep { segment: SegmentId },
    /// Give the memory of the undo logs back, unless a commit needs it again.
    ClearUndo { bytes: u64 },
}

/// All unfinished tasks; they take turns, one slice each.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks {
    /// Each task with the number of finished bytes.
    waiting: VecDeque<(BackgroundTask, u64)>,
    /// Consecutive rounds without other work.
    idle_rounds: u32,
    /// True from the first slice of a large commit to the last one.
    is_committing: bool,
    /// Large commits that wait or run, and reservations for later ones. Each uses the first bytes of an undo log.
    undo_users: usize,
    /// Memory of an undo log that was reserved since the logs were empty.
    undo_bytes: u64,
    /// Time at which the memory of the undo logs is given back, if no commit needs it again.
    keeps_undo_until: Option<Instant>,
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
    /// Time for which the undo logs keep their memory after a commit: the kernel takes a fifth of a large put for fresh pages.
    const UNDO_KEPT: Duration = Duration::from_secs(1);
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

    /// Adds a large commit.
    pub(crate) fn commit(&mut self, segment: SegmentId, commit: LargeCommit, has_undo: bool) {
        if !has_undo {
            self.use_undo(commit.bytes);
        }
        let reserved = if has_undo { commit.bytes } else { 0 };
        self.waiting.push_back((BackgroundTask::Commit { segment, commit }, reserved));
    }

    /// Adds the reservation of memory for a later commit.
    pub(crate) fn reserve_undo(&mut self, segment: SegmentId, at: u64, bytes: u64, timestamp: Timestamp) {
        self.use_undo(bytes);
        self.add(BackgroundTask::ReserveUndo { segment, at, bytes, timestamp });
    }

    fn use_undo(&mut self, bytes: u64) {
        self.undo_users += 1;
        self.keeps_undo_until = None;
        self.undo_bytes = self.undo_bytes.max(bytes);
    }

    /// Ends a commit, or a reservation whose commit will not come. Some time after the last one the memory is given back.
    pub(crate) fn release_undo(&mut self) {
        self.undo_users = self.undo_users.checked_sub(1).expect("each user of the undo logs ends once");
        if self.undo_users == 0 {
            self.keeps_undo_until = Some(Instant::now() + Self::UNDO_KEPT);
        }
    }

    /// Gives the memory of the undo logs back if no commit has needed it for long enough.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.keeps_undo_until.is_some_and(|end| end <= now) {
            self.give_undo_back();
        }
    }

    /// Gives the memory of the undo logs back unless a commit uses it. Returns true until that is done.
    pub(crate) fn give_undo_back(&mut self) -> bool {
        if self.keeps_undo_until.take().is_some() {
            let bytes = std::mem::take(&mut self.undo_bytes);
            self.add(BackgroundTask::ClearUndo { bytes });
        }
        self.undo_users == 0 && self.waiting.iter().any(|(task, _)| matches!(task, BackgroundTask::ClearUndo { .. }))
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
        let (at, bytes) = match task {
            BackgroundTask::Form { record, bytes, .. } | BackgroundTask::Move { record, bytes, .. } => {
                (record.at, bytes)
            }
            BackgroundTask::Clear { at, bytes } => (at, bytes),
            BackgroundTask::Commit { commit, .. } => return self.step_commit(memory, (task, done), commit),
            BackgroundTask::ReserveUndo { at, bytes, .. } => {
                let ended = self.step_undo((task, done), (bytes, bytes), |slice| memory.reserve_undo(at, done, slice));
                if ended.as_ref().is_some_and(|(_, ended)| ended.is_err()) {
                    self.release_undo();
                }
                return ended;
            }
            BackgroundTask::Sweep { .. } => {
                self.next_due = Some(Instant::now() + Self::REST);
                return Some((task, Ok(())));
            }
            BackgroundTask::ClearUndo { bytes } if self.undo_users > 0 => {
                self.undo_bytes = self.undo_bytes.max(bytes);
                return None;
            }
            BackgroundTask::ClearUndo { bytes } => {
                return self.step_undo((task, done), (bytes, bytes), |slice| memory.clear_undo(done, slice));
            }
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
            // The undo logs may have the memory.
            if self.give_undo_back() {
                self.waiting.push_back((task, done));
                return None;
            }
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

    /// Does one slice of a large commit: first of its reservation, then of its bytes. One commit at a time writes to the
    /// log.
    fn step_commit(
        &mut self,
        memory: &mut NodeMemory,
        (task, done): (BackgroundTask, u64),
        commit: LargeCommit,
    ) -> Option<(BackgroundTask, Result<(), MemoryError>)> {
        let bytes = commit.bytes;
        if done < bytes {
            let reserve = |slice| memory.reserve_undo(commit.at, done, slice);
            let ended = self.step_undo((task, done), (bytes, 2 * bytes), reserve);
            if ended.is_some() {
                self.release_undo();
            }
            return ended;
        }
        if done == bytes && std::mem::replace(&mut self.is_committing, true) {
            self.waiting.push_back((task, done));
            return None;
        }
        let ended = self.step_undo((task, done), (2 * bytes, 2 * bytes), |slice| {
            memory.write_slice(&commit, done - bytes, slice);
            Ok(())
        });
        if ended.is_some() {
            self.is_committing = false;
            self.release_undo();
        }
        ended
    }

    /// Does one slice of a phase that ends after `end` bytes, of a task that ends after `total` bytes.
    fn step_undo(
        &mut self,
        (task, done): (BackgroundTask, u64),
        (end, total): (u64, u64),
        step: impl FnOnce(u64) -> Result<(), MemoryError>,
    ) -> Option<(BackgroundTask, Result<(), MemoryError>)> {
        let slice = Self::COMMIT_SLICE_BYTES.min(end - done);
        self.next_due = None;
        let ended = step(slice);
        if ended.is_ok() && done + slice < total {
            self.waiting.push_back((task, done + slice));
            return None;
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
            epoch: 0,
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

    /// Takes steps until a task ends; returns whether it was done.
    fn end_next(tasks: &mut BackgroundTasks, memory: &mut NodeMemory) -> (BackgroundTask, bool) {
        let (task, ended) = (0..1000).find_map(|_| tasks.step(memory)).expect("each task ends");
        (task, ended.is_ok())
    }

    /// Lets the time pass for which the undo logs keep their memory.
    fn give_back(tasks: &mut BackgroundTasks, memory: &mut NodeMemory) -> BackgroundTask {
        let now = Instant::now();
        tasks.tick(now);
        assert!(tasks.is_empty(), "too early");
        tasks.tick(now + BackgroundTasks::UNDO_KEPT);
        let (task, is_done) = end_next(tasks, memory);
        assert!(is_done && tasks.is_empty());
        tasks.tick(now + 2 * BackgroundTasks::UNDO_KEPT);
        assert!(tasks.is_empty(), "once");
        task
    }

    #[test]
    fn segment_without_memory_gets_that_of_the_undo_logs() {
        // If this broke, an allocation after a large put would fail where it used to succeed.
        const BYTES: u64 = 3 * BackgroundTasks::COMMIT_SLICE_BYTES;
        let folder = std::env::temp_dir().join(format!("ddssd-background_tasks-scarce-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let mut tasks = BackgroundTasks::default();
        tasks.reserve_undo(SegmentId::new(NodeId(1), 0, 1), 1 << 48, BYTES, Timestamp(1));
        assert!(end_next(&mut tasks, &mut memory).1);
        tasks.release_undo();
        // No memory is ever found behind the end of an area.
        tasks.add(form(0, 1 << 40, LARGE));
        assert_eq!(
            end_next(&mut tasks, &mut memory),
            (BackgroundTask::ClearUndo { bytes: BYTES }, true),
            "it is tried again"
        );
        assert!(!end_next(&mut tasks, &mut memory).1 && tasks.is_empty(), "and fails for good");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn memory_of_the_undo_log_is_held_from_its_reservation_to_the_end_of_the_commit() {
        // If this broke, a home would find no memory for a large put that its replica has committed.
        const BYTES: u64 = 3 * BackgroundTasks::COMMIT_SLICE_BYTES / 2;
        let folder = std::env::temp_dir().join(format!("ddssd-background_tasks-undo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), 4 * BYTES).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let log = folder.join(crate::storage::segment_folder::LARGE_UNDO_NAME);
        let (segment, at, timestamp) = (SegmentId::new(NodeId(1), 0, 1), 1 << 48, Timestamp(1));
        let commit = |bytes, version| {
            let version = ddss_core::Version(version);
            LargeCommit { at, offset: 0, bytes, from: (1 << 48) + 2 * BYTES, version, timestamp: 1 }
        };
        let mut tasks = BackgroundTasks::default();
        // A reservation that fails holds nothing.
        std::fs::create_dir(&log).unwrap();
        tasks.reserve_undo(segment, at, 100, timestamp);
        assert!(!end_next(&mut tasks, &mut memory).1);
        assert_eq!(give_back(&mut tasks, &mut memory), BackgroundTask::ClearUndo { bytes: 100 });
        std::fs::remove_dir(&log).unwrap();
        tasks.reserve_undo(segment, at, BYTES, timestamp);
        let reserved = BackgroundTask::ReserveUndo { segment, at, bytes: BYTES, timestamp };
        assert_eq!(end_next(&mut tasks, &mut memory), (reserved, true));
        // Another commit ends meanwhile, and so does a reservation whose commit does not come.
        tasks.commit(segment, commit(100, 1), false);
        assert!(end_next(&mut tasks, &mut memory).1 && tasks.is_empty());
        tasks.reserve_undo(segment, at, 100, timestamp);
        assert!(end_next(&mut tasks, &mut memory).1);
        tasks.release_undo();
        assert!(tasks.is_empty(), "nothing is given back");
        tasks.commit(segment, commit(BYTES, 2), true);
        let steps = (1..).find(|_| tasks.step(&mut memory).is_some()).unwrap();
        assert_eq!(steps, 2, "it writes two slices, and reserves none");
        assert_eq!(give_back(&mut tasks, &mut memory), BackgroundTask::ClearUndo { bytes: BYTES });
        assert!(tasks.is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn memory_that_a_new_commit_needs_is_not_given_back() {
        // If this broke, the memory of a commit that runs would be given back by the end of the one before.
        const BYTES: u64 = 3 * BackgroundTasks::COMMIT_SLICE_BYTES;
        let folder = std::env::temp_dir().join(format!("ddssd-background_tasks-reused-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut memory = NodeMemory::open(&folder, NodeId(1), LARGE).unwrap();
        memory.open_area(1, Storage::Memory).unwrap();
        let (segment, at, timestamp) = (SegmentId::new(NodeId(1), 0, 1), 1 << 48, Timestamp(1));
        let mut tasks = BackgroundTasks::default();
        tasks.reserve_undo(segment, at, BYTES, timestamp);
        assert!(end_next(&mut tasks, &mut memory).1);
        tasks.release_undo();
        assert!(tasks.give_undo_back() && tasks.step(&mut memory).is_none(), "one slice is given back");
        tasks.reserve_undo(segment, at, 100, timestamp);
        assert!(end_next(&mut tasks, &mut memory).1 && tasks.is_empty());
        tasks.release_undo();
        assert_eq!(give_back(&mut tasks, &mut memory), BackgroundTask::ClearUndo { bytes: BYTES }, "all of it");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
