//! What a list and a stat tell about a segment.

use crate::codec::{Reader, Writer};
use crate::failure::Failure;
use crate::limits::{INLINE_REPLY_BYTES_MAX, LIST_TEXT_BYTES_MAX, NAME_BYTES_MAX};
use crate::model::segment::Name;
use crate::peer::message::{Refusal, SegmentInfo};
use crate::{NodeId, Timestamp, Version};
use arrayvec::{ArrayString, ArrayVec};
use std::fmt;

/// How the mirror of a segment is.
///
/// ```
/// use ddss_core::{Listing, Mirroring};
/// /// Whether it would still be there without its home.
/// fn is_safe(listing: &Listing) -> bool {
///     listing.mirroring == Mirroring::InSync
/// }
/// assert_eq!(Mirroring::default().as_str(), "none");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum ReplicationInfo {
    /// There shall be none.
    #[default]
    None = 0,
    /// It has all that was acknowledged, and would take over.
    InSync = 1,
    /// It is being copied: until that is done the home is alone.
    Copying = 2,
    /// There is none at this moment: what is put is on the home only.
    Degraded = 3,
    /// Its home has yet to hear from the cluster whether it is the home still.
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

    /// In words.
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

/// Reason why a mirrored segment is degraded.
///
/// ```
/// use ddss_core::{DegradedReason, Refusal};
/// assert_eq!(DegradedReason::Refused(Refusal::NoRoom).to_string(), "refuses: no room");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DegradedReason {
    /// The node of its mirror cannot be reached.
    Away,
    /// The node can be reached: the copy waits for others that are made first, or for the cluster.
    Waiting,
    /// The node said that it cannot have the mirror. Others are asked, and this one again later.
    Refused(Refusal),
}

impl DegradedReason {
    const ALL: [Self; 7] = [
        Self::Away,
        Self::Waiting,
        Self::Refused(Refusal::NotReady),
        Self::Refused(Refusal::NoRoom),
        Self::Refused(Refusal::OverQuota),
        Self::Refused(Refusal::NoFiles),
        Self::Refused(Refusal::NoAnswer),
    ];

    /// Its place among all of them, from 1 on; 0 is none.
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
            Self::Waiting => out.write_str("is next in line for a copy"),
            Self::Refused(Refusal::NotReady) => out.write_str("is not ready yet"),
            Self::Refused(Refusal::NoAnswer) => out.write_str("does not answer"),
            Self::Refused(why) => write!(out, "refuses: {}", why.as_str()),
        }
    }
}

/// A segment as its home sees it at one moment.
///
/// ```
/// use ddss_core::Listing;
/// fn line(listing: &Listing) -> String {
///     let Listing { name, facts, version, .. } = listing;
///     format!("{name}: {} bytes at {version} on {}", facts.bytes, facts.segment.home())
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub facts: SegmentInfo,
    /// Its version.
    pub version: Version,
    /// When that was committed.
    pub timestamp: Timestamp,
    /// Those who hold its lock.
    pub holders: u16,
    /// Whether one of them holds it alone.
    pub locked: bool,
    /// Those who wait for its lock or behind it.
    pub waiting: u16,
    /// Nodes whose clients have opened it.
    pub readers: u16,
    /// Its home at this moment.
    pub home: NodeId,
    /// Its mirror; nobody if it has none.
    pub mirror: NodeId,
    /// How the mirror is.
    pub mirroring: ReplicationInfo,
    /// If it is degraded and a node was found for it: why that node does not have it.
    pub degraded: Option<DegradedReason>,
    /// Who keeps others from the lock.
    pub holder: Option<LockHolder>,
}

/// Who holds a lock: alone, or of those who share it the one whose lease ends last.
///
/// ```
/// use ddss_core::{LockHolder, NodeId};
/// let holder = LockHolder { node: NodeId(2), client: None, lease_left_us: 1_500_000 };
/// assert_eq!(format!("{} for {} ms", holder.node, holder.lease_left_us / 1000), "node 2 for 1500 ms");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockHolder {
    /// On which node its client is.
    pub node: NodeId,
    /// Which client of that node, if it is the segment's own home: no other tells.
    pub client: Option<u16>,
    /// Until its lease ends, in microseconds.
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
    /// Bytes of one page: some listings, one behind the other.
    pub const PAGE_BYTES: usize = 408;

    /// Puts it behind the others of a page; `false` if there is no room.
    pub fn add_to(&self, page: &mut ArrayVec<u8, { Self::PAGE_BYTES }>) -> bool {
        let mut out = Writer::<{ Self::PAGE_BYTES }>::default();
        let name = self.name.as_str().as_bytes();
        out.facts(&self.facts).u64(self.version.0).u64(self.timestamp.0);
        out.u16(self.holders).u8(self.locked.into()).u16(self.waiting).u16(self.readers);
        let mirroring = self.mirroring as u8 | DegradedReason::code(self.degraded) << 4;
        out.u16(self.home.0).u16(self.mirror.0).u8(mirroring);
        let (node, client, lease_left_us) = LockHolder::encode(self.holder);
        out.u16(node).u16(client).u32(lease_left_us);
        out.u8(name.len() as u8).bytes(name);
        page.try_extend_from_slice(&out.0).is_ok()
    }

    /// Takes the first of a page off.
    pub fn take_from(page: &mut &[u8]) -> Result<Self, Failure> {
        let mut input = Reader(page);
        let facts = input.facts()?;
        let (version, timestamp) = (Version(input.u64()?), Timestamp(input.u64()?));
        let (holders, locked) = (input.u16()?, input.u8()? != 0);
        let (waiting, readers) = (input.u16()?, input.u16()?);
        let (home, mirror) = (NodeId(input.u16()?), NodeId(input.u16()?));
        let kept = input.u8()?;
        let (mirroring, degraded) = (ReplicationInfo::from_code(kept & 15)?, DegradedReason::from_code(kept >> 4)?);
        let holder = LockHolder::decode((input.u16()?, input.u16()?, input.u32()?));
        let length = usize::from(input.u8()?);
        let (name, rest) = input.0.split_at_checked(length).ok_or(Failure::Malformed)?;
        let name = Name::from_bytes(name)?;
        *page = rest;
        Ok(Self {
            name,
            facts,
            version,
            timestamp,
            holders,
            locked,
            waiting,
            readers,
            home,
            mirror,
            mirroring,
            degraded,
            holder,
        })
    }
}

