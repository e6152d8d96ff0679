//! Listings: the description of segments in a list or a stat.

use crate::codec::fields::{Reader, Writer};
use crate::failure::Failure;
use crate::limits::{INLINE_REPLY_BYTES_MAX, LIST_TEXT_BYTES_MAX, NAME_BYTES_MAX};
use crate::model::segment::Name;
use crate::peer::message::SegmentInfo;
use crate::peer::replica_reply::Refusal;
use crate::{NodeId, Timestamp, Version};
use arrayvec::{ArrayString, ArrayVec};
use std::fmt;

/// State of a segment's replica.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::ReplicationInfo;
/// /// Whether it would still be there without its home.
/// fn is_safe(state: ReplicationInfo) -> bool {
///     state == ReplicationInfo::InSync
/// }
/// assert_eq!(ReplicationInfo::default().as_str(), "none");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum ReplicationInfo {
    /// The segment has no replica.
    #[default]
    None = 0,
    /// The replica has every acknowledged put and would take over.
    InSync = 1,
    /// The replica is being copied: until that is done the home is alone.
    Copying = 2,
    /// The replica is missing now: puts are on the home only.
    Degraded = 3,
    /// The home has yet to learn whether it is still the home.
    Unsure = 4,
}

impl ReplicationInfo {
    fn from_code(code: u8) -> Result<Self, Failure> {
        Ok(match code {
            0 => Self::None,
            1 => Self::InSync,
            2 => Self::Copying,
            3 => Self::Degraded,
            4 => Self::Unsure,
            _ => return Err(Failure::Malformed),
        })
    }

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::InSync => "in sync",
            Self::Copying => "copying",
            Self::Degraded => "degraded",
            Self::Unsure => "unsure",
        }
    }
}

/// Reason why a replicated segment is degraded.
///
/// ```
/// # use ddss_core as ddss;
/// assert_eq!(ddss::DegradedReason::NoRoom.to_string(), "refuses: no room");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum DegradedReason {
    /// The node of the replica cannot be reached.
    Away,
    /// The node is reachable: the copy waits for others before it, or for the cluster.
    Waiting,
    /// The node has yet to learn its role for that segment, or still has another segment of that name. As after each
    /// refusal, other nodes are asked, and this one again later.
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

impl DegradedReason {
    /// Returns the reason of a refusal. For the daemon.
    #[doc(hidden)]
    pub const fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotReady => Self::NotReady,
            Refusal::NoRoom => Self::NoRoom,
            Refusal::OverQuota => Self::OverQuota,
            Refusal::NoFiles => Self::NoFiles,
            Refusal::NoAnswer => Self::NoAnswer,
        }
    }

    const ALL: [Self; 7] =
        [Self::Away, Self::Waiting, Self::NotReady, Self::NoRoom, Self::OverQuota, Self::NoFiles, Self::NoAnswer];

    /// Returns the number of a reason, from 1 on; 0 for none.
    fn code(reason: Option<Self>) -> u8 {
        reason.and_then(|reason| Self::ALL.iter().position(|&other| other == reason)).map_or(0, |at| at as u8 + 1)
    }

    fn from_code(code: u8) -> Result<Option<Self>, Failure> {
        let Some(at) = code.checked_sub(1) else { return Ok(None) };
        Self::ALL.get(usize::from(at)).copied().map(Some).ok_or(Failure::Malformed)
    }
}

impl fmt::Display for DegradedReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => out.write_str("is away"),
            Self::Waiting => out.write_str("waits for its turn to be copied"),
            Self::NotReady => out.write_str("is not ready yet"),
            Self::NoRoom => out.write_str("refuses: no room"),
            Self::OverQuota => out.write_str("refuses: over its owner's quota"),
            Self::NoFiles => out.write_str("refuses: no segments in files there"),
            Self::NoAnswer => out.write_str("does not answer"),
        }
    }
}

/// Description of a segment by its home at one moment.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::Listing;
/// fn line(listing: &Listing) -> String {
///     let Listing { name, info, version, .. } = listing;
///     format!("{name}: {} bytes at {version} on {}", info.bytes, info.segment.home())
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Listing {
    /// Its name.
    pub name: Name,
    /// Its metadata.
    pub info: SegmentInfo,
    /// Its version.
    pub version: Version,
    /// Timestamp of that version.
    pub timestamp: Timestamp,
    /// Number of lock holders, of the segment and of rows.
    pub holders: u16,
    /// True if the lock is held exclusively.
    pub locked: bool,
    /// Number of queued operations.
    pub waiting: u16,
    /// Number of nodes whose clients have opened it.
    pub readers: u16,
    /// Current home.
    pub home: NodeId,
    /// Node of its replica; `NodeId::NONE` if it has none.
    pub replica: NodeId,
    /// State of the replica.
    pub replication: ReplicationInfo,
    /// Reason why the chosen node has no replica, if the segment is degraded.
    pub degraded: Option<DegradedReason>,
    /// Blocking holder of the segment's lock; `None` while only rows of a table are locked.
    pub holder: Option<LockHolder>,
}

