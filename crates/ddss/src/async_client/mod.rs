//! The machinery of asynchronous calls: a channel that the tasks of a client share, and the thread that serves it (the
//! reactor).

mod backpressure;
pub(crate) mod budget;
mod call;
pub(crate) mod client;
pub(crate) mod ended;
mod group;
pub(crate) mod pause;
pub(crate) mod reactor;
mod reconnect;
mod shared_channel;
pub(crate) mod tasks;
pub(crate) mod wait;
