//! What the engine wants done. The daemon does these in order; each is one thing.

use super::remote::name_claims::ClaimId;
use super::remote::served_get::ServedGetId;
use super::replication::state::Proposal;
use super::state::buffer_pool::BufferId;
use super::state::pending::StepId;
use crate::model::record::Record;
use crate::model::segment::{Header, Name};
use crate::peer::message::RemoteWindow;
use crate::request::operation::{ArenaRange, LockToken, Payload};
use crate::{ChannelId, ClientId, Completion, Message, NodeId, SegmentId, Timestamp, Version};

/// Where the bytes of a commit are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitSource {
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
    Kept(BufferId),
    /// One word.
    Word(u64),
    /// In this node's pool, from there on.
    Pool(u64),
}

/// Which bytes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeSet {
    /// One range.
    One {
        /// From where.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// Several; [`Engine::ranges`](super::Engine::ranges) tells which.
    Many {
        /// With the engine.
        table: BufferId,
        /// All together.
        bytes: u32,
    },
}

impl RangeSet {
    /// How many bytes, all together.
    pub const fn bytes(&self) -> u32 {
        match self {
            RangeSet::One { bytes, .. } | RangeSet::Many { bytes, .. } => *bytes,
        }
    }
}

/// Where the bytes of a fetch go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchTarget {
    /// To a client.
    Arena(ClientId, ArenaRange),
    /// Into this node's pool, from there on.
    Pool(u64),
}

/// What stands behind the fields of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageBody {
    /// Nothing.
    None,
    /// Bytes of a client.
    Client(ClientId, Payload),
    /// Bytes of the engine: [`Engine::kept`](super::Engine::kept).
    Kept(BufferId),
    /// Bytes of a segment whose data begin there in the pool.
    Pool(u64, RangeSet),
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
        /// Bytes that it takes in all, with the header and with what is kept of it.
        bytes: u64,
    },
    /// Write a segment's record again, all of it or nothing.
    Rewrite {
        /// The new one.
        record: Record,
    },
    /// Bring a segment to another place: its header, its bytes, what is kept of it. Then write its record again, and make
    /// the headers in the old place say that nobody lives there. Answer with [`Engine::moved`](super::Engine::moved),
    /// before anything else is done.
    Move {
        /// Its record, with the new place.
        record: Record,
        /// Where it is.
        from: u64,
        /// How much it is, all together.
        bytes: u64,
    },
    /// Strike the record of a segment.
    Strike {
        /// Which.
        segment: SegmentId,
    },
    /// Make a header say that nobody lives here.
    Erase {
        /// Where its header is.
        at: u64,
    },
    /// Copy a segment's bytes into a client's arena, one part behind the other.
    CopyOut {
        /// Where its data begin in the pool.
        at: u64,
        /// Which of them.
        parts: RangeSet,
        /// Whose arena.
        client: ClientId,
        /// To where in it, and how many.
        into: ArenaRange,
    },
    /// Replace bytes of a segment and step its version, so that no reader takes a mix for a whole.
    Commit {
        /// Where its header is.
        at: u64,
        /// Which bytes; those that come are one part behind the other.
        parts: RangeSet,
        /// From where.
        source: CommitSource,
        /// The version that this makes.
        version: Version,
        /// When.
        timestamp: Timestamp,
    },
    /// Copy bytes that are to be committed later to a place of the pool, where nobody else can change them.
    Aside {
        /// From where.
        source: CommitSource,
        /// How many.
        bytes: u32,
        /// To where in the pool.
        to: u64,
    },
    /// Write bytes into a copy that is not whole yet: no reader looks at it.
    Fill {
        /// Where its data begin in the pool.
        at: u64,
        /// From where.
        source: CommitSource,
        /// To where in it, and how many.
        parts: RangeSet,
    },
    /// Write into a segment's header which version its bytes are.
    Stamp {
        /// Where its header is.
        at: u64,
        /// The version.
        version: Version,
        /// When it was made; 0 if the bytes are of no version.
        timestamp: Timestamp,
    },
    /// Let the cluster decide about a mirrored segment; comes back with [`Engine::duty`](super::Engine::duty), if it was
    /// decided so.
    Decide {
        /// What.
        decision: Proposal,
    },
    /// Copy all bytes of a segment to where this version of them is kept, and write that header in front of them.
    Keep {
        /// Where the segment's header is.
        at: u64,
        /// Where the header of the copy is.
        to: u64,
        /// What it says.
        header: Header,
    },
    /// Copy parts of a segment to another place of the pool, one behind the other.
    Snapshot {
        /// Where its data begin in the pool.
        at: u64,
        /// Which of them.
        parts: RangeSet,
        /// To where in the pool.
        to: u64,
    },
    /// Write bytes of the pool into the staging memory that `node` keeps for us, and behind them send the message that
    /// says so: both, or neither.
    Hand {
        /// Who asked for them.
        node: NodeId,
        /// Comes back with [`Engine::handed`](super::Engine::handed).
        hand: ServedGetId,
        /// Where in the staging memory.
        at: u64,
        /// From where in the pool.
        from: u64,
        /// How many bytes.
        bytes: u32,
        /// The [`Message::Got`].
        message: Message,
        /// The table of its ranges, if it has one.
        table: Option<BufferId>,
    },
    /// Copy what a peer has written into this node's staging memory into a client's arena.
    Unstage {
        /// Which peer's part of it.
        node: NodeId,
        /// From where in that part.
        at: u64,
        /// Whose arena.
        client: ClientId,
        /// To where in it, and how many.
        into: ArenaRange,
    },
    /// Write bytes of the engine into a client's arena.
    WriteOut {
        /// Which bytes: [`Engine::kept`](super::Engine::kept).
        kept: BufferId,
        /// Whose arena.
        client: ClientId,
        /// To where in it, and how many.
        into: ArenaRange,
    },
    /// Look at one word of a segment and answer with [`Engine::looked`](super::Engine::looked), before anything else.
    Look {
        /// Where in the pool.
        at: u64,
    },
    /// Write into a segment's header who holds its lock alone.
    Mark {
        /// Where its header is.
        at: u64,
        /// The token of the lock; zero if nobody does.
        holder: LockToken,
    },
    /// Read parts of a remote segment, with a header before and its state word after.
    Fetch {
        /// Its home.
        node: NodeId,
        /// Comes back with [`Engine::fetched`](super::Engine::fetched).
        step: StepId,
        /// Its memory: header line and bytes.
        window: RemoteWindow,
        /// Where in the window the header is that proves the bytes behind it.
        line: u64,
        /// Which bytes.
        parts: RangeSet,
        /// To where, one behind the other.
        target: FetchTarget,
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
        /// The table of its ranges, if it has one.
        table: Option<BufferId>,
    },
    /// Say something to another node.
    Send {
        /// Whom.
        node: NodeId,
        /// What.
        message: Message,
        /// What stands behind its fields.
        tail: MessageBody,
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
        lane: ChannelId,
        /// What.
        completion: Completion,
        /// A place in the pool and a number of bytes.
        data: Option<(u64, u8)>,
    },
}
