//! Parts of mirrored collections, and messages about their chunks.

use std::fmt;

/// A part of a collection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartId(pub u32);

/// A reader of a part. A member has a number for each part that it reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReaderId(pub u32);

/// One of the two nodes that have a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mirror {
    /// The node that has the part as its first copy, and is read from the front.
    First,
    /// The node that has the second copy, and is read from the back.
    Second,
}

impl Mirror {
    /// Both mirrors.
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// Returns the other mirror.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Chunks that a reader has of those that it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Chunks that arrived.
    pub done: u32,
    /// Chunks of the part.
    pub total: u32,
}

impl Progress {
    /// Returns true if this reader is behind another by more than `chunks` of its own.
    #[must_use]
    pub fn is_behind(self, other: Self, chunks: u32) -> bool {
        let ahead = u64::from(other.done) * u64::from(self.total);
        (u64::from(self.done) + u64::from(chunks)) * u64::from(other.total) < ahead
    }
}

/// A request of a reader for a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkRequest {
    /// Reader.
    pub reader: ReaderId,
    /// Part.
    pub part: PartId,
    /// Generation of the part that the catalogue names.
    pub generation: u64,
    /// Number of the chunk.
    pub chunk: u32,
    /// Chunk buffer of the reader that the server writes.
    pub slot: u16,
    /// Progress of the reader.
    pub progress: Progress,
}

/// A reply of a file server, behind the bytes of the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkReply {
    /// Reader.
    pub reader: ReaderId,
    /// Part.
    pub part: PartId,
    /// Generation of the file, or `None` if the server cannot read the chunk.
    pub generation: Option<u64>,
    /// Number of the chunk.
    pub chunk: u32,
    /// Chunk buffer.
    pub slot: u16,
    /// CRC32c from the file next to the part, which the reader's driver compares.
    pub checksum: u32,
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {}", self.0)
    }
}

impl fmt::Display for ReaderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reader {}", self.0)
    }
}
