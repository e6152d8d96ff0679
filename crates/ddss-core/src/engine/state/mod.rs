//! State of the engine: segments, lock queues, pending operations, buffers, memory, peers, quotas. These files define
//! tables and their invariants; the folders beside this one act on them.

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
