//! Name, permissions, and header line of a segment.

use crate::failure::Failure;
use crate::limits::{LINE_BYTES, NAME_BYTES_MAX};
use crate::{SegmentId, Timestamp, Version};
use arrayvec::ArrayString;
use std::borrow::Borrow;
use std::fmt;

/// A segment's name: 1 to 128 bytes of UTF-8 without control characters.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::Name;
///
/// let name = Name::new("scores/today")?;
/// assert_eq!((name.as_str(), name.to_string()), ("scores/today", "scores/today".to_owned()));
/// assert!(Name::new("two\nlines").is_err() && Name::new("").is_err());
/// # Ok::<(), ddss_core::Failure>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Name(ArrayString<NAME_BYTES_MAX>);

#[cfg(feature = "serde")]
impl TryFrom<String> for Name {
    type Error = Failure;

    fn try_from(text: String) -> Result<Self, Failure> {
        Name::new(&text)
    }
}

#[cfg(feature = "serde")]
impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl Name {
    /// Checks text from a user or a peer.
    #[doc(hidden)]
    pub fn new(text: &str) -> Result<Self, Failure> {
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(Failure::BadName);
        }
        ArrayString::from(text).map(Self).map_err(|_| Failure::BadName)
    }

    /// Checks bytes from outside.
    #[doc(hidden)]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        Self::new(std::str::from_utf8(bytes).map_err(|_| Failure::BadName)?)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.as_str())
    }
}

/// User and group on whose behalf a request is made, as the kernel reported them to the process's node.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::Principal;
/// let root = Principal { uid: 0, gid: 0 };
/// assert_ne!(root, Principal { uid: 1000, gid: 1000 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Principal {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Kind of access to a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read bytes.
    Read,
    /// Change bytes.
    Write,
    /// Release the segment.
    Release,
}

/// Owner and mode bits of a segment, as with a file (`x` has no meaning).
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::{Permissions, Principal};
/// // The owner reads and writes, the owner's group reads, other users do neither.
/// let permissions = Permissions { owner: Principal { uid: 1000, gid: 50 }, mode: 0o640 };
/// assert_eq!(permissions.mode & 0o007, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Permissions {
    /// User and group of the process that allocated it.
    pub owner: Principal,
    /// The nine Unix bits.
    pub mode: u16,
}

/// Set of users that may read a segment: the owner, the group and the read bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Audience {
    owner: Principal,
    mode: u16,
}

impl Audience {
    /// Audience that no segment has.
    pub const NONE: Self = Self { owner: Principal { uid: u32::MAX, gid: u32::MAX }, mode: u16::MAX };

    /// Returns true if `principal` belongs to the audience.
    pub fn includes(&self, principal: Principal) -> bool {
        Permissions { owner: self.owner, mode: self.mode }.allow(principal, Access::Read).is_ok()
    }
}

/// Change of permissions; `None` leaves a part as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PermissionUpdate {
    /// The nine Unix bits.
    pub mode: Option<u16>,
    /// New owner.
    pub owner: Option<Principal>,
}

impl PermissionUpdate {
    const HAS_MODE: u64 = 1 << 16;
    const HAS_OWNER: u64 = 1 << 17;

    /// Encodes as two words for requests and messages: mode bits with flags (bit 16: mode given, bit 17: owner given),
    /// and the owner, with its user in the low half.
    pub(crate) fn to_words(self) -> [u64; 2] {
        let bits = self.mode.map_or(0, |mode| Self::HAS_MODE | u64::from(mode));
        let owner = self.owner.map_or(0, |owner| u64::from(owner.gid) << 32 | u64::from(owner.uid));
        [bits | if self.owner.is_some() { Self::HAS_OWNER } else { 0 }, owner]
    }

    /// Decodes and checks what [`to_words`](Self::to_words) wrote.
    pub(crate) fn from_words([bits, owner]: [u64; 2]) -> Result<Self, Failure> {
        let update = Self {
            mode: (bits & Self::HAS_MODE != 0).then_some(bits as u16 & 0o777),
            owner: (bits & Self::HAS_OWNER != 0).then_some(Principal { uid: owner as u32, gid: (owner >> 32) as u32 }),
        };
        // Undefined bits, or an owner without its flag, are malformed.
        if update.to_words() == [bits, owner] { Ok(update) } else { Err(Failure::Malformed) }
    }
}

