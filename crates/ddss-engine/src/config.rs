//! Settings of an engine, its time, and its event counters.

use ddss_core::{NodeId, Shard};

/// Settings that do not change while the engine exists.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Id of this node.
    pub node: NodeId,
    /// Shard of this engine. Its peers are the engines of the same shard on other nodes.
    pub shard: Shard,
    /// Bytes of the pool in which segments live.
    pub pool_bytes: u64,
    /// The other nodes.
    pub peers: Vec<NodeId>,
    /// Generation of the first segment in each slot. A node that lost its segments starts with another number each
    /// time, so an id of an earlier run never names a segment of this one.
    pub first_generation: u32,
    /// True if the reads of one batch overlap. Where each waits for the one before it, the home executes a get that may
    /// be served, in one round trip.
    pub reads_overlap: bool,
}

/// The time, as the daemon read it before it called the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Monotonic clock in microseconds, for deadlines.
    pub steady_us: u64,
    /// Wall clock in microseconds since 1970, for timestamps.
    pub wall_us: u64,
}

/// Event counters since the engine was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests taken from clients.
    pub requests: u64,
    /// Requests refused as malformed.
    pub malformed: u64,
    /// Fetches that met a put and were repeated.
    pub torn_fetches: u64,
    /// Answers and completions for an operation that had already ended.
    pub stale: u64,
    /// Operations whose deadline passed.
    pub timeouts: u64,
    /// Puts committed here.
    pub commits: u64,
    /// Gets of other nodes' clients that this home executed.
    pub served_gets: u64,
    /// Gets answered from this node's read cache.
    pub cache_hits: u64,
    /// Locks granted here.
    pub locks_granted: u64,
    /// Locks taken back: their lease ran out, or their holder is gone.
    pub locks_broken: u64,
    /// Segments refused because their owner has reached its quota.
    pub over_quota: u64,
}
