//! Races: accesses of two ranks to one byte that nothing orders, one of them a write.
//!
//! Each rank writes a trace of its intervals, with the bytes that it read and changed. `ddss dsm run --check` compares the traces
//! once the ranks have ended.

mod races;
mod read_log;
mod trace;

pub use races::{Race, Races};
pub(crate) use read_log::ReadLog;
pub(crate) use trace::{Trace, TracedRegion};
