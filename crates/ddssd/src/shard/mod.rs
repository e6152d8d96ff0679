//! One shard of a node: the part that one progress thread serves.
//!
//! `shard.rs` opens and starts a shard. `event_loop.rs` is the loop of its thread: `request_handler.rs` handles the
//! clients' requests, and `executor.rs` passes each action that the engine decides to the file of `actions` that does
//! it. `drain.rs` is the graceful end, and `latency_estimate.rs` publishes the average latency.

pub(crate) mod actions;
pub(crate) mod client_arena;
pub(crate) mod clock;
pub(crate) mod drain;
pub(crate) mod event_loop;
pub(crate) mod executor;
pub(crate) mod latency_estimate;
pub(crate) mod replies;
pub(crate) mod request_handler;
pub(crate) mod shard;
