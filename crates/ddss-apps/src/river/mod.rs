//! Programs of flows: a copy, a one-pass external sort, a one-pass hash join, an image loader.
//!
//! Each has two [forms](Form). With queues, any process takes the next piece of work, so that a slow one gets less of it. In the
//! static form, process i does part i: the published programs are compared with that.
//!
//! `records` and `images` make inputs, `blocks` are the pieces of work, `partition` and `read` modules of several programs; `copy`,
//! `sort`, `join` and `load` are the programs, `member` is a process, `runner` starts them all and `check` compares what they wrote with the result of
//! other programs.

mod blocks;
mod check;
mod copy;
mod images;
mod job;
mod join;
mod load;
mod member;
mod partition;
mod read;
mod records;
mod runner;
mod sort;

pub use job::{Form, Job, Keys, Program};
pub use member::run_member;
pub use runner::Runner;
