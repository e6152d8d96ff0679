//! The unit queue: workers claim units of lists in a table, and take over those of dead workers.
//!
//! Each change of a row is conditional on its version. So a worker cannot finish a unit that another one has taken over.

mod action;
mod lease_watch;
mod worker;

pub use action::{Claim, PutResult, UnitAction, UnitEvent};
pub use lease_watch::LeaseWatch;
pub use worker::{Worker, WorkerConfig};