impl Permissions {
    /// Returns the permissions after an update by `principal`. The owner and root may update; only root gives a segment to
    /// another user, the owner only to its own group. For the engine.
    #[doc(hidden)]
    pub fn changed(&self, principal: Principal, update: PermissionUpdate) -> Result<Self, Failure> {
        self.allow(principal, Access::Release)?;
        let owner = update.owner.unwrap_or(self.owner);
        let own_group = owner.gid == principal.gid || owner.gid == self.owner.gid;
        if principal.uid != 0 && !(owner.uid == self.owner.uid && own_group) {
            return Err(Failure::PermissionDenied);
        }
        Ok(Self { owner, mode: update.mode.unwrap_or(self.mode) })
    }

    /// Returns the audience. For the daemon: users of the client see no audiences.
    #[doc(hidden)]
    pub fn audience(&self) -> Audience {
        Audience { owner: self.owner, mode: self.mode & 0o444 }
    }

    /// Default mode: the owner only.
    pub const MODE_DEFAULT: u16 = 0o600;

    /// Checks an access. Root may do everything; otherwise only the owner may release. For the daemon.
    #[doc(hidden)]
    pub fn allow(&self, principal: Principal, access: Access) -> Result<(), Failure> {
        let bit = match access {
            Access::Read => 0o4,
            Access::Write => 0o2,
            Access::Release if principal.uid == 0 || principal.uid == self.owner.uid => return Ok(()),
            Access::Release => return Err(Failure::PermissionDenied),
        };
        let shift = if principal.uid == self.owner.uid {
            6
        } else if principal.gid == self.owner.gid {
            3
        } else {
            0
        };
        if principal.uid == 0 || self.mode >> shift & bit != 0 { Ok(()) } else { Err(Failure::PermissionDenied) }
    }
}

/// Line in front of a segment's bytes, in the home's memory. One-sided readers check it.
///
/// ```text
///  0                8            16            24       32       40         64
/// +----------------+------------+-------------+--------+--------+----------+
/// | version·2 + w  | timestamp  | segment id  | bytes  | locked | reserved |   then the segment's bytes
/// +----------------+------------+-------------+--------+--------+----------+
/// ```
///
/// `w` is 1 while a put is being written. A reader takes the first word, the bytes, and the first word again. If both are
/// equal and even, the bytes are those of that version. `locked` is the token of the exclusive lock holder, all ones
/// while rows of a table are locked, else 0. A get that must not see an unfinished update of another holder then asks the
/// home.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Version and the write bit.
    pub state: u64,
    /// Timestamp of that version.
    pub timestamp: u64,
    /// Segment of the bytes that follow.
    pub segment: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Token of the exclusive lock holder, or [`ROWS_LOCKED`](Self::ROWS_LOCKED).
    pub locked: u64,
}

impl Header {
    /// Offset of the state word.
    pub const STATE_OFFSET: u64 = 0;
    /// Offset of the timestamp.
    pub const TIMESTAMP_OFFSET: u64 = 8;
    /// Offset of the id.
    pub const SEGMENT_OFFSET: u64 = 16;
    /// Offset of the size.
    pub const BYTES_OFFSET: u64 = 24;
    /// Offset of the lock word.
    pub const LOCKED_OFFSET: u64 = 32;
    /// Offset of the segment's own bytes.
    pub const DATA_OFFSET: u64 = LINE_BYTES as u64;
    /// Lock word of a table while at least one row is locked exclusively: no grant has this token.
    pub const ROWS_LOCKED: u64 = u64::MAX;
    /// Header bytes that a reader fetches: all that are in use.
    pub const READ_BYTES: u32 = 40;

    /// Returns the state word of a committed version.
    pub const fn committed(version: Version) -> u64 {
        version.0 << 1
    }
    /// Returns the state word while the version after `version` is being written.
    pub const fn writing(version: Version) -> u64 {
        version.0 << 1 | 1
    }

    /// Returns the offset of a version in the history, counted from the segment's own header; `None` without a history.
    ///
    /// Behind the segment's bytes there is room for `history_len + 1` versions, each with a header line and its bytes, each
    /// part on its own line. Version `v` is in slot `v % (history_len + 1)`. The newest version is among them.
    pub fn history_offset(bytes: u64, history_len: u32, version: Version) -> Option<u64> {
        let places = u64::from(history_len) + 1;
        (history_len > 0).then(|| Self::part_bytes(bytes) * (1 + version.0 % places))
    }

