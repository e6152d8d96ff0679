//! Transport of a call: channels, arena memory and pipelines.
//!
//! `channels` runs one blocking call on one channel; `pipeline` runs many, and `call_group` those of several shards.
//! `arena` allocates their memory. `wait_queue` orders threads when capacity is exhausted, by `priority`; `retry`
//! repeats calls while a home is away, after the pauses of `backoff`. `span` traces calls.

pub(crate) mod arena;
pub(crate) mod backoff;
pub(crate) mod call_group;
pub(crate) mod channels;
pub(crate) mod pipeline;
pub(crate) mod priority;
pub(crate) mod retry;
#[cfg(feature = "tracing")]
pub(crate) mod span;
pub(crate) mod wait_queue;