/// Holder of a lock: the exclusive one, else the shared one whose lease ends last.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::{LockHolder, NodeId};
/// let holder = LockHolder { node: NodeId(2), client: None, lease_left_us: 1_500_000 };
/// assert_eq!(format!("{} for {} ms", holder.node, holder.lease_left_us / 1000), "node 2 for 1500 ms");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LockHolder {
    /// Node of the client.
    pub node: NodeId,
    /// Client on the home node itself; unknown for other nodes.
    pub client: Option<u16>,
    /// Remaining lease in microseconds.
    pub lease_left_us: u32,
}

impl LockHolder {
    fn encode(holder: Option<Self>) -> (u16, u16, u32) {
        let client = |holder: &Self| holder.client.map_or(0, |client| client.saturating_add(1));
        holder.map_or((0, 0, 0), |holder| (holder.node.0, client(&holder), holder.lease_left_us))
    }

    fn decode((node, client, lease_left_us): (u16, u16, u32)) -> Option<Self> {
        (node != 0).then_some(Self { node: NodeId(node), client: client.checked_sub(1), lease_left_us })
    }
}

impl Listing {
    /// Bytes of one page: listings, back to back.
    pub const PAGE_BYTES: usize = 408;

    /// Appends the listing to a page; `false` if there is no room. For the daemon.
    #[doc(hidden)]
    pub fn add_to(&self, page: &mut ArrayVec<u8, { Self::PAGE_BYTES }>) -> bool {
        let mut out = Writer::<{ Self::PAGE_BYTES }>::default();
        let name = self.name.as_str().as_bytes();
        out.info(&self.info).u64(self.version.0).u64(self.timestamp.0);
        out.u16(self.holders).u8(self.locked.into()).u16(self.waiting).u16(self.readers);
        let replication = self.replication as u8 | DegradedReason::code(self.degraded) << 4;
        out.u16(self.home.0).u16(self.replica.0).u8(replication);
        let (node, client, lease_left_us) = LockHolder::encode(self.holder);
        out.u16(node).u16(client).u32(lease_left_us);
        out.u8(name.len() as u8).bytes(name);
        page.try_extend_from_slice(&out.0).is_ok()
    }

    /// Takes the first listing of a page.
    #[doc(hidden)]
    pub fn take_from(page: &mut &[u8]) -> Result<Self, Failure> {
        let mut input = Reader(page);
        let info = input.info()?;
        let (version, timestamp) = (Version(input.u64()?), Timestamp(input.u64()?));
        let (holders, locked) = (input.u16()?, input.u8()? != 0);
        let (waiting, readers) = (input.u16()?, input.u16()?);
        let (home, replica) = (NodeId(input.u16()?), NodeId(input.u16()?));
        let kept = input.u8()?;
        let (replication, degraded) = (ReplicationInfo::from_code(kept & 15)?, DegradedReason::from_code(kept >> 4)?);
        let holder = LockHolder::decode((input.u16()?, input.u16()?, input.u32()?));
        let length = usize::from(input.u8()?);
        let (name, rest) = input.0.split_at_checked(length).ok_or(Failure::Malformed)?;
        let name = Name::from_bytes(name)?;
        *page = rest;
        Ok(Self {
            name,
            info,
            version,
            timestamp,
            holders,
            locked,
            waiting,
            readers,
            home,
            replica,
            replication,
            degraded,
            holder,
        })
    }
}

/// Selection of segments: a prefix, and the name to continue after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListQuery {
    /// Prefix of the names.
    pub prefix: ArrayString<NAME_BYTES_MAX>,
    /// Last known name, or empty.
    pub after: ArrayString<NAME_BYTES_MAX>,
}

impl ListQuery {
    /// Checks text from a user.
    pub fn new(prefix: &str, after: &str) -> Result<Self, Failure> {
        let text = |text| ArrayString::from(text).map_err(|_| Failure::BadName);
        Ok(Self { prefix: text(prefix)?, after: text(after)? })
    }

