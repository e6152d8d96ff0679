//! Deterministic simulator: N engines on one thread in virtual time, under one seed.
//!
//! The engines are those of `ddssd`. Memory, network, clients and time are simulated. A transfer happens in pieces, so a
//! put can come between two of them. Connections are cut with all messages in flight, clients die during calls, and nodes
//! pause, or crash and restart with or without their memory. This crate is not a load generator for real daemons.
//!
//! `cluster` runs the nodes and the calls of the clients, `oracle` says which results are right, and `check` examines them. The
//! same seed and commit give the same trace:
//!
//! ```
//! use ddss_sim::{Scenario, run};
//! let plan = Scenario { operations: 300, ..Scenario::default() };
//! let first = run(7, &plan);
//! assert_eq!(first.violations, Vec::<String>::new());
//! assert_eq!(first.trace, run(7, &plan).trace);
//! ```
#![forbid(unsafe_code)]

mod campaign;
mod capacity_model;
mod check;
mod cluster;
mod dsm;
mod load;
mod oracle;
mod random;
mod regression_seeds;
mod river;
#[cfg(test)]
mod round_trips;

pub use campaign::run_seeds;
pub use capacity_model::{Costs, Load, LoadResult, simulate_load};
pub use cluster::simulator::run;
pub use dsm::{DsmReport, DsmScenario, run_dsm};
pub use load::scenario::{EnginePath, Report, Scenario};
pub use oracle::{
    BucketView, CriticalSection, EntryCall, EntryContent, History, MapChecker, MutexChecker, Observation,
    OperationKind, Step, TimestampChecker, find_linear_order,
};
pub use random::Random;
pub use regression_seeds::KNOWN_SEEDS;
pub use river::{FigurePoint, RiverReport, RiverScenario, river_figures, run_river};
