//! Specification of a new segment: size, model, permissions, place, history.

use super::coherence::Model;
use super::segment::{Header, Permissions};
use super::table::TableLayout;
use crate::argument_error::BadArgument;
use crate::failure::Failure;
use crate::limits::{CACHED_BYTES_MAX, COPIES_MAX_OF_SEGMENT, HISTORY_MAX, SEGMENT_BYTES_MAX, TRANSFER_BYTES_MAX};
use crate::{NodeId, Version};

/// Choice of a segment's home.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::{NodeId, Placement, Spec};
/// let there = Spec::new(4096).placement(Placement::Node(NodeId(2)));
/// assert_eq!(Placement::default(), Placement::Local);
/// # assert_ne!(there, Spec::new(4096));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Placement {
    /// Node of the client that allocates it.
    #[default]
    Local,
    /// The named node.
    Node(NodeId),
    /// Each connected node in turn.
    RoundRobin,
    /// Node chosen by a hash of the name: the same for every caller while the set of nodes is the same.
    Hash,
}

impl Placement {
    const fn to_parts(self) -> (u8, NodeId) {
        match self {
            Placement::Local => (0, NodeId::NONE),
            Placement::Node(node) => (1, node),
            Placement::RoundRobin => (2, NodeId::NONE),
            Placement::Hash => (3, NodeId::NONE),
        }
    }

    const fn from_parts(kind: u8, node: NodeId) -> Result<Self, Failure> {
        match (kind, node.0) {
            (0, 0) => Ok(Placement::Local),
            (1, 1..) => Ok(Placement::Node(node)),
            (2, 0) => Ok(Placement::RoundRobin),
            (3, 0) => Ok(Placement::Hash),
            _ => Err(Failure::Malformed),
        }
    }
}

/// Storage of a segment's bytes at its home.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::{Spec, Storage};
/// let ledger = Spec::new(4096).storage(Storage::File);
/// assert_ne!(ledger, Spec::new(4096));
/// assert_eq!(Storage::default().as_str(), "memory");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Storage {
    /// Named shared memory: it outlives the daemon, but not a reboot.
    #[default]
    Memory,
    /// File on the home's disk: it also outlives a reboot.
    File,
}

impl Storage {
    /// Returns the lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Storage::Memory => "memory",
            Storage::File => "file",
        }
    }

    /// Returns the encoded number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Storage::Memory => 0,
            Storage::File => 1,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Result<Self, Failure> {
        match code {
            0 => Ok(Storage::Memory),
            1 => Ok(Storage::File),
            _ => Err(Failure::Malformed),
        }
    }
}

impl std::str::FromStr for Storage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Storage::Memory, Storage::File].into_iter().find(|storage| storage.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is no storage: give memory or file"))
    }
}

/// Range of the nine Unix bits.
const MODES: &str = "0 to 777, octal";

/// Specification of a segment.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::{Model, Spec};
/// // Readers may get values up to a second old, the owner's group may read, and five versions are kept.
/// const PRICES: Spec = Spec::new(4096).model(Model::Temporal(1_000_000)).mode(0o640).history(5);
/// assert_eq!(PRICES.history_len(), 5);
/// // The same, field by field.
/// let prices = Spec { model: Model::Temporal(1_000_000), mode: 0o640, history: 5, ..Spec::new(4096) };
/// assert_eq!(prices, PRICES);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Spec {
    /// Size in bytes.
    pub bytes: u64,
    /// Coherence model.
    pub model: Model,
    /// The nine Unix bits.
    pub mode: u16,
    /// Choice of the home.
    pub placement: Placement,
    /// Number of older versions in the history, for gets that name a version.
    ///
    /// Each is a copy of the whole segment, made by its home with each put. So a segment with a history (or of
    /// [`Model::Delta`]) has at most [`TRANSFER_BYTES_MAX`] bytes; more is refused. A larger copy
    /// would delay all other users of its home. Larger data with a history is split into several segments, or stored as
    /// one segment for each version.
    pub history: u16,
    /// Number of nodes with a copy: 1, or 2 for a segment with a replica. An acknowledged put of such a segment is on
    /// both nodes. When its home is declared dead the replica becomes its home, and handles stay valid.
    ///
    /// ```
    /// # use ddss_core as ddss;
    /// use ddss::Spec;
    /// let precious = Spec { copies: 2, ..Spec::new(4096) };
    /// assert_eq!(precious, Spec::new(4096).copies(2));
    /// assert_eq!(Spec::new(4096).copies, 1);
    /// ```
    pub copies: u8,
    /// Storage of its bytes. A segment in a file has one copy.
    pub storage: Storage,
    /// Bytes of one row of a [table](Self::table), a multiple of 8; 0 for a plain segment.
    pub row_bytes: u32,
}

