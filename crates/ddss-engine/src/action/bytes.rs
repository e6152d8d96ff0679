//! Where the bytes of an action come from and go to.

use crate::ids::BufferId;
use ddss_core::{ArenaRange, ClientId, NodeId, Payload};

/// Location of the bytes of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitSource {
    /// A client of this node: the request itself, or its arena.
    Client(ClientId, Payload),
    /// This node's staging memory, written by a peer.
    Staged {
        /// Peer whose part of the staging memory it is.
        node: NodeId,
        /// Offset in that part.
        at: u64,
    },
    /// A buffer of the engine, filled from a message: [`Engine::consume_buffer`](crate::Engine::consume_buffer).
    Buffer(BufferId),
    /// One word.
    Word(u64),
    /// This node's pool, from this offset on.
    Pool(u64),
}

/// Byte ranges of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeSet {
    /// One range.
    One {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// Several ranges; [`Engine::ranges`](crate::Engine::ranges) returns them.
    Many {
        /// Buffer that holds the table.
        table: BufferId,
        /// Bytes of all ranges together.
        bytes: u32,
    },
}

impl RangeSet {
    /// Returns the bytes of all ranges together.
    pub const fn bytes(&self) -> u32 {
        match self {
            RangeSet::One { bytes, .. } | RangeSet::Many { bytes, .. } => *bytes,
        }
    }
}

/// Destination of the bytes of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchTarget {
    /// A client's arena.
    Arena(ClientId, ArenaRange),
    /// This node's pool, from this offset on.
    Pool(u64),
}

/// Bytes that follow the fields of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageBody {
    /// No bytes.
    None,
    /// Bytes of a client.
    Client(ClientId, Payload),
    /// A buffer of the engine: [`Engine::buffer`](crate::Engine::buffer).
    Buffer(BufferId),
    /// Bytes of a segment whose data begin at this pool offset.
    Pool(u64, RangeSet),
}
