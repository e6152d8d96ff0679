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

mod answers;
mod check;
mod council;
#[cfg(test)]
mod counted;
mod faults;
mod liveness;
mod network;
mod node;
mod perform;
mod plan;
mod random;
mod rights;
mod scale;
mod seeds;
mod workload;
mod world;

pub use check::{History, Observation, Section, Sections, Stamps, Step, What, explain};
pub use plan::{Plan, Report, Ways};
pub use random::Random;
pub use scale::{Costs, Load, Scaled, scale};
pub use seeds::KNOWN_SEEDS;
pub use world::run;
