//! The commands `dsm run`, `dsm ls` and `dsm rm`: ranks of page-based shared memory, and their spaces.

mod command;
mod run;
mod spaces;

pub(crate) use command::run;
pub(crate) use run::become_rank;
