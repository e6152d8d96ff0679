//! Shape of the ring, and the slot of an interval.

use super::config_error::ConfigError;
use crate::limits::{
    LOG_BYTES_MAX, LOG_SLOTS_MAX, LOG_SLOTS_MIN, RANGE_BYTES, RECORD_BYTES_MAX, RECORD_BYTES_MIN, RECORD_HEADER_BYTES,
};

/// Shape of the log ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogShape {
    /// Number of records.
    pub slots: u32,
    /// Bytes of a record.
    pub record_bytes: u32,
}

impl Default for LogShape {
    /// One MiB: 1024 records with up to 126 ranges of pages.
    fn default() -> Self {
        Self { slots: 1024, record_bytes: 1024 }
    }
}

impl LogShape {
    /// Returns the bytes of the ring.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.slots as u64 * self.record_bytes as u64
    }

    /// Returns the number of page ranges in a record.
    #[must_use]
    pub const fn ranges_max(self) -> usize {
        (self.record_bytes as usize - RECORD_HEADER_BYTES) / RANGE_BYTES
    }

    /// Returns the offset of the record of an interval.
    #[must_use]
    pub const fn offset(self, interval: u32) -> u64 {
        (interval % self.slots) as u64 * self.record_bytes as u64
    }

    /// Returns the one or two stretches of the ring with the records of the intervals behind `known` up to `last`: offset
    /// and bytes of each. Older records than the ring has are left out.
    pub(crate) fn stretches(self, known: u32, last: u32) -> impl Iterator<Item = (u64, u32)> {
        let first = known.max(last.saturating_sub(self.slots)) + 1;
        let records = last + 1 - first;
        let to_end = (self.slots - first % self.slots).min(records);
        let bytes = move |records: u32| records * self.record_bytes;
        [(self.offset(first), bytes(to_end)), (0, bytes(records - to_end))].into_iter().filter(|(_, bytes)| *bytes > 0)
    }

    pub(crate) fn check(self) -> Result<(), ConfigError> {
        if !(LOG_SLOTS_MIN..=LOG_SLOTS_MAX).contains(&self.slots) {
            return Err(ConfigError("records of the log", self.slots.into()));
        }
        let bytes = RECORD_BYTES_MIN..=RECORD_BYTES_MAX;
        if !bytes.contains(&self.record_bytes) || !self.record_bytes.is_multiple_of(RANGE_BYTES as u32) {
            return Err(ConfigError("bytes of a record", self.record_bytes.into()));
        }
        if self.bytes() > LOG_BYTES_MAX {
            return Err(ConfigError("bytes of the log", self.bytes()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::INTERVAL_MAX;

    // If this failed, the length of a read of the log would overflow.
    #[test]
    fn ring_is_bounded_and_the_last_intervals_can_be_read() {
        let shape = |slots, record_bytes| LogShape { slots, record_bytes };
        assert_eq!(shape(1 << 16, 1 << 16).check(), Err(ConfigError("bytes of the log", 1 << 32)));
        let greatest = shape(1 << 16, 1 << 10);
        assert_eq!(greatest.check(), Ok(()));
        let bytes: u64 = greatest.stretches(0, INTERVAL_MAX).map(|(_, bytes)| u64::from(bytes)).sum();
        assert_eq!(bytes, greatest.bytes());
    }

    // If this failed, a reader would miss a record, or read the record of another interval.
    #[test]
    fn stretches_cover_the_missing_intervals_and_wrap_once() {
        let shape = LogShape { slots: 4, record_bytes: 24 };
        let of = |known, last| shape.stretches(known, last).collect::<Vec<_>>();
        assert_eq!(of(0, 2), [(24, 48)]);
        assert_eq!(of(2, 5), [(72, 24), (0, 48)]);
        assert_eq!(of(0, 9), [(48, 48), (0, 48)], "only the last four are there");
        assert_eq!(of(3, 3), []);
    }
}
