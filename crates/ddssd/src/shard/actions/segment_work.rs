//! Creation, move and clearing of segments: at once, or in slices if it takes long.

use super::background::{BackgroundTask, BackgroundTasks};
use crate::peers::links::Links;
use crate::status::Recorder;
use crate::storage::memory::NodeMemory;
use crate::storage::registered_areas::{RegisteredAreas, format_with_cause};
use ddss_core::limits::PAGE_BYTES;
use ddss_core::status::Counter;
use ddss_core::{Header, Record, SegmentId, area_of};
use ddss_engine::{Engine, Now};
use ddss_ipc::MemoryError;

/// Parts of a shard that change which memory belongs to which segment.
pub(crate) struct SegmentWork<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) memory: &'a mut NodeMemory,
    pub(crate) areas: &'a mut RegisteredAreas,
    pub(crate) links: &'a mut Links,
    pub(crate) tasks: &'a mut BackgroundTasks,
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) now: Now,
}

impl SegmentWork<'_> {
    /// Publishes the area of a segment.
    fn publish_area_of(&mut self, record: &Record) -> Result<(), String> {
        let (audience, storage) = (record.permissions.audience(), record.spec.storage);
        self.areas.publish(self.memory, self.links.fabric_mut(), area_of(record.at), audience, storage)
    }

    pub(crate) fn format(&mut self, record: &Record, header: &Header, bytes: u64) {
        let known = self.publish_area_of(record);
        let is_known = known.is_ok();
        if is_known && bytes > BackgroundTasks::SLICE_BYTES {
            return self.tasks.add(BackgroundTask::Form { record: *record, header: *header, bytes });
        }
        let format = |()| self.memory.format(record, header, bytes).map_err(|error| format_with_cause(&error));
        let made = known.and_then(format);
        if is_known && made.is_err() && self.tasks.give_undo_back() {
            // The undo logs may have the memory.
            return self.tasks.add(BackgroundTask::Form { record: *record, header: *header, bytes });
        }
        self.finish_format(record, bytes, made);
    }

    pub(crate) fn finish_format(&mut self, record: &Record, bytes: u64, made: Result<(), String>) {
        if let Err(error) = &made {
            tracing::warn!(name = record.name.as_str(), bytes, error, "no memory for a segment");
        }
        self.recorder.add(Counter::SegmentsMade, made.is_ok().into());
        self.engine.on_formatted(self.now, record.segment, made.is_ok());
    }

    pub(crate) fn relocate(&mut self, record: &Record, from: u64, bytes: u64) {
        let known = self.publish_area_of(record);
        // A segment with replicas may change its role during the move, so the move completes at once.
        if known.is_ok() && bytes > BackgroundTasks::SLICE_BYTES && record.spec.copies == 1 {
            return self.tasks.add(BackgroundTask::Move { record: *record, from, bytes });
        }
        let relocate = |()| self.memory.relocate(record, from, 0, bytes).map_err(|error| format_with_cause(&error));
        let moved = known.and_then(relocate);
        self.finish_move(record, bytes, moved);
    }

    pub(crate) fn finish_move(&mut self, record: &Record, bytes: u64, moved: Result<(), String>) {
        if let Err(error) = &moved {
            tracing::warn!(name = record.name.as_str(), bytes, error, "no memory to move a segment into");
        }
        self.engine.on_moved(self.now, record.segment, moved.is_ok());
    }

    pub(crate) fn clear(&mut self, at: u64, bytes: u64) {
        if bytes > BackgroundTasks::SLICE_BYTES {
            return self.tasks.add(BackgroundTask::Clear { at, bytes });
        }
        let ended = self.memory.clear(at, bytes);
        self.finish_clear(at, bytes, ended);
    }

    pub(crate) fn finish_clear(&mut self, at: u64, bytes: u64, ended: Result<(), MemoryError>) {
        match ended {
            Ok(()) => {
                for page in self.engine.on_cleared(at, bytes) {
                    if let Err(error) = self.memory.clear(page, PAGE_BYTES as u64) {
                        let error = format_with_cause(&error);
                        tracing::error!(page, error, "cannot give a page back: it stays with the daemon");
                    }
                }
            }
            // Losing the memory for this run is better than leaking its bytes to the next segment.
            Err(error) => {
                let error = format_with_cause(&error);
                tracing::error!(at, bytes, error, "cannot clear memory: it stays unused");
            }
        }
    }

    /// Does one slice of the work that waits. Returns true if a task has ended.
    pub(crate) fn step(&mut self) -> bool {
        let Some((task, ended)) = self.tasks.step(self.memory) else { return false };
        match task {
            BackgroundTask::Form { record, bytes, .. } => {
                self.finish_format(&record, bytes, ended.map_err(|error| format_with_cause(&error)));
            }
            BackgroundTask::Move { record, bytes, .. } => {
                self.finish_move(&record, bytes, ended.map_err(|error| format_with_cause(&error)));
            }
            BackgroundTask::Clear { at, bytes } => self.finish_clear(at, bytes, ended),
            BackgroundTask::Commit { segment, .. } => {
                self.engine.on_large_committed(self.now, segment, has_memory(segment, ended));
            }
            BackgroundTask::ReserveUndo { segment, timestamp, .. } => {
                self.engine.on_undo_reserved(self.now, segment, timestamp, has_memory(segment, ended));
            }
            BackgroundTask::Sweep { segment } => self.engine.sweep_slice(self.now, segment),
            BackgroundTask::ClearUndo { .. } => {
                if let Err(error) = ended {
                    let error = format_with_cause(&error);
                    tracing::error!(error, "cannot clear memory: it stays unused");
                }
            }
        }
        true
    }
}

/// Returns true if the undo log of a large put got its memory.
fn has_memory(segment: SegmentId, reserved: Result<(), MemoryError>) -> bool {
    if let Err(error) = &reserved {
        let error = format_with_cause(error);
        tracing::warn!(%segment, error, "no memory to undo a large put");
    }
    reserved.is_ok()
}
