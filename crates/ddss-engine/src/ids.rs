//! Ids that the engine gives: waits, buffers, bytes on their way out, claims of names.

use ddss_core::limits::OPERATIONS_MAX;

/// Id of one wait; stale ids name nothing.
///
/// Its low 16 bits are an index that is unique among current waits; the 32 bits above are its generation. The high 16
/// bits are zero, free for tags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(u64);

const _: () = assert!(OPERATIONS_MAX <= 1 << StepId::INDEX_BITS);

impl StepId {
    const INDEX_BITS: u32 = 16;
    /// Bits of an id that can be nonzero.
    pub const BITS: u32 = Self::INDEX_BITS + 32;

    pub(crate) const fn new(index: usize, generation: u32) -> Self {
        Self((generation as u64) << Self::INDEX_BITS | index as u64)
    }

    /// Returns the number that travels through a fabric or in a message.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
    /// Restores an id; any value is an id, most name nothing.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// Returns the index, below [`OPERATIONS_MAX`].
    pub const fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> Self::INDEX_BITS) as u32
    }
}

/// Id of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferId(u32);

impl BufferId {
    pub(crate) const fn new(index: u32) -> Self {
        Self(index)
    }
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Id of pool bytes on their way out, until the fabric has taken them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedGetId(u32);

impl ServedGetId {
    pub(crate) const fn new(index: u32) -> Self {
        Self(index)
    }
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
    /// Returns the number that travels through a fabric; it is unique while in use.
    pub const fn to_bits(self) -> u64 {
        self.0 as u64
    }
    /// Restores an id from its number.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits as u32)
    }
}

/// Id of one claim, or of its return.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClaimId(u64);

impl ClaimId {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns a number that no other claim of this engine has.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}