    /// Encodes the query.
    pub fn encode(&self) -> ArrayVec<u8, LIST_TEXT_BYTES_MAX> {
        let mut out = Writer::<LIST_TEXT_BYTES_MAX>::default();
        out.u8(self.prefix.len() as u8).bytes(self.prefix.as_bytes()).bytes(self.after.as_bytes());
        out.0
    }

    /// Decodes and checks what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let mut input = Reader(bytes);
        let length = usize::from(input.u8()?);
        let (prefix, after) = input.0.split_at_checked(length).ok_or(Failure::Malformed)?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Failure::BadName);
        Self::new(text(prefix)?, text(after)?)
    }
}

/// Description of a page, in the completion of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListPage {
    /// Node of the segments; `NodeId::NONE` after the last node.
    pub node: NodeId,
    /// Bytes of the page in the arena.
    pub bytes: u16,
    /// True if that node has more segments.
    pub more: bool,
    /// True if that node went away or did not answer in time: the page is empty, and says nothing of its segments.
    pub away: bool,
}

impl ListPage {
    /// Encodes as completion data.
    pub fn encode(&self) -> [u8; INLINE_REPLY_BYTES_MAX] {
        let mut data = [0; INLINE_REPLY_BYTES_MAX];
        data[..2].copy_from_slice(&self.node.0.to_le_bytes());
        data[2..4].copy_from_slice(&self.bytes.to_le_bytes());
        data[4] = self.more.into();
        data[5] = self.away.into();
        data
    }

    /// Decodes completion data.
    pub fn decode(data: &[u8; INLINE_REPLY_BYTES_MAX]) -> Self {
        let word = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
        Self { node: NodeId(word(0)), bytes: word(2), more: data[4] != 0, away: data[5] != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Permissions, Principal, SegmentId, Storage};

    #[test]
    fn list_page_holds_two_longest_names() {
        // If this broke, a list would stop at a segment with a long name, or show the metadata of another.
        let permissions = Permissions { owner: Principal { uid: 1, gid: 2 }, mode: 0o640 };
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let info = SegmentInfo {
            segment,
            bytes: 9,
            model: Model::Delta(3),
            permissions,
            history_len: 4,
            copies: 1,
            storage: Storage::File,
            row_bytes: 0,
        };
        let name = Name::new(&"n".repeat(128)).unwrap();
        let (version, timestamp) = (Version(5), Timestamp(6));
        let holder = Some(LockHolder { node: NodeId(3), client: Some(0), lease_left_us: 9 });
        let (home, replica, replication) = (NodeId(1), NodeId(3), ReplicationInfo::Degraded);
        let degraded = Some(DegradedReason::NoAnswer);
        let listing = Listing {
            name,
            info,
            version,
            timestamp,
            holders: 1,
            locked: true,
            waiting: 7,
            readers: 8,
            home,
            replica,
            replication,
            degraded,
            holder,
        };
        let mut page = ArrayVec::new();
        assert!(listing.add_to(&mut page) && listing.add_to(&mut page) && !listing.add_to(&mut page));
        let mut left = &page[..];
        assert_eq!(Listing::take_from(&mut left), Ok(listing));
        assert_eq!(Listing::take_from(&mut left), Ok(listing));
        assert_eq!(Listing::take_from(&mut left), Err(Failure::Malformed));
    }

    #[test]
    fn degraded_reason_round_trips() {
        // If this broke, `ddss stat` would send an operator to the wrong node.
        for reason in DegradedReason::ALL.map(Some).into_iter().chain([None]) {
            assert_eq!(DegradedReason::from_code(DegradedReason::code(reason)), Ok(reason));
        }
        assert_eq!(DegradedReason::from_code(8), Err(Failure::Malformed));
    }

    #[test]
    fn list_query_round_trips_and_rejects_malformed() {
        // If this broke, a list would omit segments, or repeat the same ones for ever.
        let query = ListQuery::new("scores/", &"n".repeat(128)).unwrap();
        assert_eq!(ListQuery::decode(&query.encode()), Ok(query));
        assert_eq!(ListQuery::decode(&[]), Err(Failure::Malformed));
        assert_eq!(ListQuery::decode(&[9, b'a']), Err(Failure::Malformed));
        assert_eq!(ListQuery::decode(&[1, 0xff]), Err(Failure::BadName));
        for (more, away) in [(true, false), (false, true)] {
            let page = ListPage { node: NodeId(3), bytes: 400, more, away };
            assert_eq!(ListPage::decode(&page.encode()), page);
        }
    }
}
