//! What the engine wants done. The daemon does these in order; each is one thing.

use super::directory::ClaimId;
use super::kept::KeptId;
use super::operations::StepId;
use crate::message::RemoteWindow;
use crate::record::Record;
use crate::request::{ArenaRange, Payload};
use crate::segment::{Header, Name};
use crate::{ClientId, Completion, LaneId, Message, NodeId, SegmentId, Timestamp, Version};

/// Where the bytes of a commit are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// With a client of this node: in the request, or in its arena.
    Client(ClientId, Payload),
    /// In this node's staging memory, written there by a peer.
    Staged {
        /// Which peer's part of it.
        node: NodeId,
        /// From where in that part.
        at: u64,
    },
    /// With the engine, since they came behind a message: [`Engine::take_kept`](super::Engine::take_kept).
    Kept(KeptId),
    /// One word.
    Word(u64),
}

/// One thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Make a segment: see that its memory is there (it holds zeroes), write its header and then its record; and say so
    /// with [`Engine::formatted`](super::Engine::formatted), at once or later.
    Format {
        /// What to write down, and where the header goes.
        record: Record,
        /// The header.
        header: Header,
    },
    /// Strike its record, and make its header say that nobody lives here.
    Erase {
        /// Which.
        segment: SegmentId,
        /// Where its header is.
        at: u64,
    },
    /// Copy a segment's bytes into a client's arena.
    CopyOut {
        /// From where in the pool.
        at: u64,
        /// Whose arena.
        client: ClientId,
        /// To where in it, and how many.
        into: ArenaRange,
    },
    /// Replace bytes of a segment and step its version, so that no reader takes a mix for a whole.
    Commit {
        /// Where its header is.
        at: u64,
        /// Where in the segment.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// From where.
        source: Source,
        /// The version that this makes.
        version: Version,
        /// When.
        timestamp: Timestamp,
    },
    /// Look at one word of a segment and answer with [`Engine::looked`](super::Engine::looked), before anything else.
    Look {
        /// Where in the pool.
        at: u64,
    },
    /// Write into a segment's header whether somebody holds its lock alone.
    Mark {
        /// Where its header is.
        at: u64,
        /// Whether.
        locked: bool,
    },
    /// Read a range of a remote segment, with its header before and its state word after.
    Fetch {
        /// Its home.
        node: NodeId,
        /// Comes back with [`Engine::fetched`](super::Engine::fetched).
        step: StepId,
        /// Its memory: header line and bytes.
        window: RemoteWindow,
        /// From where in the segment.
        offset: u64,
        /// Whose arena.
        client: ClientId,
        /// To where in it, and how many.
        into: ArenaRange,
    },
    /// Write a client's bytes into the staging memory that `node` keeps for us, and behind them send the put that
    /// commits them: both, or neither.
    Stage {
        /// The home.
        node: NodeId,
        /// Comes back with [`Engine::staged`](super::Engine::staged).
        step: StepId,
        /// Where in the staging memory.
        at: u64,
        /// Whose arena.
        client: ClientId,
        /// From where in it, and how many.
        from: ArenaRange,
        /// The [`Message::Put`].
        message: Message,
    },
    /// Say something to another node.
    Send {
        /// Whom.
        node: NodeId,
        /// What.
        message: Message,
        /// Bytes of a client that go behind a put.
        tail: Option<(ClientId, Payload)>,
    },
    /// Say [`Message::Found`] with a window over the segment that only this peer may use.
    Introduce {
        /// Whom.
        node: NodeId,
        /// A [`Message::Found`] whose window is to be filled in.
        message: Message,
        /// Where the segment's header is in the pool.
        at: u64,
        /// Header line and bytes.
        bytes: u64,
    },
    /// No peer may use a window over this memory any more.
    Withdraw {
        /// Where the segment's header is.
        at: u64,
    },
    /// Nobody can read this memory any more: make it zeroes, let the system have its pages, and say so with
    /// [`Engine::cleared`](super::Engine::cleared), at once or later.
    Clear {
        /// From where.
        at: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// This peer does not keep the rules: end its connection.
    Cut {
        /// Whom.
        node: NodeId,
    },
    /// Ask the cluster for a name; comes back with [`Engine::claimed`](super::Engine::claimed).
    Claim {
        /// The engine's number.
        claim: ClaimId,
        /// The name.
        name: Name,
        /// How long it is waited for, in microseconds.
        within_us: u32,
    },
    /// Give a name back; comes back with [`Engine::disclaimed`](super::Engine::disclaimed).
    Disclaim {
        /// The engine's number.
        claim: ClaimId,
        /// The name.
        name: Name,
    },
    /// Ask the cluster where a name is; comes back with [`Engine::confirmed`](super::Engine::confirmed).
    Confirm {
        /// Who waits for it.
        step: StepId,
        /// The name.
        name: Name,
        /// How long it is waited for, in microseconds.
        within_us: u32,
    },
    /// Tell a client. If `data` says so, the first bytes at that place of the pool go into the completion.
    Reply {
        /// Whom.
        lane: LaneId,
        /// What.
        completion: Completion,
        /// A place in the pool and a number of bytes.
        data: Option<(u64, u8)>,
    },
}
