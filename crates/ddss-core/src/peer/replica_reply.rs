//! Answers of a node that is, or may become, the replica of a segment.

/// Answer of a node to an offered replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferReply {
    /// The node has exactly that version.
    Whole,
    /// The node has no valid copy: send the bytes.
    Empty,
    /// The node cannot have a replica now.
    No(Refusal),
    /// The sender of the offer is no longer the home.
    Fenced,
}

impl OfferReply {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Whole => 1,
            Self::Empty => 2,
            Self::No(Refusal::NotReady) => 3,
            Self::Fenced => 4,
            Self::No(Refusal::NoRoom) => 5,
            Self::No(Refusal::OverQuota) => 6,
            Self::No(Refusal::NoFiles) => 7,
            Self::No(Refusal::NoAnswer) => 8,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Whole,
            2 => Self::Empty,
            3 => Self::No(Refusal::NotReady),
            4 => Self::Fenced,
            5 => Self::No(Refusal::NoRoom),
            6 => Self::No(Refusal::OverQuota),
            7 => Self::No(Refusal::NoFiles),
            8 => Self::No(Refusal::NoAnswer),
            _ => return None,
        })
    }
}

/// Reason why a node cannot be the replica of a segment now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Refusal {
    /// The node has yet to learn its role for that segment, or still has another segment of that name.
    NotReady,
    /// The pool or the file storage of the node is full.
    NoRoom,
    /// The segment's owner has reached its quota on that node.
    OverQuota,
    /// The node stores no segments in files.
    NoFiles,
    /// The node did not answer in time.
    NoAnswer,
}

/// Acknowledgement of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReplicaAck {
    /// A piece of the copy or a part of a large put is stored.
    Piece = 1,
    /// A put is stored, or a token is recorded.
    Put = 2,
    /// A large put is refused: this node has no room for it beside its segments.
    NoRoom = 3,
    /// A large put is refused: other large puts have the room.
    Busy = 4,
}
