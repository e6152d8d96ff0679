//! The commands `dsm run`, `ls`, `top` and `rm`: ranks of page-based shared memory, and their spaces.

mod check;
mod command;
mod run;
mod spaces;
mod top;

pub(crate) use command::run;
pub(crate) use run::become_rank;