/// Which segments are asked for: those whose names begin like this and come after that one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListQuery {
    /// How the names begin.
    pub prefix: ArrayString<NAME_BYTES_MAX>,
    /// The last name that is known already, or nothing.
    pub after: ArrayString<NAME_BYTES_MAX>,
}

impl ListQuery {
    /// Checks what a person wrote.
    pub fn new(prefix: &str, after: &str) -> Result<Self, Failure> {
        let text = |text| ArrayString::from(text).map_err(|_| Failure::BadName);
        Ok(Self { prefix: text(prefix)?, after: text(after)? })
    }

    /// As bytes.
    pub fn encode(&self) -> ArrayVec<u8, LIST_TEXT_BYTES_MAX> {
        let mut out = Writer::<LIST_TEXT_BYTES_MAX>::default();
        out.u8(self.prefix.len() as u8).bytes(self.prefix.as_bytes()).bytes(self.after.as_bytes());
        out.0
    }

    /// Reads and checks what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let mut input = Reader(bytes);
        let length = usize::from(input.u8()?);
        let (prefix, after) = input.0.split_at_checked(length).ok_or(Failure::Malformed)?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Failure::BadName);
        Self::new(text(prefix)?, text(after)?)
    }
}

/// What the completion of a list tells about the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListPage {
    /// Whose segments they are; nobody if no node is left.
    pub node: NodeId,
    /// Bytes of the page in the arena.
    pub bytes: u16,
    /// Whether that node has more.
    pub more: bool,
}

impl ListPage {
    /// As completion data.
    pub fn encode(&self) -> [u8; INLINE_REPLY_BYTES_MAX] {
        let mut data = [0; INLINE_REPLY_BYTES_MAX];
        data[..2].copy_from_slice(&self.node.0.to_le_bytes());
        data[2..4].copy_from_slice(&self.bytes.to_le_bytes());
        data[4] = self.more.into();
        data
    }

    /// From completion data.
    pub fn decode(data: &[u8; INLINE_REPLY_BYTES_MAX]) -> Self {
        let word = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
        Self { node: NodeId(word(0)), bytes: word(2), more: data[4] != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Permissions, Principal, SegmentId, Storage};

    #[test]
    fn a_page_holds_at_least_two_of_the_longest_names() {
        // If this broke, a list would never get beyond a segment with a long name, or tell the facts of another.
        let permissions = Permissions { owner: Principal { uid: 1, gid: 2 }, mode: 0o640 };
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let facts = SegmentInfo {
            segment,
            bytes: 9,
            model: Model::Delta(3),
            permissions,
            keeps: 4,
            copies: 1,
            storage: Storage::File,
        };
        let name = Name::new(&"n".repeat(128)).unwrap();
        let (version, timestamp) = (Version(5), Timestamp(6));
        let holder = Some(LockHolder { node: NodeId(3), client: Some(0), lease_left_us: 9 });
        let (home, mirror, mirroring) = (NodeId(1), NodeId(3), ReplicationInfo::Degraded);
        let degraded = Some(DegradedReason::Refused(Refusal::NoAnswer));
        let listing = Listing {
            name,
            facts,
            version,
            timestamp,
            holders: 1,
            locked: true,
            waiting: 7,
            readers: 8,
            home,
            mirror,
            mirroring,
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
    fn each_reason_for_a_degraded_segment_survives_a_page() {
        // If this broke, `ddss stat` would send an operator to a node that has nothing to do with it.
        for reason in DegradedReason::ALL.map(Some).into_iter().chain([None]) {
            assert_eq!(DegradedReason::from_code(DegradedReason::code(reason)), Ok(reason));
        }
        assert_eq!(DegradedReason::from_code(8), Err(Failure::Malformed));
    }

    #[test]
    fn a_query_survives_the_arena_and_lies_do_not() {
        // If this broke, a list would leave segments out, or show the same ones for ever.
        let query = ListQuery::new("scores/", &"n".repeat(128)).unwrap();
        assert_eq!(ListQuery::decode(&query.encode()), Ok(query));
        assert_eq!(ListQuery::decode(&[]), Err(Failure::Malformed));
        assert_eq!(ListQuery::decode(&[9, b'a']), Err(Failure::Malformed));
        assert_eq!(ListQuery::decode(&[1, 0xff]), Err(Failure::BadName));
        let page = ListPage { node: NodeId(3), bytes: 400, more: true };
        assert_eq!(ListPage::decode(&page.encode()), page);
    }
}
