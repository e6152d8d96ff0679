//! The table of a unit queue. Each call is atomic.

use ddss_river_core::codec::{decode_row, encode_row};
use ddss_river_core::limits::UNIT_ROW_BYTES;
use ddss_river_core::{ListId, PutResult, UnitAction, UnitEvent, UnitRef, UnitRow, UnitState, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// Version of a row that no worker has claimed.
pub(crate) const FIRST_VERSION: u64 = 1;

/// The table of a unit queue.
pub(crate) struct Table {
    cursors: Vec<u64>,
    rows: BTreeMap<UnitRef, ([u8; UNIT_ROW_BYTES], u64)>,
    /// Workers that were declared dead.
    pub(crate) dead: BTreeSet<WorkerId>,
    /// Number of changes of rows.
    pub(crate) changes: u64,
    pub(crate) violations: Vec<String>,
}

impl Table {
    pub(crate) fn new(counts: &[u32]) -> Self {
        let unit = |(list, count): (usize, &u32)| {
            let list = ListId(list as u16);
            (0..*count).map(move |number| UnitRef { list, number })
        };
        let row = (encode_row(&UnitRow::NEW), FIRST_VERSION);
        let rows = counts.iter().enumerate().flat_map(unit).map(|unit| (unit, row)).collect();
        Self { cursors: vec![0; counts.len()], rows, dead: BTreeSet::new(), changes: 0, violations: Vec::new() }
    }

    fn row(&self, unit: UnitRef) -> (UnitRow, u64) {
        let (bytes, version) = &self.rows[&unit];
        (decode_row(bytes).expect("a row of an honest member"), *version)
    }

    /// Returns the first unit that is neither done nor failed.
    pub(crate) fn first_open(&self) -> Option<UnitRef> {
        self.rows.keys().copied().find(|unit| !self.row(*unit).0.is_settled())
    }

    /// Returns the number of units that have failed.
    pub(crate) fn failed(&self) -> u64 {
        self.rows.keys().filter(|unit| self.row(**unit).0.state == UnitState::Failed).count() as u64
    }

    /// Executes a call of a worker.
    pub(crate) fn execute(&mut self, call: UnitAction) -> UnitEvent {
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
            UnitAction::Put { unit, row, expected } => {
                let (before, version) = self.row(unit);
                if version != expected {
                    return UnitEvent::Put(PutResult::Conflict);
                }
                self.judge(unit, &before, &row);
                self.rows.insert(unit, (encode_row(&row), version + 1));
                self.changes += 1;
                UnitEvent::Put(PutResult::Done(version + 1))
            }
            other => unreachable!("{other:?} is no call"),
        }
    }

    /// Judges a change of a row.
    fn judge(&mut self, unit: UnitRef, before: &UnitRow, after: &UnitRow) {
        let is_permitted = match (before.state, after.state) {
            (UnitState::Open, UnitState::Claimed(_)) => after.claims == before.claims + 1,
            (UnitState::Claimed(one), UnitState::Done(other)) => one == other && after.claims == before.claims,
            (UnitState::Claimed(one), UnitState::Claimed(other)) => {
                one != other && self.dead.contains(&one) && after.strikes == before.strikes + 1
            }
            (UnitState::Claimed(one), UnitState::Failed) => self.dead.contains(&one) && after.strikes == 3,
            _ => false,
        };
        if !is_permitted {
            self.violations.push(format!("fenced: {unit:?} from {before:?} to {after:?}"));
        }
    }
}