impl Spec {
    /// Bytes of an encoded specification; the name follows it.
    pub const ENCODED_BYTES: usize = 24;

    /// Makes a specification with that size and defaults for the rest.
    pub const fn new(bytes: u64) -> Self {
        let (model, mode, placement) = (Model::Strict, Permissions::MODE_DEFAULT, Placement::Local);
        Self { bytes, model, mode, placement, history: 0, copies: 1, storage: Storage::Memory, row_bytes: 0 }
    }

    /// Makes the specification of a table: a segment of `rows` rows, each with a version and timestamp of its own. A row
    /// has `row_bytes` bytes, rounded up to a multiple of 8. A table keeps no older versions.
    ///
    /// ```
    /// # use ddss_core as ddss;
    /// use ddss::Spec;
    /// let scores = Spec::table(1000, 20);
    /// assert_eq!((scores.row_bytes, scores.bytes), (24, 24_000));
    /// assert!(scores.check().is_ok() && scores.history(2).check().is_err());
    /// ```
    pub const fn table(rows: u64, row_bytes: u32) -> Self {
        let row_bytes =
            row_bytes.saturating_add(TableLayout::ROW_UNIT - 1) / TableLayout::ROW_UNIT * TableLayout::ROW_UNIT;
        Self { row_bytes, ..Self::new(rows.saturating_mul(row_bytes as u64)) }
    }

    /// Sets the coherence model.
    #[must_use]
    pub const fn model(mut self, model: Model) -> Self {
        self.model = model;
        self
    }

    /// Sets the nine Unix bits.
    #[must_use]
    pub const fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the placement.
    #[must_use]
    pub const fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets the number of older versions in the history.
    #[must_use]
    pub const fn history(mut self, versions: u16) -> Self {
        self.history = versions;
        self
    }

