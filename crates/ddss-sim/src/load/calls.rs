//! Simulated clients and their calls.

use crate::oracle::{EntryContent, OperationKind};
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{
    ArenaRange, BucketLayout, ClientId, EntryChangeKind, LockToken, MapLayout, Model, RowList, SegmentId, SlotWord,
    UploadId,
};
use ddss_engine::RoleAssignment;

/// Bytes of a client's arena.
pub(crate) const ARENA_BYTES: usize = 4 * ARENA_SLOT_BYTES;
/// Lease of the locks of simulated clients.
pub(crate) const LEASE_US: u32 = 20_000;

/// Kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Get,
    GetAsking(Model),
    GetAt(u64),
    GetMany,
    Put,
    PutIf(u64),
    PutMany,
    /// Sends a part of a large put; after the last one, commits it.
    UploadPart,
    CommitUpload(Option<u64>),
    /// Adds one to the word of a counter.
    Add,
    /// Takes the lock, makes calls under it, and unlocks. In a table it is that of one row, or of the whole table.
    Lock {
        shared: bool,
        of_row: bool,
    },
    GetHeld,
    PutHeld,
    AddHeld,
    /// Extends the lease of the lock.
    Renew,
    Unlock,
    Await(u64),
    /// Waits for the change of any row of a table after the change of that number.
    AwaitAnyRow(u64),
    /// Changes the entry of a key, or reads the bucket.
    ChangeEntry(EntryChangeKind, u64),
    GetBucket,
    /// Frees the expired entries of a map.
    Sweep,
    Stat,
    Permit(u16),
    List(u16),
    /// Allocates, opens and releases temporary segments.
    Make(usize),
    Open(usize),
    Release(usize),
    /// Reads a released segment.
    GetGone,
}

/// Content of a segment, or of a row of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// Values of puts, each over all bytes.
    Values,
    /// Additions of 1 to the first word.
    Counter,
    /// Entries of a map.
    Bucket,
}

/// A segment, or a row of a table, as the clients know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) id: SegmentId,
    /// Row of a table.
    pub(crate) row: Option<u64>,
    pub(crate) content: Content,
    /// Bytes of the segment, or of the row.
    pub(crate) length: usize,
    pub(crate) model: Model,
    pub(crate) history_len: u32,
    /// True if the segment has or had a replica.
    pub(crate) replicated: bool,
}

impl Target {
    /// Number of rows of each table, below 32.
    pub(crate) const ROWS: u64 = 4;
    /// Returns the layout of all maps.
    pub(crate) fn bucket_layout() -> BucketLayout {
        BucketLayout::new(8, 8).expect("sizes of a map")
    }

    /// Returns a key of a bucket.
    pub(crate) fn key_of_bucket(bucket: u64, number: u64) -> u64 {
        let owner = |key: &u64| MapLayout::bucket_of(MapLayout::hash([0; 2], &key.to_le_bytes()), Self::ROWS - 1);
        (0..).filter(|key| owner(key) == bucket).nth(number as usize).expect("each bucket has keys")
    }

    /// Returns the number of the target in histories. The upper bits of an id are those of the shard, which is 0.
    pub(crate) fn key(&self) -> u64 {
        self.id.to_bits() | self.row.unwrap_or(0) << 59
    }

    /// Returns the offset of its first byte in the segment.
    pub(crate) fn offset(&self) -> u64 {
        self.row.unwrap_or(0) * self.length as u64
    }

    /// Returns a row of the same table. The first row of a table of values is a counter; that of a map has no bucket.
    pub(crate) fn with_row(self, row: u64) -> Self {
        let content = match self.content {
            Content::Bucket => Content::Bucket,
            _ if row == 0 => Content::Counter,
            _ => Content::Values,
        };
        Self { row: Some(row), content, ..self }
    }
}

/// A lock that a client holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldLock {
    pub(crate) target: Target,
    pub(crate) token: LockToken,
    pub(crate) shared: bool,
    /// True for the lock of a row.
    pub(crate) of_row: bool,
    /// Time of the request, and time at which the holder received the grant.
    pub(crate) asked_us: u64,
    pub(crate) granted_us: u64,
    /// Time of the request of the last renewal that succeeded.
    pub(crate) renewed_us: Option<u64>,
    /// Version that the holder saw under the lock.
    pub(crate) version: Option<u64>,
    /// True after the last call under the lock.
    pub(crate) over: bool,
}

