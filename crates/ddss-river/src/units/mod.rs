//! Unit queues: lists of work that survive every process.
//!
//! The table `river/NAME/units` has it all. Row 0 describes the queue and counts its units; its lock orders those who add. Row 1
//! has the cursor that workers claim from. A row a unit follows. No other process is needed for any step: a claim is a
//! conditional put of the unit's row, its worker renews it, and it expires when the row stays unchanged for a lease.

mod options;
mod queue;
mod renewal;
mod rows;
mod search;
mod session;
mod table;
mod unit;

pub use options::UnitOptions;
pub use queue::UnitQueue;
pub use rows::{UnitInfo, UnitStatus};
pub(crate) use session::after;
pub use unit::Unit;
