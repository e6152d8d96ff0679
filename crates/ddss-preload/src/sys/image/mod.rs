//! New processes and program images.

mod exec;
mod execl;
mod process;
mod pump;
mod spawn;

pub(crate) use process::raise_broken_pipe;