/// A large put in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Upload {
    pub(crate) target: Target,
    pub(crate) id: UploadId,
    /// Bytes that were sent.
    pub(crate) done: usize,
    pub(crate) mark: u64,
}

impl Upload {
    /// Returns the length of the next part; 0 after the last one.
    pub(crate) fn next_part(&self) -> usize {
        (self.target.length / 2 + 8).min(self.target.length - self.done)
    }
}

/// A client's watch of all rows of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowWatch {
    pub(crate) target: Target,
    /// Number of the newest change of which the client was notified.
    pub(crate) number: u64,
    /// Newest version of each row when the client was notified of that row.
    pub(crate) known: [u64; Target::ROWS as usize],
}

/// An entry of a map that a client has read, and may replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeenEntry {
    pub(crate) target: Target,
    pub(crate) key: u64,
    pub(crate) content: EntryContent,
}

impl SeenEntry {
    /// Returns the digest of the entry; the maps of the simulation have no seed.
    pub(crate) fn digest(&self) -> u64 {
        let (value, expiry_ms) = self.content;
        BucketLayout::digest([0; 2], SlotWord::new(self.key, expiry_ms), &value.to_le_bytes())
    }
}

/// A call in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCall {
    pub(crate) kind: Kind,
    pub(crate) request: u64,
    pub(crate) began_us: u64,
    pub(crate) target: Target,
    pub(crate) mark: Option<u64>,
    /// Content that the change of an entry writes.
    pub(crate) content: EntryContent,
    /// Entry that a replacement expects.
    pub(crate) expected: Option<SeenEntry>,
    /// Destination of a get in the arena.
    pub(crate) range: ArenaRange,
    /// Newest version at the home at the time of the request.
    pub(crate) newest: u64,
    /// Newest timestamp that clients of its node had seen at the time of the request.
    pub(crate) heard: u64,
    /// Home and replica, if the segment was in sync at the time of the request.
    pub(crate) pairing: Option<RoleAssignment>,
}

impl PendingCall {
    /// Returns true if it asks for its row as for several rows: some of the gets of buckets.
    pub(crate) fn asks_for_rows(&self) -> bool {
        self.kind == Kind::GetBucket && self.request.is_multiple_of(2)
    }

    /// Returns the list of its row.
    pub(crate) fn row_list(&self) -> RowList {
        RowList::new(1, self.target.length).expect("one row is not too large")
    }

    /// Returns the kind of operation for the history.
    pub(crate) fn what(&self) -> Option<OperationKind> {
        Some(match self.kind {
            Kind::Get | Kind::GetMany => OperationKind::Get(None),
            Kind::GetAsking(model) => OperationKind::Get(Some(model)),
            Kind::GetHeld => OperationKind::Get(Some(Model::Strict)),
            Kind::GetAt(version) => OperationKind::GetAt(version),
            Kind::Put | Kind::PutMany | Kind::PutHeld => OperationKind::Put,
            Kind::CommitUpload(None) => OperationKind::Put,
            Kind::PutIf(version) | Kind::CommitUpload(Some(version)) => OperationKind::PutIf(version),
            _ => return None,
        })
    }

    /// Returns the row of a table that the call concerns, or that it locks.
    pub(crate) fn row(&self) -> Option<u64> {
        let locks_table = matches!(self.kind, Kind::Lock { of_row: false, .. });
        self.target.row.filter(|_| !locks_table)
    }

    pub(crate) fn adds(&self) -> bool {
        matches!(self.kind, Kind::Add | Kind::AddHeld)
    }
}

/// A simulated client, with one operation at a time.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) arena: Vec<u8>,
    pub(crate) asked: Option<PendingCall>,
    /// Request past its deadline that may still use the arena: the client waits for its late completion.
    pub(crate) lingering: Option<u64>,
    pub(crate) held: Option<HeldLock>,
    pub(crate) upload: Option<Upload>,
    /// Watch of all rows of a table.
    pub(crate) watch: Option<RowWatch>,
    /// Entry that the client has read and not changed since.
    pub(crate) entry: Option<SeenEntry>,
    /// Last segment that the client saw, and its version.
    pub(crate) seen: Option<(u64, u64)>,
}

impl Client {
    pub(crate) fn new(id: ClientId) -> Self {
        Self {
            id,
            arena: vec![0; ARENA_BYTES],
            asked: None,
            lingering: None,
            held: None,
            upload: None,
            watch: None,
            entry: None,
            seen: None,
        }
    }
}
