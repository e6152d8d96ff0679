//! New processes and program images.

mod exec;
mod execl;
mod holders;
mod process;
mod pump;
mod shell;
mod spawn;

pub(crate) use exec::leave_streams_to_pumps;
pub(super) use exec::{execve, execveat};
pub(super) use process::{clone, fork, fork_by};
pub(crate) use process::{is_own_process, raise_broken_pipe};
