//! Work units, and the rows that store them.

/// The list of units of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListId(pub u16);

/// A unit of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitRef {
    /// List.
    pub list: ListId,
    /// Number in the list.
    pub number: u32,
}

/// A worker. One that comes back after its death has a new number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub u32);

/// State of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitState {
    /// No worker has the unit.
    Open,
    /// A worker has claimed the unit.
    Claimed(WorkerId),
    /// A worker has finished the unit: its result is behind the row.
    Done(WorkerId),
    /// The unit has ended too many workers, or they gave it back.
    Failed,
}

/// Row of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitRow {
    /// State.
    pub state: UnitState,
    /// Claims so far.
    pub claims: u16,
    /// Workers that died with the unit or gave it back.
    pub strikes: u8,
    /// Bytes of the result behind the row.
    pub result_bytes: u16,
}

impl UnitRow {
    /// A unit that no worker has claimed.
    pub const NEW: Self = Self { state: UnitState::Open, claims: 0, strikes: 0, result_bytes: 0 };

    /// Returns true if no worker can claim the unit any more.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self.state, UnitState::Done(_) | UnitState::Failed)
    }
}
