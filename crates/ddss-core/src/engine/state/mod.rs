//! State that the engine holds: segments, lock queues, pending operations, buffers, peers, quotas.

pub(crate) mod areas;
pub(crate) mod buffer_pool;
pub(crate) mod extent_allocator;
pub(crate) mod lock_queue;
pub(crate) mod peers;
pub(crate) mod pending;
pub(crate) mod quotas;
pub(crate) mod segment_index;
pub(crate) mod segments;
pub(crate) mod staging;
pub(crate) mod timed_segments;
