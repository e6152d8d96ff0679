//! Identifiers. Each is a type of its own, so that a client is never mistaken for a segment. Ids that are reused carry
//! a generation.

use crate::limits::SEGMENTS_PER_NODE_MAX;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Id of a node of the cluster. Zero is no node.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::NodeId;
/// assert_eq!(NodeId(3).to_string(), "node 3");
/// assert_eq!(NodeId::default(), NodeId::NONE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(pub u16);

impl NodeId {
    /// Id that no node has.
    pub const NONE: NodeId = NodeId(0);
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "node {}", self.0)
    }
}

/// Id of a segment, unique in the cluster: its first home, the shard there, its slot in the shard, and the generation of
/// that slot.
///
/// ```text
///  63   59 58   48 47        28 27             0
/// +-------+-------+------------+----------------+
/// | shard | home  |   index    |   generation   |
/// +-------+-------+------------+----------------+
/// ```
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::SegmentId;
/// # use ddss::NodeId;
/// # let id = SegmentId::new(NodeId(2), 7, 1);
/// let log_line = |id: SegmentId| format!("{id} is full");
/// assert_eq!(log_line(id), "segment 2.7#1 is full");
/// # assert_eq!(log_line(id.on_shard(1)), "segment 2/1.7#1 is full");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SegmentId(u64);

impl SegmentId {
    /// Bits of an index, which is a slot below [`SEGMENTS_PER_NODE_MAX`](crate::limits::SEGMENTS_PER_NODE_MAX).
    #[doc(hidden)]
    pub const INDEX_BITS: u32 = 20;
    /// Bits of a generation.
    #[doc(hidden)]
    pub const GENERATION_BITS: u32 = 48 - Self::INDEX_BITS;

    /// Packs the three parts, for the first shard of the home. Bits beyond those of an index or a generation are
    /// dropped.
    #[doc(hidden)]
    pub const fn new(home: NodeId, index: u32, generation: u32) -> Self {
        let (index, generation) = (low_bits(index, Self::INDEX_BITS), low_bits(generation, Self::GENERATION_BITS));
        Self((home.0 as u64) << 48 | (index as u64) << Self::GENERATION_BITS | generation as u64)
    }
    /// Returns the id that stands for the names of a node's segments, in its first shard. No segment has it. Its version
    /// changes with each name that is made or released there; it can only be waited for.
    #[doc(hidden)]
    pub const fn names_of(home: NodeId) -> Self {
        Self::new(home, (1 << Self::INDEX_BITS) - 1, 0)
    }
    /// Returns the id in another shard of its home.
    #[doc(hidden)]
    pub const fn on_shard(self, shard: u8) -> Self {
        Self(self.0 & !(0x1f << 59) | (shard as u64) << 59)
    }
    /// Restores an id from [`to_bits`](Self::to_bits); any value is an id, most name nothing.
    #[doc(hidden)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// Returns the id as it travels in rings and messages.
    #[doc(hidden)]
    pub const fn to_bits(self) -> u64 {
        self.0
    }
    /// Returns the first home of this segment.
    #[doc(hidden)]
    pub const fn home(self) -> NodeId {
        NodeId((self.0 >> 48) as u16 & 0x7ff)
    }
    /// Returns the home's shard.
    #[doc(hidden)]
    pub const fn shard(self) -> u8 {
        (self.0 >> 59) as u8
    }
    /// Returns true if both are of the same shard of the same home.
    #[doc(hidden)]
    pub const fn is_of(self, other: Self) -> bool {
        (self.0 ^ other.0) >> 48 == 0
    }
    /// Returns the slot.
    #[doc(hidden)]
    pub const fn index(self) -> u32 {
        low_bits((self.0 >> Self::GENERATION_BITS) as u32, Self::INDEX_BITS)
    }
    /// Returns the generation of the slot.
    #[doc(hidden)]
    pub const fn generation(self) -> u32 {
        low_bits(self.0 as u32, Self::GENERATION_BITS)
    }
    /// Returns the generation after that one; the highest is followed by zero.
    #[doc(hidden)]
    pub const fn next_generation(generation: u32) -> u32 {
        low_bits(generation.wrapping_add(1), Self::GENERATION_BITS)
    }
}

const fn low_bits(value: u32, bits: u32) -> u32 {
    value & ((1 << bits) - 1)
}

const _: () = assert!(SEGMENTS_PER_NODE_MAX < 1 << SegmentId::INDEX_BITS && SegmentId::GENERATION_BITS < u32::BITS);

