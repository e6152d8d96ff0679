//! Storage of segments: restoration after a restart, memory in files, quotas.

use crate::config::Now;
use crate::engine::Engine;
use crate::state::segments::quotas::Quotas;
use ddss_core::{Failure, Record, SegmentId, Storage, Timestamp, Version};

impl Engine {
    /// Sets the bytes that segments in files may take here; the default is none.
    pub fn set_file_bytes(&mut self, bytes: u64) {
        self.segments.set_file_bytes(bytes);
    }

    /// Sets how much of the pool new segments may fill; the default is all of it. Existing ones stay.
    pub fn set_pool_limit(&mut self, bytes: u64) {
        self.segments.set_pool_limit(bytes);
    }

    /// Returns the bytes that are free for segments in files.
    pub fn file_bytes_free(&self) -> u64 {
        self.segments.free_bytes(Storage::File)
    }

    /// Replaces all limits. Existing segments stay.
    pub fn set_quotas(&mut self, quotas: Quotas) {
        self.segments.accounts.set_quotas(quotas);
    }

    /// Restores a segment of the daemon's previous run. An error means that the record is invalid.
    pub fn restore(&mut self, record: &Record, version: Version, timestamp: Timestamp) -> Result<(), Failure> {
        self.segments.restore(record, version, timestamp)?;
        self.restore_clock(timestamp);
        if record.spec.copies > 1 {
            self.replicas.add_unconfirmed(record.known_as);
        } else {
            self.segments.note_unknown_expiry(Now::default(), record.segment);
        }
        Ok(())
    }

    /// Restores the last id of a free slot.
    pub fn restore_free(&mut self, last: SegmentId) {
        self.segments.restore_free(last);
    }

    /// Advances the clock so that no timestamp or token up to `floor` is given again.
    pub fn restore_clock(&mut self, floor: Timestamp) {
        self.clock.hear(floor, floor.micros());
    }

    /// Returns the newest timestamp that this node gave or received.
    pub fn last_timestamp(&self) -> Timestamp {
        self.clock.last()
    }
}
