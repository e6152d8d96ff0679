//! Workers of a unit queue over a simulated table: they renew their claims, are killed or stopped, and the table is away at times.
//!
//! `table` holds cursors and rows and judges each change. `world` holds the processes. `program` renews a claim and ends its unit,
//! `fault` is what goes wrong, and `run` executes events.

mod fault;
mod program;
mod run;
mod table;
mod world;

pub(crate) use run::run_units;
pub(crate) use world::{UnitCounts, random_plan};
