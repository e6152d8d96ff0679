//! What a run is made of, and what comes out of it.

use crate::random::Random;

/// Which way through its engine a call goes that could go the short one (`crates/ddss-core/src/engine/home/fast_path.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ways {
    /// The short way.
    Short,
    /// The long way.
    Long,
    /// One or the other, call by call.
    BySeed,
}

impl Ways {
    /// Whether a call goes the long way. The run's own chance is not asked: it has to be the same whatever comes out.
    pub(crate) fn is_long(self, seed: u64, request: u64) -> bool {
        match self {
            Self::Short => false,
            Self::Long => true,
            Self::BySeed => Random::new(seed.rotate_left(32) ^ request).one_in(2),
        }
    }
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes.
    pub nodes: usize,
    /// Clients on each.
    pub clients: usize,
    /// Segments, spread over the nodes; the models take turns.
    pub segments: usize,
    /// Calls to ask for.
    pub operations: usize,
    /// Whether connections are cut, clients and nodes die, and nodes stop for a while.
    pub faults: bool,
    /// How many more have a mirror.
    pub mirrored: usize,
    /// How long everything takes from one node to another, in virtual microseconds; `None`: anything.
    pub hop_us: Option<u64>,
    /// Whether the reads of one batch are under way together; `None`: that is as the seed says.
    pub reads_overlap: Option<bool>,
    /// Which way calls go that have the choice.
    pub ways: Ways,
    /// A bug that every engine has.
    #[cfg(feature = "planted")]
    pub bug: Option<ddss_core::engine::Bug>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 3,
            clients: 3,
            segments: 9,
            operations: 5000,
            faults: true,
            hop_us: None,
            reads_overlap: None,
            mirrored: 3,
            ways: Ways::BySeed,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }
}

/// What came out of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Calls that were asked for.
    pub operations: u64,
    /// Of those, how many ended as done.
    pub done: u64,
    /// Connections cut.
    pub cuts: u64,
    /// Clients killed.
    pub client_kills: u64,
    /// Nodes that died.
    pub crashes: u64,
    /// Of those, how many had their memory again when they came back.
    pub survived: u64,
    /// Nodes that stopped for a while.
    pub pauses: u64,
    /// Pieces that were read in the middle of a commit.
    pub half_seen: u64,
    /// Fetches that met a put.
    pub torn_fetches: u64,
    /// Gets that a home carried out for another node.
    pub handed: u64,
    /// Gets that were answered from a copy on their own node.
    pub copied: u64,
    /// Gets of a version that is not the newest one.
    pub older: u64,
    /// Mirrors that became homes.
    pub takeovers: u64,
    /// Mirrors that came to have everything.
    pub pairings: u64,
    /// Times that some nodes were cut off from the others.
    pub isolations: u64,
    /// Mirrored segments that were lost on both nodes.
    pub lost_twice: u64,
    /// Calls that the permissions did not allow.
    pub refused: u64,
    /// Segments that were released.
    pub released: u64,
    /// Puts and additions made under a lock.
    pub sections: u64,
    /// Windows of a history for which an order was searched.
    pub searched: u64,
    /// Calls with a long deadline that passed.
    pub starved: u64,
    /// Additions that nobody knows of.
    pub maybe_added: u64,
    /// A number that two equal runs share.
    pub trace: u64,
    /// Everything that must not be.
    pub violations: Vec<String>,
}
