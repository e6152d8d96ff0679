//! Configuration and report of a simulation run.

use crate::random::Random;

/// Path through the engine for calls that can take the fast path (`crates/ddss-engine/src/home/fast_path.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnginePath {
    /// The fast path.
    Fast,
    /// The general path.
    General,
    /// A pseudo-random choice for each call.
    BySeed,
}

impl EnginePath {
    /// Returns true if a call takes the general path. A separate generator leaves the random numbers of the run unchanged.
    pub(crate) fn is_long(self, seed: u64, request: u64) -> bool {
        match self {
            Self::Fast => false,
            Self::General => true,
            Self::BySeed => Random::new(seed.rotate_left(32) ^ request).one_in(2),
        }
    }
}

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of clients on each node.
    pub clients: usize,
    /// Number of unreplicated segments, spread over the nodes and the models.
    pub segments: usize,
    /// Number of calls.
    pub operations: usize,
    /// Enables cuts of connections, deaths of clients and nodes, and pauses of nodes.
    pub faults: bool,
    /// Number of additional segments with a replica.
    pub replicated: usize,
    /// Number of additional tables; every third one is a map. The seed decides which of them have a replica.
    pub tables: usize,
    /// Delay between two nodes in virtual microseconds; `None` means random.
    pub hop_us: Option<u64>,
    /// True if the reads of one batch are in flight together; `None` means that the seed decides.
    pub reads_overlap: Option<bool>,
    /// Bytes of a node's pool.
    pub pool_bytes: usize,
    /// True if clients change permissions, which makes homes part from their replicas.
    pub changes_permissions: bool,
    /// Path of the calls that can take the fast path.
    pub engine_path: EnginePath,
    /// Bug planted into every engine.
    #[cfg(feature = "planted")]
    pub bug: Option<ddss_engine::Bug>,
}

impl Scenario {
    /// Bytes of a pool that has room for the segments, and too little for the uploads of all clients.
    const SCARCE_POOL_BYTES: usize = 56 << 10;

    /// Returns a run without faults on nodes that have too little memory for large puts at the same time. Nothing parts
    /// a home from its replica.
    pub fn scarce() -> Self {
        let (faults, changes_permissions, pool_bytes) = (false, false, Self::SCARCE_POOL_BYTES);
        Self { segments: 3, replicated: 6, tables: 0, faults, changes_permissions, pool_bytes, ..Self::default() }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            nodes: 3,
            clients: 3,
            segments: 9,
            operations: 5000,
            faults: true,
            hop_us: None,
            reads_overlap: None,
            replicated: 3,
            tables: 3,
            pool_bytes: 1 << 20,
            changes_permissions: true,
            engine_path: EnginePath::BySeed,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Number of calls.
    pub operations: u64,
    /// Calls that ended as done.
    pub done: u64,
    /// Connections cut.
    pub cuts: u64,
    /// Clients killed.
    pub client_kills: u64,
    /// Node crashes.
    pub crashes: u64,
    /// Crashes after which the node had its memory again.
    pub survived: u64,
    /// Node pauses.
    pub pauses: u64,
    /// Waits that parked and returned their slot.
    pub parked: u64,
    /// Pieces that were read in the middle of a commit.
    pub half_seen: u64,
    /// Remote reads that overlapped a put.
    pub torn_fetches: u64,
    /// Served gets: a home executed them for another node.
    pub handed: u64,
    /// Gets that were answered from the read cache.
    pub copied: u64,
    /// Gets of an old version.
    pub older: u64,
    /// Replicas that became homes.
    pub takeovers: u64,
    /// Replicas that came in sync.
    pub pairings: u64,
    /// Network partitions.
    pub isolations: u64,
    /// Replicated segments that were lost on both nodes.
    pub lost_twice: u64,
    /// Calls that the permissions did not allow.
    pub refused: u64,
    /// Segments that were released.
    pub released: u64,
    /// Puts that were sent in parts.
    pub large_puts: u64,
    /// Large puts into segments with a replica.
    pub large_puts_with_copies: u64,
    /// Large puts that a replica refused for lack of room.
    pub large_puts_refused: u64,
    /// Acknowledged puts that were found on both nodes.
    pub copies_checked: u64,
    /// Large puts that a crash interrupted and the next daemon undid.
    pub large_puts_undone: u64,
    /// Puts and additions made under a lock.
    pub sections: u64,
    /// Locks of rows of tables that were held until their unlock.
    pub row_sections: u64,
    /// Calls of rows of tables, and changes of entries of maps.
    pub row_calls: u64,
    /// Changes of entries of maps that took effect.
    pub entry_changes: u64,
    /// Expired entries of maps that sweeps found.
    pub entries_swept: u64,
    /// Changes of rows of which watchers of all rows were notified.
    pub row_changes_seen: u64,
    /// Notifications of such a watcher that it missed changes.
    pub row_changes_missed: u64,
    /// Windows of a history that the linearizability checker searched.
    pub searched: u64,
    /// Calls that missed a long deadline.
    pub starved: u64,
    /// Additions with unknown outcome.
    pub additions_unknown: u64,
    /// Hash over all events; equal for equal runs.
    pub trace: u64,
    /// All violations.
    pub violations: Vec<String>,
}