impl fmt::Display for SegmentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard() {
            0 => write!(out, "segment {}.{}#{}", self.home().0, self.index(), self.generation()),
            shard => write!(out, "segment {}/{shard}.{}#{}", self.home().0, self.index(), self.generation()),
        }
    }
}

/// Id of a client of this node: a slot and its generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId {
    /// Slot, below [`CLIENTS_MAX`](crate::limits::CLIENTS_MAX).
    pub index: u32,
    /// Generation of the slot.
    pub generation: u32,
}

impl fmt::Display for ClientId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "client {}#{}", self.index, self.generation)
    }
}

/// Id of a channel, a pair of rings: a client and the index of the channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId {
    /// Client that owns the channel.
    pub client: ClientId,
    /// Index, below [`CHANNELS_PER_CLIENT_MAX`](crate::limits::CHANNELS_PER_CLIENT_MAX), or [`PARKED`](Self::PARKED).
    pub index: u8,
}

impl ChannelId {
    /// Index that stands for the parked waits of a client. No ring has it.
    pub const PARKED: u8 = u8::MAX;

    /// Returns the place of a client's parked waits.
    pub const fn parked(client: ClientId) -> Self {
        Self { client, index: Self::PARKED }
    }

    /// Returns true if this stands for a client's parked waits.
    #[inline(always)]
    pub const fn is_parked(self) -> bool {
        self.index == Self::PARKED
    }
}

/// Id that a client gives its own request; returned unchanged in the completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// Version of a segment: 0 when it is new, +1 for each committed put.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::Version;
/// assert!(Version(4) > Version(3));
/// assert_eq!(Version(4).to_string(), "v4");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "v{}", self.0)
    }
}

/// Time of a write on the home's hybrid logical clock: microseconds since 1970 in the high 52 bits, a counter in the
/// low 12. A client's write is later than everything that clients of its node had seen before they requested it. This
/// holds across nodes, as long as no two clocks of the cluster are 10 s apart.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::Timestamp;
/// let at = Timestamp(1_700_000_000_000_000 << Timestamp::COUNTER_BITS | 3);
/// assert_eq!(at.micros(), 1_700_000_000_000_000);
/// assert_eq!(at.to_string(), "2023-11-14 22:13:20.000000 UTC");
/// let second = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
/// assert_eq!(std::time::SystemTime::from(at), second);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Bits of the counter below the microseconds.
    #[doc(hidden)]
    pub const COUNTER_BITS: u32 = 12;

    /// Returns the physical part, in microseconds since 1970.
    pub const fn micros(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }
}

/// The physical part.
impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(timestamp.micros())
    }
}

/// Shows date and time, or `never` for the timestamp of no write.
impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.micros();
        if micros == 0 {
            return out.write_str("never");
        }
        let (year, month, day) = date_of(micros / 86_400_000_000);
        let (seconds, fraction) = (micros % 86_400_000_000 / 1_000_000, micros % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(out, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06} UTC")
    }
}

/// Converts days since 1970 to year, month and day.
fn date_of(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_shows_its_date() {
        // If this broke, a user would compare the times of two writes by another day.
        let shown = |micros: u64| Timestamp(micros << Timestamp::COUNTER_BITS | 7).to_string();
        assert_eq!(shown(951_782_400_000_001), "2000-02-29 00:00:00.000001 UTC");
        assert_eq!(shown(1_795_305_599_999_999), "2026-11-21 23:59:59.999999 UTC");
        assert_eq!(shown(0), "never");
        let last = SystemTime::from(Timestamp(u64::MAX));
        assert_eq!(last.duration_since(UNIX_EPOCH).unwrap().as_micros() as u64, u64::MAX >> 12);
    }

    #[test]
    fn segment_id_round_trips() {
        // If this broke, a request would reach another segment, or another generation of the same slot.
        let id = SegmentId::new(NodeId(1024), 0xf_ba98, 0x654_3210);
        for shard in [0, 1, 15, 0] {
            let back = SegmentId::from_bits(id.on_shard(15).on_shard(shard).to_bits());
            assert_eq!((back.home().0, back.index(), back.generation()), (1024, 0xf_ba98, 0x654_3210));
            assert_eq!((back.shard(), back == id), (shard, shard == 0));
        }
        let beyond = SegmentId::new(NodeId(1), u32::MAX, u32::MAX);
        assert_eq!((beyond.home(), beyond.shard()), (NodeId(1), 0), "neither part reaches into another");
        assert_eq!((beyond.index(), beyond.generation()), (0xf_ffff, 0xfff_ffff));
        assert_eq!((SegmentId::next_generation(beyond.generation()), SegmentId::next_generation(7)), (0, 8));
    }
}
