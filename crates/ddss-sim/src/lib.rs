//! The test kit: N engines on one thread under one seed, in virtual time.
//!
//! The engines are the ones that `ddssd` runs; what is simulated is what they touch: memory, the network, clients
//! and time. A transfer is carried out in pieces at different moments, so a put can come between; connections are
//! cut with everything that was on them; clients die in the middle of what they asked for; nodes stop for a while, or die
//! and come back, with their memory or empty.
//!
//! Same seed and same commit, same trace:
//!
//! ```
//! use ddss_sim::{Plan, run};
//! let plan = Plan { operations: 300, ..Plan::default() };
//! let first = run(7, &plan);
//! assert_eq!(first.violations, Vec::<String>::new());
//! assert_eq!(first.trace, run(7, &plan).trace);
//! ```
#![forbid(unsafe_code)]

mod capacity_model;
mod check;
mod cluster;
mod load;
mod random;
mod regression_seeds;
#[cfg(test)]
mod round_trips;

pub use capacity_model::{Costs, Load, Scaled, scale};
pub use check::{History, Observation, Section, Sections, Stamps, Step, What, explain};
pub use cluster::simulator::run;
pub use load::scenario::{Plan, Report, Ways};
pub use random::Random;
pub use regression_seeds::KNOWN_SEEDS;
