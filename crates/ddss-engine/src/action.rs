//! Actions: the effects that the engine asks for. The daemon executes them in order.

mod bytes;
mod control_action;
mod peer_action;

use crate::ids::BufferId;
pub use bytes::{CommitSource, FetchTarget, MessageBody, RangeSet};
pub use control_action::ControlAction;
use ddss_core::{
    ArenaRange, BucketGarbage, ChannelId, ClientId, Completion, EntryChange, Header, LockToken, MapLayout, NodeId,
    Payload, Record, RecordPlace, RowList, SegmentId, TableLayout, Timestamp, Version,
};
pub use peer_action::{Fetch, PeerAction};

/// Result of a search for garbage in buckets of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GarbageSearch {
    /// End of the buckets at the begin of the search.
    pub begin: u64,
    /// Last bucket that was looked at: the one with garbage, if any has some.
    pub end: u64,
    /// State word of that bucket.
    pub state: u64,
    /// State word of the bucket that its orphans belong to.
    pub owner_state: u64,
    /// Content of that bucket that has to be cleared.
    pub garbage: BucketGarbage,
    /// Earliest expiry of an entry in these buckets, in milliseconds since 1970; 0 for none.
    pub expiry_ms: u64,
    /// Bytes that were read.
    pub bytes: usize,
}

impl GarbageSearch {
    /// Bytes after which a slice ends early: large keys and links make a bucket long to look through.
    pub(crate) const BYTES_MAX: usize = 64 << 10;
    /// Bytes that a read counts for besides those that it copies.
    const BYTES_PER_READ: usize = 64;

    /// Searches the buckets from `first` to `end`, from the last one down, until so many bytes were read; `None` if the table
    /// is no map. `read` copies bytes of the pool: all of one moment.
    pub fn find(
        (at, layout, rows): (u64, TableLayout, u64),
        (first, end): (u64, u64),
        bytes_max: usize,
        now_ms: u64,
        read: impl Fn(u64, &mut [u8]),
    ) -> Option<Self> {
        let mut description = [0; MapLayout::DESCRIPTION_BYTES];
        read(layout.record(0).of_segment(at).data, &mut description);
        let (row, next) = layout.bounds(1);
        let map = MapLayout::of_description(&description, rows, next - row)?;
        let place = |bucket: u64| layout.record(bucket + 1).of_segment(at);
        let state_of = |bucket| {
            let mut state = [0; 8];
            read(place(bucket).header, &mut state);
            u64::from_le_bytes(state)
        };
        let garbage = BucketGarbage::default();
        let mut search = Self { begin: end, end, state: 0, owner_state: 0, garbage, expiry_ms: 0, bytes: 0 };
        for bucket in (first..end).rev() {
            search.end = bucket;
            search.garbage = map.garbage_in(bucket, now_ms, |bucket, offset, into| {
                search.bytes += into.len() + Self::BYTES_PER_READ;
                read(place(bucket).data + layout.bounds(bucket + 1).0 + offset as u64, into);
            });
            let expiry_ms = search.garbage.expiry_ms;
            if expiry_ms > 0 && (search.expiry_ms == 0 || expiry_ms < search.expiry_ms) {
                search.expiry_ms = expiry_ms;
            }
            if search.garbage.is_found() {
                search.state = state_of(bucket);
                search.owner_state = search.garbage.orphans.as_ref().map_or(0, |orphans| state_of(orphans.owner));
                break;
            }
            if search.bytes >= bytes_max {
                break;
            }
        }
        Some(search)
    }
}

