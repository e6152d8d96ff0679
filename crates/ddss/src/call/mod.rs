//! How a call travels: channels, arena, pipelines.

pub(crate) mod arena;
pub(crate) mod backoff;
pub(crate) mod channels;
pub(crate) mod pipeline;
pub(crate) mod priority;
pub(crate) mod wait_queue;
