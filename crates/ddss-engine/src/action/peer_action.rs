//! Actions for the fabric: messages to other nodes, and transfers between memories.

use super::bytes::{FetchTarget, MessageBody, RangeSet};
use crate::ids::{BufferId, ServedGetId, StepId};
use ddss_core::{ArenaRange, ClientId, Message, NodeId, RecordPlace, RemoteWindow, RowList, TableLayout};

/// Effect that needs the fabric: messages to other nodes, and transfers between memories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAction {
    /// Sends a message to another node.
    Send {
        /// Receiver.
        node: NodeId,
        /// Message to send.
        message: Message,
        /// Bytes that follow its fields.
        tail: MessageBody,
    },
    /// Writes pool bytes into the staging memory that `node` keeps for this node, and sends `message` behind them:
    /// both, or neither.
    SendStaged {
        /// Peer that asked for them.
        node: NodeId,
        /// Id that comes back with [`Engine::on_served_get_sent`](crate::Engine::on_served_get_sent).
        served_get: ServedGetId,
        /// Offset in the staging memory.
        at: u64,
        /// Pool offset of the bytes.
        from: u64,
        /// Length in bytes.
        bytes: u32,
        /// The [`Message::Got`], [`Message::Piece`], [`Message::Forward`] or [`Message::ForwardPart`].
        message: Message,
        /// Table of its ranges, if it has one.
        table: Option<BufferId>,
    },
    /// Sends [`Message::Found`] with a window over the segment that only this peer may use.
    GrantWindow {
        /// Receiver.
        node: NodeId,
        /// A [`Message::Found`] whose window the daemon fills in.
        message: Message,
        /// Pool offset of the segment's header.
        at: u64,
        /// Bytes of the window: header line and data.
        bytes: u64,
    },
    /// Revokes every peer's window over this memory.
    RevokeWindow {
        /// Pool offset of the segment's header.
        at: u64,
    },
    /// Disconnects a peer that broke the protocol.
    Disconnect {
        /// Peer to disconnect.
        node: NodeId,
    },
    /// Writes a client's bytes into the staging memory that `node` keeps for this node, and sends the put that commits
    /// them: both, or neither.
    Stage {
        /// Home of the segment.
        node: NodeId,
        /// Step that comes back with [`Engine::on_staged`](crate::Engine::on_staged).
        step: StepId,
        /// Offset in the staging memory.
        at: u64,
        /// Client that owns the arena.
        client: ClientId,
        /// Source in the arena.
        from: ArenaRange,
        /// Message that commits them.
        message: Message,
        /// Table of its ranges, if it has one.
        table: Option<BufferId>,
    },
    /// Reads ranges of a remote segment, with a header before and its state word after them.
    Fetch(Fetch),
    /// Reads ranges of one row of a remote table: the segment's header, the record's header, the ranges, and the
    /// record's state word again. Comes back with [`Engine::on_fetched`](crate::Engine::on_fetched), with state and timestamp
    /// of the record in the segment's header.
    FetchRecord {
        /// Home of the segment.
        node: NodeId,
        /// Step that comes back.
        step: StepId,
        /// Window over the segment.
        window: RemoteWindow,
        /// Place of the record in the window.
        place: RecordPlace,
        /// Ranges to read.
        parts: RangeSet,
        /// Destination, back to back.
        target: FetchTarget,
    },
    /// Reads the first bytes of rows of a remote table, each row with its two words by one read, and then the segment's
    /// header. The row numbers lie in the client's arena; a number that the table does not have is refused. Comes back
    /// with [`Engine::on_fetched`](crate::Engine::on_fetched), or is [refused](crate::Engine::on_refused).
    FetchRows {
        /// Home of the segment.
        node: NodeId,
        /// Step that comes back.
        step: StepId,
        /// Window over the segment.
        window: RemoteWindow,
        /// Layout of the table.
        layout: TableLayout,
        /// Number of rows of the table.
        rows: u64,
        /// Client that gets the rows.
        client: ClientId,
        /// Range with numbers and records.
        range: ArenaRange,
        /// Shape of that range.
        list: RowList,
    },
}

/// Content of [`PeerAction::Fetch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Home of the segment.
    pub node: NodeId,
    /// Step that comes back with [`Engine::on_fetched`](crate::Engine::on_fetched).
    pub step: StepId,
    /// Window over its memory: header line and bytes.
    pub window: RemoteWindow,
    /// Offset in the window of the header that validates the bytes behind it.
    pub line: u64,
    /// Ranges to read.
    pub parts: RangeSet,
    /// Destination, back to back.
    pub target: FetchTarget,
}
