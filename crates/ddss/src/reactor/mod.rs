//! The channel that the tasks of a client share, and the thread that serves it (the reactor).
//!
//! `backpressure` orders tasks when capacity is exhausted, and `pause` lets them sleep. `reconnect` searches for the next
//! daemon. `tasks` keeps a client's reactor.

mod backpressure;
pub(crate) mod pause;
pub(crate) mod reactor;
mod reconnect;
pub(crate) mod shared_channel;
pub(crate) mod tasks;
