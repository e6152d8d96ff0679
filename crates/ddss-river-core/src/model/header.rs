//! The header of a message.

use super::id::UnitId;

/// One transfer of a message. Both ends name a message by it, so that a late reply to an earlier transfer changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attempt {
    /// Number of the message: a producer counts from 0.
    pub index: u64,
    /// Send slot of the producer that has the message.
    pub place: u16,
    /// Number of the transfer, from 1 on.
    pub number: u16,
}

/// The past of a message.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flags {
    /// An earlier consumer may have processed the message.
    pub is_redelivered: bool,
    /// The message was taken back from a consumer that had not begun it.
    pub is_recalled: bool,
}

/// Everything that a consumer learns of a message before its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Transfer.
    pub attempt: Attempt,
    /// Slot of the producer's ring at the consumer that has the bytes.
    pub slot: u16,
    /// Bytes.
    pub length: u32,
    /// CRC32c of the bytes, which the two drivers compute and compare.
    pub checksum: u32,
    /// Work unit that the message belongs to.
    pub unit: Option<UnitId>,
    /// Flags.
    pub flags: Flags,
}
