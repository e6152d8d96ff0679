//! One shard of a node: the part that one progress thread serves.
//!
//! `shard.rs` opens and starts a shard. `event_loop.rs` is the loop of its thread: `request_handler.rs` handles the
//! clients' requests, `executor.rs` executes the actions that the engine decides, `remote_get.rs` posts the
//! reads of a remote get, and `inflight_reads.rs` tracks them. `background.rs` slices long work on memory, `drain.rs` is the graceful end, and `latency_estimate.rs`
//! publishes the average latency.

pub(crate) mod background;
pub(crate) mod client_arena;
pub(crate) mod drain;
pub(crate) mod event_loop;
pub(crate) mod executor;
pub(crate) mod inflight_reads;
pub(crate) mod latency_estimate;
pub(crate) mod remote_get;
pub(crate) mod request_handler;
pub(crate) mod shard;