/// One effect for the daemon to execute. Those without an enumeration of their own happen in this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Makes a segment: provides zeroed memory, writes its header and then its record. Answered with
    /// [`Engine::on_formatted`](super::Engine::on_formatted), at once or later.
    Format {
        /// Record to write; it names the header's place.
        record: Record,
        /// Header to write.
        header: Header,
        /// Total bytes, with the header and the history.
        bytes: u64,
    },
    /// Rewrites a segment's record, atomically.
    RewriteRecord {
        /// New record.
        record: Record,
    },
    /// Moves a segment to another place: header, bytes and history. Then rewrites its record and erases the headers in
    /// the old place. Answered with [`Engine::on_moved`](super::Engine::on_moved), before the next action.
    Move {
        /// Record with the new place.
        record: Record,
        /// Old place.
        from: u64,
        /// Total bytes.
        bytes: u64,
    },
    /// Deletes the record of a segment.
    DeleteRecord {
        /// Segment to delete.
        segment: SegmentId,
    },
    /// Erases a header, so that readers see that no segment is there.
    EraseHeader {
        /// Pool offset of the header.
        at: u64,
    },
    /// Copies a segment's bytes into a client's arena, range after range.
    CopyOut(CopyOut),
    /// Replaces bytes of a segment and advances its version, so that no reader takes a mix for a whole.
    Commit(SegmentCommit),
    /// Replaces many bytes of a segment by bytes of the pool and advances its version, like [`Commit`](Self::Commit),
    /// but over many rounds. Answered with [`Engine::on_large_committed`](super::Engine::on_large_committed).
    CommitLarge {
        /// Segment to write.
        segment: SegmentId,
        /// Pool offset of the header.
        at: u64,
        /// Offset of the first byte in the segment.
        offset: u64,
        /// Length in bytes.
        bytes: u32,
        /// Pool offset of the new bytes.
        from: u64,
        /// New version.
        version: Version,
        /// Timestamp of the new version.
        timestamp: Timestamp,
        /// True if its undo log has the memory that [`ReserveUndo`](Self::ReserveUndo) reserved: the commit does not fail.
        has_undo: bool,
    },
    /// Reserves the memory of the undo log for a later [`CommitLarge`](Self::CommitLarge), over many rounds. Answered with
    /// [`Engine::on_undo_reserved`](super::Engine::on_undo_reserved). Reservations are counted, and all use the same memory.
    ReserveUndo {
        /// Segment to write later.
        segment: SegmentId,
        /// Pool offset of the header.
        at: u64,
        /// Length of the value in bytes.
        bytes: u32,
        /// Timestamp of the put.
        timestamp: Timestamp,
    },
    /// Ends a reservation whose commit will not come.
    ReleaseUndo,
    /// Continues the sweep of a map after other work, as background work does. Answered with
    /// [`Engine::sweep_slice`](super::Engine::sweep_slice), later.
    ContinueSweep {
        /// Map to sweep.
        segment: SegmentId,
    },
    /// Looks through buckets of a map, from the last one down, for the first one with something that no get finds any more:
    /// [`GarbageSearch::find`]. Answered with [`Engine::on_garbage_found`](super::Engine::on_garbage_found), before the next action.
    FindGarbage {
        /// Table to look through.
        segment: SegmentId,
        /// Pool offset of its header.
        at: u64,
        /// Layout of its rows.
        layout: TableLayout,
        /// Number of rows.
        rows: u64,
        /// First bucket.
        first: u64,
        /// End of the buckets.
        end: u64,
        /// Bytes after which the search ends early.
        bytes_max: usize,
    },
    /// Copies bytes of a later commit into the pool, where no client or peer can change them.
    CopyAside {
        /// Source of the bytes.
        source: CommitSource,
        /// Length in bytes.
        bytes: u32,
        /// Destination in the pool.
        to: u64,
    },
    /// Writes bytes into a replica that is not complete yet, so that no reader looks at it.
    Fill {
        /// Pool offset of the segment's data.
        at: u64,
        /// Source of the bytes.
        source: CommitSource,
        /// Ranges to write.
        parts: RangeSet,
    },
    /// Writes the version of a segment's bytes into its header.
    WriteVersion {
        /// Pool offset of the header.
        at: u64,
        /// Version to write.
        version: Version,
        /// Timestamp of the version; 0 if the bytes belong to no version.
        timestamp: Timestamp,
    },
    /// Saves the current version into the history: copies all bytes and writes `header` in front of them.
    SaveVersion {
        /// Pool offset of the segment's header.
        at: u64,
        /// Pool offset of the saved version's header.
        to: u64,
        /// Header of the saved version.
        header: Header,
    },
    /// Copies ranges of a segment to another place of the pool, back to back.
    Snapshot {
        /// Pool offset of the segment's data.
        at: u64,
        /// Ranges to copy.
        parts: RangeSet,
        /// Destination in the pool.
        to: u64,
    },
    /// Copies bytes that a peer wrote into this node's staging memory into a client's arena.
    Unstage {
        /// Peer whose part of the staging memory it is.
        node: NodeId,
        /// Offset in that part.
        at: u64,
        /// Client that owns the arena.
        client: ClientId,
        /// Destination in the arena.
        into: ArenaRange,
    },
    /// Writes a buffer of the engine into a client's arena.
    WriteOut {
        /// Buffer to write: [`Engine::buffer`](super::Engine::buffer).
        buffer: BufferId,
        /// Client that owns the arena.
        client: ClientId,
        /// Destination in the arena.
        into: ArenaRange,
    },
    /// Reads one word of a segment. Answered with [`Engine::on_word_read`](super::Engine::on_word_read), before the next
    /// action.
    ReadWord {
        /// Pool offset of the word.
        at: u64,
    },
    /// Reads state word and timestamp of a table's record, and one word of its row. Answered with
    /// [`Engine::on_record_read`](super::Engine::on_record_read), before the next action.
    ReadRecord {
        /// Place of the record in the pool.
        place: RecordPlace,
        /// Offset of the word, if one is wanted.
        word: Option<u64>,
    },
    /// Reads state word and timestamp of a bucket's record, and searches the bucket for the key that `source` begins
    /// with. Answered with [`Engine::on_entry_found`](super::Engine::on_entry_found), before the next action. The source is
    /// used again.
    FindEntry {
        /// Place of the record in the pool.
        place: RecordPlace,
        /// Offset of the bucket.
        offset: u64,
        /// Place of the bytes of row 0, which describes the map.
        description: u64,
        /// Change whose entry is searched.
        change: EntryChange,
        /// Source of the slot's word and the key.
        source: CommitSource,
    },
    /// Replaces bytes of one row of a table and advances its record's version, like [`Commit`](Self::Commit).
    CommitRecord {
        /// Place of the record in the pool.
        place: RecordPlace,
        /// Ranges to write; the source holds them back to back.
        parts: RangeSet,
        /// Source of the bytes.
        source: CommitSource,
        /// New version.
        version: Version,
        /// Timestamp of the new version.
        timestamp: Timestamp,
    },
    /// Reads the greatest timestamp of records in a client's arena. Comes back with
    /// [`Engine::on_timestamp_read`](super::Engine::on_timestamp_read).
    ReadTimestamp {
        /// Client that got the rows.
        client: ClientId,
        /// Range with numbers and records.
        range: ArenaRange,
        /// Shape of that range.
        list: RowList,
    },
    /// Writes the exclusive lock holder into a segment's header.
    SetLockHolder {
        /// Pool offset of the header.
        at: u64,
        /// Token of the lock; zero for no holder.
        holder: LockToken,
    },
    /// Zeroes memory that no reader can reach any more and gives its pages back to the system. Answered with
    /// [`Engine::on_cleared`](super::Engine::on_cleared), at once or later.
    ZeroFill {
        /// Pool offset.
        at: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Completes a client's request. The pool bytes that `data` names go into the completion first.
    Reply(Reply),
    /// Gives work to the fabric.
    Peer(PeerAction),
    /// Asks the control plane, if the node belongs to a cluster.
    Control(ControlAction),
}

