//! The commands that start programs of others, and show what runs: `run` and `streams`, `dsm`.

pub(crate) mod dsm;
pub(crate) mod streams;
