//! The part of a node that one progress thread serves.

pub(crate) mod background;
pub(crate) mod drain;
pub(crate) mod event_loop;
pub(crate) mod executor;
pub(crate) mod inflight_reads;
pub(crate) mod latency_estimate;
pub(crate) mod request_handler;
pub(crate) mod shard;
