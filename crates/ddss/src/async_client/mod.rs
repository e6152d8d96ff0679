//! The client of tasks: its calls, and their futures.

pub(crate) mod budget;
mod call;
pub(crate) mod client;
mod group;
pub(crate) mod wait;