    /// Sets the number of copies.
    #[must_use]
    pub const fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }

    /// Sets the storage.
    #[must_use]
    pub const fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Encodes the specification for the arena and for messages.
    ///
    /// ```text
    ///  0        8       12     14     16      17      18        20        21        22         24
    /// +--------+-------+------+------+-------+-------+---------+---------+---------+----------+
    /// | bytes  | param | mode | home | model | place | history | copies  | storage | row / 8  |
    /// +--------+-------+------+------+-------+-------+---------+---------+---------+----------+
    /// ```
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let (kind, parameter) = self.model.to_parts();
        let mut out = [0; Self::ENCODED_BYTES];
        out[0..8].copy_from_slice(&self.bytes.to_le_bytes());
        out[8..12].copy_from_slice(&parameter.to_le_bytes());
        out[12..14].copy_from_slice(&self.mode.to_le_bytes());
        let (place, home) = self.placement.to_parts();
        out[14..16].copy_from_slice(&home.0.to_le_bytes());
        (out[16], out[17]) = (kind, place);
        out[18..20].copy_from_slice(&self.history.to_le_bytes());
        out[20] = self.copies.wrapping_sub(1);
        out[21] = self.storage.code();
        out[22..24].copy_from_slice(&encode_row_bytes(self.row_bytes).to_le_bytes());
        out
    }

    /// Checks all fields; the error names the first one that is out of range.
    ///
    /// ```
    /// # use ddss_core as ddss;
    /// use ddss::{Model, Spec};
    /// // The nodes of readers keep no copies as large as this.
    /// let refused = Spec::new(100_000).model(Model::Temporal(5_000)).check().expect_err("useless");
    /// assert_eq!(refused.argument, "bytes");
    /// ```
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), BadArgument> {
        self.check_fields()?;
        if matches!(self.model, Model::Temporal(_)) && self.bytes > CACHED_BYTES_MAX {
            let range = format_args!("1 to {CACHED_BYTES_MAX} under the model temporal (nodes keep no larger copies)");
            return Err(BadArgument::new("bytes", self.bytes, range, Failure::BadSize));
        }
        Ok(())
    }

    /// Checks the fields without the rules that a segment of an earlier release may break.
    fn check_fields(&self) -> Result<(), BadArgument> {
        let Self { bytes, mode, history, copies, .. } = *self;
        let refuse = |argument, value: u64, range: std::fmt::Arguments<'_>, failure| {
            Err(BadArgument::new(argument, value, range, failure))
        };
        if bytes == 0 || bytes > SEGMENT_BYTES_MAX {
            return refuse("bytes", bytes, format_args!("1 to {SEGMENT_BYTES_MAX}"), Failure::BadSize);
        }
        if mode & !0o777 != 0 {
            return Err(BadArgument::new("mode", format_args!("{mode:o}"), MODES, Failure::Malformed));
        }
        if self.placement == Placement::Node(NodeId::NONE) {
            return Err(BadArgument::new("placement", "node 0", "a node's number, 1 or more", Failure::Malformed));
        }
        for (argument, versions) in [("history", u32::from(history)), ("delta", self.model.history_len())] {
            if versions > HISTORY_MAX {
                return refuse(argument, versions.into(), format_args!("0 to {HISTORY_MAX}"), Failure::BadSize);
            }
        }
        if self.history_len() > 0 && bytes > TRANSFER_BYTES_MAX as u64 {
            let range = format_args!("1 to {TRANSFER_BYTES_MAX} for a segment that keeps older versions");
            return refuse("bytes", bytes, range, Failure::TooLarge);
        }
        if !(1..=COPIES_MAX_OF_SEGMENT).contains(&copies) {
            return refuse("copies", copies.into(), format_args!("1 or {COPIES_MAX_OF_SEGMENT}"), Failure::Unsupported);
        }
        self.check_rows()?;
        if self.storage == Storage::File && copies > 1 {
            return refuse("copies", copies.into(), format_args!("1 for a segment in a file"), Failure::Unsupported);
        }
        Ok(())
    }

    /// Checks the fields of a table.
    fn check_rows(&self) -> Result<(), BadArgument> {
        let Self { bytes, row_bytes, .. } = *self;
        if row_bytes == 0 {
            return Ok(());
        }
        let refuse = |argument, value: u64, range: std::fmt::Arguments<'_>, failure| {
            Err(BadArgument::new(argument, value, range, failure))
        };
        if TableLayout::new(row_bytes).is_none() {
            let range = format_args!("0, or 8 to {} in steps of 8", TableLayout::ROW_BYTES_MAX);
            return refuse("row_bytes", row_bytes.into(), range, Failure::BadSize);
        }
        if !bytes.is_multiple_of(row_bytes.into()) {
            return refuse("bytes", bytes, format_args!("a multiple of the row's {row_bytes}"), Failure::BadSize);
        }
        if self.history_len() > 0 {
            let range = format_args!("0 for a table, and a model other than delta");
            return refuse("history", self.history_len().into(), range, Failure::Unsupported);
        }
        Ok(())
    }

    /// Returns the bytes behind the header that a replica has as well: all but the history. For the daemon.
    #[doc(hidden)]
    pub fn replicated_bytes(&self) -> u64 {
        self.layout().map_or(self.bytes, |layout| layout.pool_bytes(self.bytes) - Header::DATA_OFFSET)
    }

    /// Returns the layout of a table's records; `None` for a plain segment. For the daemon and the client itself.
    #[doc(hidden)]
    pub const fn layout(&self) -> Option<TableLayout> {
        TableLayout::new(self.row_bytes)
    }

    /// Returns the bytes of memory that the segment takes, with all its headers.
    pub fn pool_bytes(&self) -> u64 {
        match self.layout() {
            Some(layout) => layout.pool_bytes(self.bytes),
            None => Header::bytes_with(self.bytes, self.history_len()),
        }
    }

    /// Decodes and checks what [`encode`](Self::encode) wrote.
    #[doc(hidden)]
    pub fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Result<Self, Failure> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (size, rest) = (word(0), word(8));
        let mode = (rest >> 32) as u16;
        let model = Model::from_parts(bytes[16], rest as u32)?;
        let placement = Placement::from_parts(bytes[17], NodeId((rest >> 48) as u16))?;
        let history = u16::from_le_bytes([bytes[18], bytes[19]]);
        let row_bytes = decode_row_bytes(u16::from_le_bytes([bytes[22], bytes[23]]), size)?;
        let copies = bytes[20].wrapping_add(1);
        let storage = Storage::from_code(bytes[21])?;
        let spec = Self { bytes: size, model, mode, placement, history, copies, storage, row_bytes };
        spec.check_fields().map_err(|refused| refused.failure)?;
        Ok(spec)
    }

    /// Returns the offsets of all headers, counted from the first: its own, and those of the history.
    pub fn header_lines(&self) -> impl Iterator<Item = u64> + use<> {
        let (bytes, history_len) = (self.bytes, self.history_len());
        let kept = (0..=u64::from(history_len))
            .filter_map(move |version| Header::history_offset(bytes, history_len, Version(version)));
        kept.chain([0])
    }

    /// Returns the number of older versions in the history, for the user and for the model.
    pub fn history_len(&self) -> u32 {
        self.model.history_len().max(self.history.into())
    }
}

