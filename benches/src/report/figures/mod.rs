//! The figures: which rows each is made of, what is said about it, and what the paper has beside it.
//!
//! Every sentence is made of the rows, so it is true of the machine that they come from.

mod all;
mod applications;
mod common;
mod cost;
mod ipc;
mod monitoring;
mod nodes;
mod open;
mod scaling;
mod sizes;
mod steps;

pub use all::figures;
pub(crate) use common::{STRATEGIES, bench, beside, by_strategy, called, curve_of, look, order, same_order, verdict};
