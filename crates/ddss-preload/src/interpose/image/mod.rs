//! New processes and program images.

mod exec;
mod execl;
mod fork;
mod holders;
mod pump;
mod shell;
mod spawn;

pub(super) use exec::{execve, execveat, leave_streams_to_pumps};
pub(super) use fork::{clone, fork};