    /// Returns the bytes of a segment with its header and history.
    pub fn bytes_with(bytes: u64, history_len: u32) -> u64 {
        match history_len {
            0 => Self::DATA_OFFSET + bytes,
            history_len => Self::part_bytes(bytes) * (u64::from(history_len) + 2),
        }
    }

    fn part_bytes(bytes: u64) -> u64 {
        Self::DATA_OFFSET + bytes.next_multiple_of(LINE_BYTES as u64)
    }

    /// Decides whether bytes between two reads of the state word are whole, and of which version.
    pub fn prove(&self, segment: SegmentId, state_after: u64) -> SnapshotCheck {
        if self.segment != segment.to_bits() {
            return SnapshotCheck::Gone;
        }
        if self.state & 1 != 0 || self.state != state_after {
            return SnapshotCheck::Torn;
        }
        SnapshotCheck::Whole(Version(self.state >> 1), Timestamp(self.timestamp))
    }
}

/// Result of the check of a one-sided read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotCheck {
    /// All bytes are of one version.
    Whole(Version, Timestamp),
    /// A put came between: read again.
    Torn,
    /// The memory belongs to another segment now.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn names_with_control_characters_are_refused() {
        // If this broke, a name could forge a line of `ddss ls`.
        assert!(Name::new("scores/2026").is_ok());
        for bad in ["", "a\nb", "a\0", "\u{1b}[2J"] {
            assert_eq!(Name::new(bad), Err(Failure::BadName));
        }
        assert_eq!(Name::new(&"x".repeat(NAME_BYTES_MAX + 1)), Err(Failure::BadName));
        assert_eq!(Name::from_bytes(&[0xff]), Err(Failure::BadName));
    }

    #[test]
    fn permissions_follow_unix_mode() {
        // If this broke, one user could read or release another's segment.
        let owner = Principal { uid: 10, gid: 20 };
        let permissions = Permissions { owner, mode: 0o640 };
        let group = Principal { uid: 11, gid: 20 };
        let other = Principal { uid: 12, gid: 21 };
        assert!(permissions.allow(owner, Access::Write).is_ok());
        assert!(permissions.allow(group, Access::Read).is_ok());
        assert!(permissions.allow(group, Access::Write).is_err());
        assert!(permissions.allow(other, Access::Read).is_err());
        assert!(permissions.allow(group, Access::Release).is_err());
        assert!(permissions.allow(Principal { uid: 0, gid: 0 }, Access::Release).is_ok());
    }

    #[test]
    fn only_owner_and_root_change_permissions() {
        // If this broke, one user could take another's segment, or put a segment under another user's name.
        let owner = Principal { uid: 10, gid: 20 };
        let (other, root) = (Principal { uid: 12, gid: 21 }, Principal { uid: 0, gid: 0 });
        let before = Permissions { owner, mode: 0o600 };
        let to = |owner| PermissionUpdate { mode: None, owner: Some(owner) };
        assert_eq!(before.changed(root, to(other)), Ok(Permissions { owner: other, ..before }));
        let in_group = Principal { uid: 10, gid: 30 };
        assert_eq!(before.changed(in_group, to(in_group)), Ok(Permissions { owner: in_group, ..before }));
        for (principal, update) in [(owner, to(other)), (other, to(other)), (owner, to(Principal { gid: 30, ..owner }))]
        {
            assert_eq!(before.changed(principal, update), Err(Failure::PermissionDenied));
        }
        let open = PermissionUpdate { mode: Some(0o644), owner: None };
        assert_eq!(before.changed(owner, open), Ok(Permissions { mode: 0o644, ..before }));
        assert_eq!(before.changed(other, open), Err(Failure::PermissionDenied));
    }

    #[test]
    fn read_across_put_is_torn() {
        // If this broke, a get could return a mix of two puts.
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let header = Header {
            state: Header::committed(Version(4)),
            timestamp: 5,
            segment: segment.to_bits(),
            bytes: 8,
            locked: 0,
        };
        assert_eq!(header.prove(segment, header.state), SnapshotCheck::Whole(Version(4), Timestamp(5)));
        assert_eq!(header.prove(segment, Header::committed(Version(5))), SnapshotCheck::Torn);
        let writing = Header { state: Header::writing(Version(4)), ..header };
        assert_eq!(writing.prove(segment, writing.state), SnapshotCheck::Torn);
        assert_eq!(header.prove(SegmentId::new(NodeId(1), 2, 4), header.state), SnapshotCheck::Gone);
    }
}
