//! Rows of a unit queue. Each is checked when it is read: any client with access may have written it.

use ddss_river_core::codec::{decode_row, encode_row};
use ddss_river_core::limits::UNIT_ROW_BYTES;
use ddss_river_core::{UnitRow, UnitState};
use std::fmt;

/// Row that describes the queue. Its lock is held while units are added.
pub(super) const STATE: u64 = 0;
/// Row with the cursor.
pub(super) const CURSOR: u64 = 1;
/// Row of unit 0.
pub(super) const FIRST_UNIT: u64 = 2;
/// Bytes of a unit's row in front of the unit's.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of a header that each change of the unit's state writes.
pub(super) const STATE_BYTES: usize = 24;
/// Bytes of the description of a queue.
const QUEUE_BYTES: usize = 32;

const FORMAT: [u8; 4] = *b"UNT1";

/// Settings of a queue, which its first process chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    pub(super) unit_bytes_max: u32,
    pub(super) result_bytes_max: u32,
    pub(super) lease_ms: u32,
}

/// Description of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueRow {
    pub(super) settings: Settings,
    /// Units of the queue. Rows behind them may have been written by a process that died before it counted them.
    pub(super) count: u32,
    /// Times that failed units were opened again.
    pub(super) reopened: u32,
    /// Fencing token of the last change.
    pub(super) token: u64,
}

impl QueueRow {
    pub(super) const fn new(settings: Settings) -> Self {
        Self { settings, count: 0, reopened: 0, token: 0 }
    }

    pub(super) fn encode(&self) -> [u8; QUEUE_BYTES] {
        let Settings { unit_bytes_max, result_bytes_max, lease_ms } = self.settings;
        let mut row = [0; QUEUE_BYTES];
        row[..4].copy_from_slice(&FORMAT);
        let words = [unit_bytes_max, result_bytes_max, lease_ms, self.count, self.reopened];
        for (part, value) in row[4..24].chunks_exact_mut(4).zip(words) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        row[24..].copy_from_slice(&self.token.to_le_bytes());
        row
    }

    /// Returns true if row 0, as it was read later, has this change. `first` is the number of the first unit that the change
    /// adds, and `token` that of the process that added the counted unit with this number. Units that were not counted are
    /// overwritten by the next ones.
    pub(super) const fn is_part_of(&self, later: &Self, first: u32, token: u64) -> bool {
        later.token == self.token || (self.count > first && later.count > first && token == self.token)
    }

    /// Decodes row 0 of a table with rows for so many units. `None` if it is none of this release.
    pub(super) fn decode(row: &[u8], capacity: u64) -> Option<Self> {
        let (format, row) = row.split_first_chunk::<4>()?;
        let (words, row) = row.split_first_chunk::<20>()?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| words[4 * at + byte]));
        let settings = Settings { unit_bytes_max: word(0), result_bytes_max: word(1), lease_ms: word(2) };
        let token = u64::from_le_bytes(*row.first_chunk::<8>()?);
        let is_ours = *format == FORMAT && settings.check().is_ok() && u64::from(word(3)) <= capacity;
        is_ours.then_some(Self { settings, count: word(3), reopened: word(4), token })
    }
}

/// Process that wrote a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writer {
    pub(super) process: u32,
    pub(super) node: u16,
}

/// Returns the bytes that change the state of a unit.
pub(super) fn encode_state(row: &UnitRow, writer: Writer) -> [u8; STATE_BYTES] {
    let mut bytes = [0; STATE_BYTES];
    bytes[..UNIT_ROW_BYTES].copy_from_slice(&encode_row(row));
    bytes[16..20].copy_from_slice(&writer.process.to_le_bytes());
    bytes[20..22].copy_from_slice(&writer.node.to_le_bytes());
    bytes
}

/// Returns the row of a new unit, which a process adds under a lock with this token.
pub(super) fn encode_unit(unit: &[u8], token: u64, writer: Writer) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + unit.len()];
    bytes[..STATE_BYTES].copy_from_slice(&encode_state(&UnitRow::NEW, writer));
    bytes[24..32].copy_from_slice(&token.to_le_bytes());
    bytes[32..36].copy_from_slice(&(unit.len() as u32).to_le_bytes());
    bytes[HEADER_BYTES..].copy_from_slice(unit);
    bytes
}

/// A unit's row, as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StoredUnit {
    pub(super) row: UnitRow,
    pub(super) writer: Writer,
    /// Fencing token of the process that added it.
    pub(super) token: u64,
    pub(super) unit: Vec<u8>,
    pub(super) result: Vec<u8>,
}

