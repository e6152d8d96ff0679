//! A travelling salesman, as in TreadMarks: branch and bound over a queue of partial tours that all ranks share under a lock.

mod cities;
mod held_karp;
mod program;
mod queue;
mod search;
mod tour;

pub(super) use program::run;
