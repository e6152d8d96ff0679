//! Actions and events of workers.

use crate::model::{ListId, UnitRef, UnitRow, WorkerId};

/// A claimed unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Unit.
    pub unit: UnitRef,
    /// Row with the claim.
    pub row: UnitRow,
    /// Version of the row.
    pub version: u64,
}

/// A step that the driver executes. Only one call to the table is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitAction {
    /// Adds one to the cursor of a list. Reports [`UnitEvent::Added`].
    Add(ListId),
    /// Writes a row if it has a version. Reports [`UnitEvent::Put`].
    Put {
        /// Unit.
        unit: UnitRef,
        /// Row.
        row: UnitRow,
        /// Version that the row has to have.
        expected: u64,
    },
    /// Reads a row. Reports [`UnitEvent::Got`].
    Get(UnitRef),
    /// The worker has a unit.
    Claimed(Claim),
    /// The end of the unit is written, and counts: done, failed or given back.
    Finished(Claim),
    /// The unit was given to another worker: its end here does not count.
    Refused(Claim),
    /// Every unit is claimed, and some are not finished. The driver reports [`UnitEvent::Changed`] when a row has changed
    /// since the last call of the program or the last such report.
    Wait,
    /// Every unit is done or has failed.
    Ended,
}

/// Result of a conditional put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutResult {
    /// The row has this version now.
    Done(u64),
    /// The row had another version, and stays as it is.
    Conflict,
    /// The row may have been written, or may still be.
    Unknown,
}

/// Something that happened to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitEvent {
    /// The cursor had this value. `None` means that the call may have been executed: a number may be lost to it.
    Added(Option<u64>),
    /// A conditional put has ended.
    Put(PutResult),
    /// A row was read: its content and version.
    Got(UnitRow, u64),
    /// A row has changed.
    Changed,
    /// The coordinator declared a worker dead. A new worker learns of all that died before.
    Dead(WorkerId),
    /// The coordinator declared this worker dead.
    Fenced,
}