impl StoredUnit {
    /// Decodes a row. `None` if no process of this release has written it.
    pub(super) fn decode(bytes: &[u8], settings: &Settings) -> Option<Self> {
        let (header, bytes) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let row = decode_row(&header[..UNIT_ROW_BYTES]).ok()?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let writer = Writer { process: word(16), node: u16::from_le_bytes([header[20], header[21]]) };
        let token = u64::from(word(24)) | u64::from(word(28)) << 32;
        let length = word(32);
        if length > settings.unit_bytes_max || u32::from(row.result_bytes) > settings.result_bytes_max {
            return None;
        }
        let unit = bytes.get(..length as usize)?.to_vec();
        let result = bytes.get(settings.result_offset() - HEADER_BYTES..)?.get(..row.result_bytes.into())?.to_vec();
        Some(Self { row, writer, token, unit, result })
    }
}

impl Settings {
    /// Returns the offset of a result in its row.
    pub(super) const fn result_offset(&self) -> usize {
        HEADER_BYTES + self.unit_bytes_max.next_multiple_of(8) as usize
    }
}

/// State of a unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnitStatus {
    /// No worker has it.
    Open,
    /// A worker has claimed it.
    Claimed,
    /// It is done.
    Done,
    /// Three workers died with it or could not do it: it is kept aside until it is opened [again](crate::UnitQueue::retry).
    Failed,
}

impl UnitStatus {
    /// Returns its name, as commands show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Claimed => "claimed",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for UnitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A unit, as [`UnitQueue::list`](crate::UnitQueue::list) shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UnitInfo {
    /// Number, from 0 on in the order in which units were added.
    pub number: u32,
    /// State.
    pub status: UnitStatus,
    /// Claims so far.
    pub attempts: u16,
    /// Workers that died with it or could not do it.
    pub strikes: u8,
    /// Node of the process that changed it last.
    pub node: u16,
    /// Process that changed it last.
    pub process: u32,
    /// Bytes of the unit.
    pub bytes: Vec<u8>,
    /// Its result, or the reason of its last failure.
    pub result: Vec<u8>,
}

impl UnitInfo {
    pub(super) fn new(number: u32, stored: StoredUnit) -> Self {
        let StoredUnit { row, writer, unit, result, .. } = stored;
        let status = match row.state {
            UnitState::Open => UnitStatus::Open,
            UnitState::Claimed(_) => UnitStatus::Claimed,
            UnitState::Done(_) => UnitStatus::Done,
            UnitState::Failed => UnitStatus::Failed,
        };
        let (attempts, strikes) = (row.claims, row.strikes);
        Self { number, status, attempts, strikes, node: writer.node, process: writer.process, bytes: unit, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { unit_bytes_max: 5, result_bytes_max: 4, lease_ms: 1000 };

    // If this failed, a process whose answer is lost would add its units again, once another process has added some.
    #[test]
    fn change_is_found_behind_later_ones() {
        let row = |count, token| QueueRow { count, token, ..QueueRow::new(SETTINGS) };
        // Units 3 and 4 were added under token 7.
        let ours = row(5, 7);
        assert!(ours.is_part_of(&row(5, 7), 3, 7), "no later change");
        assert!(ours.is_part_of(&row(6, 8), 3, 7), "another process has added unit 5");
        assert!(ours.is_part_of(&row(5, 8), 3, 7), "another process has opened failed units");
        assert!(!ours.is_part_of(&row(4, 8), 3, 8), "another process has unit 3");
        assert!(!ours.is_part_of(&row(3, 8), 3, 0), "nothing was counted");
        // A change without units leaves no trace.
        assert!(!row(3, 7).is_part_of(&row(4, 8), 3, 8));
    }

    // If this failed, a process of another release, or a damaged row, could end a worker.
    #[test]
    fn rows_round_trip_and_foreign_rows_are_refused() {
        let queue = QueueRow { count: 3, reopened: 1, token: 1 << 40, ..QueueRow::new(SETTINGS) };
        assert_eq!(QueueRow::decode(&queue.encode(), 3), Some(queue));
        assert_eq!(QueueRow::decode(&queue.encode(), 2), None, "more units than rows");
        assert_eq!(QueueRow::decode(&[0; 64], 3), None);
        let writer = Writer { process: 77, node: 3 };
        let mut row = encode_unit(b"abc", 1 << 40, writer);
        assert_eq!(StoredUnit::decode(&row, &SETTINGS), None, "a short row");
        row.resize(SETTINGS.row_bytes() as usize, 0);
        let stored = StoredUnit::decode(&row, &SETTINGS).unwrap();
        assert_eq!((stored.row, stored.writer, stored.token), (UnitRow::NEW, writer, 1 << 40));
        assert_eq!((&stored.unit[..], &stored.result[..]), (&b"abc"[..], &b""[..]));
        let state = encode_state(&UnitRow { result_bytes: 4, ..UnitRow::NEW }, writer);
        row[..STATE_BYTES].copy_from_slice(&state);
        row[SETTINGS.result_offset()..][..4].copy_from_slice(b"good");
        assert_eq!(StoredUnit::decode(&row, &SETTINGS).unwrap().result, b"good");
        for (at, value) in [(0, 9), (32, 6), (8, 5)] {
            let mut foreign = row.clone();
            foreign[at] = value;
            assert_eq!(StoredUnit::decode(&foreign, &SETTINGS), None, "byte {at}");
        }
    }
}
