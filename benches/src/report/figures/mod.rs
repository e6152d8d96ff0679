//! The figures: the rows of each, the sentences about it, and the paper's numbers.
//!
//! Every sentence is computed from the rows, so it is true of their machine.

mod all;
mod applications;
mod common;
mod cost;
mod ipc;
mod monitoring;
mod nodes;
mod open_loop;
mod river;
mod scaling;
mod sizes;
mod steps;
mod streams;

pub use all::figures;
pub(crate) use common::{
    STRATEGIES, bench, by_strategy, curve, curve_of, curve_style, order, paper_marks, paper_value, path_title,
    same_order, verdict,
};
