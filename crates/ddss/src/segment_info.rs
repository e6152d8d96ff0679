//! Descriptions of segments, and events of their names and rows.

use crate::spec::Mode;
use crate::value::Stamp;
use ddss_core::{DegradedReason, Listing, LockHolder, Model, NodeId, ReplicationInfo, SegmentId, Storage};

/// Owner and mode bits of a segment, as with a file (`x` has no meaning).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Mode, Permissions};
/// let scores = client.segment("scores").allocate(64)?;
/// let own = scores.stat()?.permissions;
/// // The owner reads and writes, the owner's group reads, other users do neither.
/// scores.set_permissions(Permissions { mode: Mode(0o640), ..own })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Permissions {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The nine Unix bits.
    pub mode: Mode,
}

/// Holders and waiters of a segment's lock.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let door = client.segment("door").allocate(64)?;
/// let guard = door.lock()?;
/// let lock: ddss::LockInfo = door.stat()?.lock;
/// assert!(lock.is_exclusive && lock.holders == 1 && lock.waiting == 0);
/// # guard.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LockInfo {
    /// Number of holders, of the segment and of rows.
    pub holders: u16,
    /// True if the lock is held exclusively.
    pub is_exclusive: bool,
    /// Number of queued operations.
    pub waiting: u16,
    /// Blocking holder of the segment's lock; `None` while only rows of a table are locked.
    pub holder: Option<LockHolder>,
}

/// Description of a segment by its home at one moment.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # client.segment("scores").allocate(64)?;
/// for info in client.list("") {
///     let info: ddss::SegmentInfo = info?;
///     println!("{}: {} bytes at {} on {}", info.name, info.len, info.stamp.version, info.home);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SegmentInfo {
    /// Its name.
    pub name: String,
    /// Its id, which is never reused.
    pub id: SegmentId,
    /// Its size in bytes.
    pub len: u64,
    /// Bytes of a row of a table; 0 for a plain segment.
    pub row_len: u32,
    /// Its coherence model.
    pub model: Model,
    /// Its owner and mode.
    pub permissions: Permissions,
    /// Number of nodes with a copy: 1 or 2.
    pub copies: u8,
    /// Number of older versions that it keeps.
    pub history: u32,
    /// Storage of its bytes.
    pub storage: Storage,
    /// Current home.
    pub home: NodeId,
    /// Node of its replica.
    pub replica: Option<NodeId>,
    /// State of the replica.
    pub replication: ReplicationInfo,
    /// Reason why the chosen node has no replica, if the segment is degraded.
    pub degraded: Option<DegradedReason>,
    /// Its version and timestamp.
    pub stamp: Stamp,
    /// Its lock.
    pub lock: LockInfo,
    /// Number of nodes whose clients have opened it.
    pub readers: u16,
}

impl SegmentInfo {
    pub(crate) fn of(listing: &Listing) -> Self {
        let Listing { name, info, version, timestamp, holders, locked, waiting, holder, .. } = *listing;
        let ddss_core::Permissions { owner, mode } = info.permissions;
        Self {
            name: name.as_str().to_owned(),
            id: info.segment,
            len: info.bytes,
            row_len: info.row_bytes,
            model: info.model,
            permissions: Permissions { uid: owner.uid, gid: owner.gid, mode: Mode(mode) },
            copies: info.copies,
            history: info.history_len,
            storage: info.storage,
            home: listing.home,
            replica: Some(listing.replica).filter(|&node| node != NodeId::NONE),
            replication: listing.replication,
            degraded: listing.degraded,
            stamp: Stamp { version, timestamp },
            lock: LockInfo { holders, is_exclusive: locked, waiting, holder },
            readers: listing.readers,
        }
    }
}

/// A segment that was created or released, under a name that is watched.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::SegmentEvent;
/// client.segment("jobs/1").allocate(64)?;
/// let first = client.watch("jobs/")?.next().transpose()?;
/// assert!(matches!(first, Some(SegmentEvent::Created(job)) if job.name == "jobs/1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SegmentEvent {
    /// The name stands for this segment.
    Created(SegmentInfo),
    /// The name does not stand for a segment any more, or this user may not know of it any more.
    Released(String),
}

/// A change of a table's rows, which [`Table::watch`](crate::Table::watch) reports.
///
/// The event has no version: another one may follow before the caller reads the row, and [`Row::get`](crate::Row::get) returns it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{RowEvent, Table};
/// let stock: Table<u64> = client.table("stock").allocate(100)?;
/// let mut cached = vec![0; 100];
/// for event in stock.watch() {
///     let rows = match event? {
///         RowEvent::Changed { row } => row..row + 1,
///         _ => 0..stock.len(),
///     };
///     for row in rows {
///         cached[row as usize] = stock.row(row).get()?.value;
///     }
/// #   if cached[7] == 12 { break }
/// #   stock.row(7).put(&12)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RowEvent {
    /// This row has changed.
    Changed {
        /// Its number.
        row: u64,
    },
    /// The watch has begun, or has missed changes: each row may have changed.
    Missed,
}

impl RowEvent {
    pub(crate) fn of(row: Option<u64>) -> Self {
        row.map_or(Self::Missed, |row| Self::Changed { row })
    }
}
