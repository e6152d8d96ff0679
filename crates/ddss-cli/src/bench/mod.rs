//! The command `bench`: latency of calls under each strategy, and of local and remote gets and puts.
//!
//! `setup` provides the nodes, `figures` measures, `chart` draws, and `baseline` measures the limit of the machine: the
//! round trip of one cache line between two cores.

mod baseline;
mod chart;
mod figures;
mod row;
mod setup;

pub(crate) use figures::run;
