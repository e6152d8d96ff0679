//! Specification of a segment.

use crate::map::entry::{checked_layout, rows_of};
use ddss_core::{BadArgument, Failure, Model, Placement, Principal, Storage};
use std::fmt;

/// The nine Unix bits of a segment: who may read and write it.
///
/// ```
/// use ddss::Mode;
/// assert_eq!(Mode(0o640).to_string(), "640");
/// assert_eq!(Mode::default(), Mode(0o600));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Mode(pub u16);

/// The owner reads and writes.
impl Default for Mode {
    fn default() -> Self {
        Self(ddss_core::Permissions::MODE_DEFAULT)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:03o}", self.0)
    }
}

/// Specification of a segment that is allocated: its size, and defaults for the rest.
///
/// ```
/// use ddss::{Mode, Model, Spec};
/// // Readers may get values up to a second old, the owner's group may read, and five versions are kept.
/// const PRICES: Spec = Spec::new(4096).model(Model::Temporal(1_000_000)).mode(Mode(0o640)).history(5);
/// // A table of 1000 rows of 24 bytes.
/// const SCORES: Spec = Spec::new(1000).row_len(24);
/// // A map of 1000 keys of up to 32 bytes, with values of 24 bytes.
/// const USERS: Spec = Spec::new(1000).entry_len(32, 24);
/// assert_eq!(Spec::from(64), Spec::new(64));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[must_use]
pub struct Spec {
    len: u64,
    row_len: u32,
    /// Bytes of a key and of a value.
    entry_len: Option<(usize, usize)>,
    model: Model,
    mode: Mode,
    owner: Option<Principal>,
    copies: u8,
    placement: Placement,
    storage: Storage,
    history: u16,
}

impl From<u64> for Spec {
    fn from(len: u64) -> Self {
        Self::new(len)
    }
}

impl Spec {
    /// Creates the specification of a segment of `len` bytes, of `len` rows of a [table](Self::row_len), or of a
    /// [map](Self::entry_len) for `len` keys.
    pub const fn new(len: u64) -> Self {
        Self {
            len,
            row_len: 0,
            entry_len: None,
            model: Model::Strict,
            mode: Mode(ddss_core::Permissions::MODE_DEFAULT),
            owner: None,
            copies: 1,
            placement: Placement::Local,
            storage: Storage::Memory,
            history: 0,
        }
    }

    /// Makes the segment a table: each row has this many bytes, rounded up to a multiple of 8, and a version and timestamp of its
    /// own. A table keeps no older versions. A table of a type of fixed length needs no call of this.
    pub const fn row_len(mut self, bytes: u32) -> Self {
        self.row_len = bytes;
        self
    }

    /// Makes the segment a map, with this many bytes for each key (1 to 1 KiB) and each value (up to 64 KiB). Types of fixed lengths
    /// need no call of this. The map has slots for a quarter more than its keys, and does not grow.
    pub const fn entry_len(mut self, key: usize, value: usize) -> Self {
        self.entry_len = Some((key, value));
        self
    }

    /// Sets the row length, unless it is set.
    pub(crate) const fn row_len_or(self, bytes: u32) -> Self {
        if self.row_len == 0 { self.row_len(bytes) } else { self }
    }

    /// Returns the lengths of a map's keys and values.
    pub(crate) const fn lengths(&self) -> Option<(usize, usize)> {
        self.entry_len
    }

    /// Sets the coherence model.
    pub const fn model(mut self, model: Model) -> Self {
        self.model = model;
        self
    }

    /// Sets the nine Unix bits. The default is `600`: the owner reads and writes.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the owner; the default is the user and group of this process.
    ///
    /// Root may name any user; other users may only name another group of this process. Until the owner is set, only root
    /// can use the segment; from then on it counts against the owner's quota. If this process dies in between, a segment
    /// of that name remains that only root can use.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let me = client.segment("mine").allocate(64)?.stat()?.permissions;
    /// # let alice = me;
    /// let spec = ddss::Spec::new(64).mode(ddss::Mode(0o620)).owner(alice.uid, alice.gid);
    /// let inbox = client.segment("inbox").allocate(spec)?;
    /// assert_eq!(inbox.stat()?.permissions.uid, alice.uid);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = Some(Principal { uid, gid });
        self
    }

    /// Sets the number of nodes with a copy: 1, or 2 for a segment with a replica. An acknowledged put of such a segment is
    /// on both nodes. When its home is declared dead the replica becomes its home, and handles stay valid.
    pub const fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }

    /// Sets the choice of the home.
    pub const fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets the storage of its bytes. A segment in a file has one copy.
    pub const fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Sets the number of older versions in the history, for gets that name a version.
    ///
    /// Each is a copy of the whole segment, made by its home with each put. So a segment with a history (or of
    /// [`Model::Delta`]) has at most 1 MiB; more is refused. Larger data with a history is split into several segments, or
    /// stored as one segment for each version.
    pub const fn history(mut self, versions: u16) -> Self {
        self.history = versions;
        self
    }

    /// Returns the owner, unless it is the user of this process.
    pub(crate) const fn other_owner(&self) -> Option<Principal> {
        self.owner
    }

    /// Returns the checked specification of a segment of this process's user, for a call that sets no other owner.
    pub(crate) fn wire_of_own(&self) -> Result<ddss_core::Spec, BadArgument> {
        if let Some(owner) = self.owner {
            let (uid, range) = (owner.uid, "none in a batch: allocate it alone");
            return Err(BadArgument::new("owner", uid, range, Failure::BadSize));
        }
        self.wire()
    }

    /// Returns the checked specification as the wire has it: without an owner.
    pub(crate) fn wire(&self) -> Result<ddss_core::Spec, BadArgument> {
        let shape = match (self.row_len, self.entry_len) {
            (0, None) => ddss_core::Spec::new(self.len),
            (bytes, None) => ddss_core::Spec::table(self.len, bytes),
            (0, Some((key, value))) => {
                let layout = checked_layout(key, value)?;
                ddss_core::Spec::table(rows_of(layout, self.len), layout.row_bytes() as u32)
            }
            (bytes, Some(_)) => {
                return Err(BadArgument::new("row length", bytes, "none for a map", Failure::BadSize));
            }
        };
        let access = shape.model(self.model).mode(self.mode.0).history(self.history);
        let wire = access.copies(self.copies).placement(self.placement).storage(self.storage);
        wire.check().map(|()| wire)
    }
}
