//! State of the engine: segments, lock queues, pending operations, buffers, memory, peers, quotas. These files define
//! tables and their invariants; the folders beside this one act on them.

pub(crate) mod action_queue;
pub(crate) mod clients;
pub(crate) mod get_buffers;
pub(crate) mod lock_queue;
pub(crate) mod memory;
pub(crate) mod name_claims;
pub(crate) mod output;
pub(crate) mod parked_waits;
pub(crate) mod peers;
pub(crate) mod pending;
pub(crate) mod read_cache;
pub(crate) mod remote_locks;
pub(crate) mod replication;
pub(crate) mod segments;