/// Encodes a checked row size in two bytes.
pub(crate) const fn encode_row_bytes(row_bytes: u32) -> u16 {
    (row_bytes / TableLayout::ROW_UNIT) as u16
}

/// Decodes the row size of a segment of that many bytes.
pub(crate) fn decode_row_bytes(units: u16, bytes: u64) -> Result<u32, Failure> {
    let row_bytes = u32::from(units) * TableLayout::ROW_UNIT;
    if row_bytes > 0 && !bytes.is_multiple_of(row_bytes.into()) {
        return Err(Failure::Malformed);
    }
    Ok(row_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_round_trips_and_rejects_malformed() {
        // If this broke, a segment could be made with a wrong size or with permissions that no client asked for.
        let spec = Spec {
            model: Model::Delta(9),
            mode: 0o640,
            placement: Placement::Node(NodeId(3)),
            history: 4,
            ..Spec::new(77)
        };
        assert_eq!(Spec::decode(&spec.encode()), Ok(spec));
        assert_eq!(Spec::decode(&Spec { copies: 3, ..spec }.encode()), Err(Failure::Unsupported));
        assert_eq!(Spec::decode(&Spec { copies: 0, ..spec }.encode()), Err(Failure::Unsupported));
        assert_eq!(Spec::decode(&Spec { bytes: 0, ..spec }.encode()), Err(Failure::BadSize));
        assert_eq!(Spec::decode(&Spec { bytes: u64::MAX, ..spec }.encode()), Err(Failure::BadSize));
        assert_eq!(Spec::decode(&Spec { mode: 0o1777, ..spec }.encode()), Err(Failure::Malformed));
        assert_eq!(Spec::decode(&Spec { history: u16::MAX, ..spec }.encode()), Err(Failure::BadSize));
        assert_eq!(Spec::decode(&Spec { bytes: 1 << 30, ..spec }.encode()), Err(Failure::TooLarge));
        for placement in [Placement::Local, Placement::RoundRobin, Placement::Hash] {
            assert_eq!(Spec::decode(&Spec { placement, ..spec }.encode()), Ok(Spec { placement, ..spec }));
        }
        let in_a_file = Spec { storage: Storage::File, ..spec };
        assert_eq!(Spec::decode(&in_a_file.encode()), Ok(in_a_file));
        let built = Spec::new(77).model(Model::Delta(9)).mode(0o640).placement(Placement::Node(NodeId(3))).history(4);
        assert_eq!((built, built.storage(Storage::File)), (spec, in_a_file));
        assert_eq!(built.copies(2), Spec { copies: 2, ..spec });
        assert_eq!(Spec::decode(&Spec { copies: 2, ..in_a_file }.encode()), Err(Failure::Unsupported));
        let table = Spec { model: Model::Null, ..Spec::table(10, 20) };
        assert_eq!(Spec::decode(&table.encode()), Ok(table));
        assert_eq!(Spec::decode(&Spec { bytes: 241, ..table }.encode()), Err(Failure::Malformed));
        for refused in [table.history(1), table.model(Model::Delta(1))] {
            assert_eq!(Spec::decode(&refused.encode()), Err(Failure::Unsupported));
        }
        for wrong in
            [Spec { row_bytes: 12, ..table }, Spec::table(1, u32::MAX), Spec::table(u64::MAX, 8), Spec::table(0, 8)]
        {
            assert_eq!(wrong.check().unwrap_err().failure, Failure::BadSize);
        }
        let mut bytes = spec.encode();
        bytes[21] = 2;
        assert_eq!(Spec::decode(&bytes), Err(Failure::Malformed));
        let mut bytes = spec.encode();
        bytes[16] = 99;
        assert_eq!(Spec::decode(&bytes), Err(Failure::Malformed));
    }
}
