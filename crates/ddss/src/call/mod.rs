//! Transport of a call: channels, arena memory and pipelines.
//!
//! `channels` runs one blocking call on one channel, and `pipeline` runs many. `arena` allocates their memory.
//! `wait_queue` orders threads when capacity is exhausted; `retry` repeats calls while a home is away, after the pauses
//! of `backoff`. `span` traces calls.

pub(crate) mod arena;
pub(crate) mod backoff;
pub(crate) mod channels;
pub(crate) mod pipeline;
pub(crate) mod retry;
#[cfg(feature = "tracing")]
pub(crate) mod span;
pub(crate) mod wait_queue;
