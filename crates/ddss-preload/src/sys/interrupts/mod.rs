//! Signals and faults, which meet a call from outside, and locks that outlive a fork.

mod actions;
mod faults;
mod fork_lock;
mod handlers;
mod origins;

pub(crate) use fork_lock::{ForkGuard, ForkLock};
pub(crate) use handlers::install as install_handlers;
