//! The table of a unit queue. Each call is atomic.

use ddss_river_core::codec::{decode_row, encode_row};
use ddss_river_core::limits::UNIT_ROW_BYTES;
use ddss_river_core::{ListId, PutResult, UnitAction, UnitEvent, UnitRef, UnitRow, UnitState, WorkerId};
use std::collections::BTreeMap;

/// Lease of a claim.
pub(crate) const LEASE_US: u64 = 3_000;
/// Version of a row that no worker has claimed.
pub(crate) const FIRST_VERSION: u64 = 1;

/// A row with its version, and the time of its last change.
#[derive(Clone, Copy)]
struct TableRow {
    bytes: [u8; UNIT_ROW_BYTES],
    version: u64,
    written_us: u64,
}

/// The table of a unit queue.
pub(crate) struct Table {
    cursors: Vec<u64>,
    /// Units of each list.
    pub(crate) counts: Vec<u32>,
    /// Times that failed units were opened again.
    pub(crate) reopened: u32,
    rows: BTreeMap<UnitRef, TableRow>,
    /// Times in which the table was away for so long that no worker counts them as a part of a lease.
    outages: Vec<(u64, u64)>,
    pub(crate) violations: Vec<String>,
}

impl Table {
    pub(crate) fn new(counts: &[u32]) -> Self {
        let lists = vec![0; counts.len()];
        let (outages, violations) = (Vec::new(), Vec::new());
        let mut table = Self {
            cursors: vec![0; counts.len()],
            counts: lists,
            reopened: 0,
            rows: BTreeMap::new(),
            outages,
            violations,
        };
        for (list, count) in counts.iter().enumerate() {
            table.grow(ListId(list as u16), *count);
        }
        table
    }

    /// Adds units to a list.
    pub(crate) fn grow(&mut self, list: ListId, units: u32) {
        let count = &mut self.counts[usize::from(list.0)];
        let stored = TableRow { bytes: encode_row(&UnitRow::NEW), version: FIRST_VERSION, written_us: 0 };
        self.rows.extend((*count..*count + units).map(|number| (UnitRef { list, number }, stored)));
        *count += units;
    }

    /// Opens failed units again.
    pub(crate) fn reopen(&mut self) {
        for stored in self.rows.values_mut() {
            let row = decode_row(&stored.bytes).expect("a row of an honest member");
            if row.state == UnitState::Failed {
                stored.bytes = encode_row(&UnitRow { claims: row.claims, ..UnitRow::NEW });
                stored.version += 1;
            }
        }
        self.reopened += 1;
    }

    /// Notes that the table is away.
    pub(crate) fn add_outage(&mut self, from_us: u64, to_us: u64) {
        if to_us - from_us > LEASE_US / 2 {
            self.outages.push((from_us, to_us));
        }
    }

    /// Returns a row and its version.
    pub(crate) fn row(&self, unit: UnitRef) -> (UnitRow, u64) {
        let stored = &self.rows[&unit];
        (decode_row(&stored.bytes).expect("a row of an honest member"), stored.version)
    }

    /// Returns the first of these units that is neither done nor failed.
    pub(crate) fn first_open(&self, counts: &[u32]) -> Option<UnitRef> {
        let is_known = |unit: &UnitRef| unit.number < counts[usize::from(unit.list.0)];
        self.rows.keys().copied().filter(is_known).find(|unit| !self.row(*unit).0.is_settled())
    }

    /// Returns the number of units that have failed.
    pub(crate) fn failed(&self) -> u64 {
        self.rows.keys().filter(|unit| self.row(**unit).0.state == UnitState::Failed).count() as u64
    }

    /// Executes a call of a worker.
    pub(crate) fn execute(&mut self, by: WorkerId, call: UnitAction, now_us: u64) -> UnitEvent {
        match call {
            UnitAction::Add(list) => {
                let cursor = &mut self.cursors[usize::from(list.0)];
                *cursor += 1;
                UnitEvent::Added(Some(*cursor - 1))
            }
            UnitAction::Get(unit) => {
                let (row, version) = self.row(unit);
                UnitEvent::Got(row, version)
            }
            UnitAction::Put { unit, row, expected } => UnitEvent::Put(self.put(by, unit, &row, expected, now_us)),
            other => unreachable!("{other:?} is no call"),
        }
    }

    /// Writes a row if it has this version.
    pub(crate) fn put(&mut self, by: WorkerId, unit: UnitRef, row: &UnitRow, expected: u64, now_us: u64) -> PutResult {
        let (before, version) = self.row(unit);
        if version != expected {
            return PutResult::Conflict;
        }
        self.judge(by, unit, &before, row, now_us);
        let stored = TableRow { bytes: encode_row(row), version: version + 1, written_us: now_us };
        self.rows.insert(unit, stored);
        PutResult::Done(version + 1)
    }

    /// Returns the time for which a row has not changed although its worker could have renewed it.
    fn unchanged_us(&self, unit: UnitRef, now_us: u64) -> u64 {
        let written_us = self.rows[&unit].written_us;
        let away = |(from, to): &(u64, u64)| (*to).min(now_us).saturating_sub((*from).max(written_us));
        now_us - written_us - self.outages.iter().map(away).sum::<u64>()
    }

    /// Judges a change of a row by a worker: the row of another one changes hands only when that has not renewed it for a lease.
    fn judge(&mut self, by: WorkerId, unit: UnitRef, before: &UnitRow, after: &UnitRow, now_us: u64) {
        let has_expired = self.unchanged_us(unit, now_us) >= LEASE_US;
        let (is_claim, has_strike) = (after.claims == before.claims + 1, after.strikes == before.strikes + 1);
        let is_permitted = match (before.state, after.state) {
            (UnitState::Open, UnitState::Claimed(one)) => one == by && is_claim,
            (UnitState::Claimed(one), UnitState::Claimed(other)) if one == other => one == by && after == before,
            (UnitState::Claimed(_), UnitState::Claimed(other)) => other == by && has_expired && is_claim && has_strike,
            (UnitState::Claimed(one), UnitState::Done(other)) => one == by && other == by && !is_claim,
            (UnitState::Claimed(one), UnitState::Open) => one == by && (has_strike || after.strikes == before.strikes),
            (UnitState::Claimed(one), UnitState::Failed) => {
                (one == by || has_expired) && has_strike && after.strikes == 3
            }
            _ => false,
        };
        if !is_permitted {
            let age_us = self.unchanged_us(unit, now_us);
            self.violations.push(format!("fenced: {unit:?} from {before:?} to {after:?} by {by:?}, {age_us} us old"));
        }
    }
}
