//! Signals, faults and forks, which meet a call from outside.

mod actions;
mod faults;
mod fork_lock;
mod forks;
mod handlers;
mod origins;

pub(crate) use fork_lock::{ForkGuard, ForkLock};
pub(crate) use forks::install as install_fork_functions;
pub(crate) use handlers::install as install_handlers;
