//! The commands that start programs of others, and show what runs: `run` and `streams`, `dsm`, `river`.

pub(crate) mod dsm;
pub(crate) mod river;
mod started;
pub(crate) mod streams;
