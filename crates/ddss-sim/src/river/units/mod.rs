//! Workers of a unit queue over a simulated table, with workers that are killed or stopped.
//!
//! `table` holds cursors and rows and judges each change. `world` holds the processes. `run` executes events.

mod run;
mod table;
mod world;

pub(crate) use run::run_units;
pub(crate) use world::{UnitCounts, random_plan};
