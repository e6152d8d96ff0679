//! Engines of page-based shared memory on simulated memory, under one seed.
//!
//! `world` executes the engines' actions, `network` delivers them in pieces and out of order, `program` has random threads,
//! `happens_before` judges each byte that they read.

#[cfg(test)]
mod counts;
mod happens_before;
#[cfg(test)]
mod litmus;
mod memory;
mod network;
mod program;
mod scenario;
mod scheduler;
mod thread;
mod world;

pub use scenario::{DsmReport, DsmScenario};
pub use scheduler::run_dsm;