/// Content of [`Action::CopyOut`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyOut {
    /// Pool offset of the segment's data.
    pub at: u64,
    /// Ranges to copy.
    pub parts: RangeSet,
    /// Client that owns the arena.
    pub client: ClientId,
    /// Destination in the arena.
    pub into: ArenaRange,
}

/// Content of [`Action::Commit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentCommit {
    /// Pool offset of the header.
    pub at: u64,
    /// Ranges to write; the source holds them back to back.
    pub parts: RangeSet,
    /// Source of the bytes.
    pub source: CommitSource,
    /// New version.
    pub version: Version,
    /// Timestamp of the new version.
    pub timestamp: Timestamp,
}

/// Content of [`Action::Reply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Channel of the client.
    pub channel: ChannelId,
    /// Completion of the request.
    pub completion: Completion,
    /// Offset and length of pool bytes that are copied into the completion's data first.
    pub data: Option<(u64, u8)>,
}

/// Content of [`Action::Commit`] for a put of one range by a local client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Pool offset of the segment's header.
    pub at: u64,
    /// Offset of the first byte to replace.
    pub offset: u64,
    /// Client that puts.
    pub client: ClientId,
    /// Bytes to write.
    pub from: Payload,
    /// The new version.
    pub version: Version,
    /// Timestamp of the new version.
    pub timestamp: Timestamp,
}

impl Commit {
    /// Returns the general form of the action.
    pub fn action(&self) -> Action {
        let Self { at, offset, client, from, version, timestamp } = *self;
        let parts = RangeSet::One { offset, bytes: from.length() };
        Action::Commit(SegmentCommit { at, parts, source: CommitSource::Client(client, from), version, timestamp })
    }
}
