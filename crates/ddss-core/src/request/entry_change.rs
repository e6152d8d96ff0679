//! Changes of one entry of a map, which the home of the map executes in one request.

use crate::failure::Failure;
use crate::model::bucket::{BucketLayout, SlotWord};

/// Change of an entry in one bucket of a map, as a condition of a put into that row: the home finds the slot by the key.
///
/// The bytes of the put are the word of the slot, the key and, unless the entry is removed, the value. The first word of
/// the answer is an [`EntryState`].
///
/// ```
/// use ddss_core::{EntryChange, EntryChangeKind};
/// let change = EntryChange { kind: EntryChangeKind::Insert, key_bytes: 8, value_bytes: 64 };
/// assert_eq!(EntryChange::from_word(change.to_word()), Ok(change));
/// assert_eq!(change.payload_bytes(), 8 + 8 + 64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryChange {
    /// Kind of change.
    pub kind: EntryChangeKind,
    /// Bytes of the map's keys.
    pub key_bytes: u16,
    /// Bytes of the map's values.
    pub value_bytes: u32,
}

/// Kind of change of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryChangeKind {
    /// Writes the entry, whether its key is present or not.
    Write = 1,
    /// Writes the entry if its key is absent.
    Insert = 2,
    /// Frees the slot of the entry.
    Remove = 3,
}

impl EntryChangeKind {
    const fn from_code(code: u8) -> Result<Self, Failure> {
        match code {
            1 => Ok(Self::Write),
            2 => Ok(Self::Insert),
            3 => Ok(Self::Remove),
            _ => Err(Failure::Malformed),
        }
    }
}

impl EntryChange {
    /// Encodes as one word.
    pub const fn to_word(self) -> u64 {
        (self.kind as u64) << 48 | (self.key_bytes as u64) << 32 | self.value_bytes as u64
    }

    /// Decodes a word, and checks the sizes.
    pub fn from_word(word: u64) -> Result<Self, Failure> {
        let kind = u8::try_from(word >> 48).map_err(|_| Failure::Malformed)?;
        Self::from_parts(kind, (word >> 32) as u16, word as u32)
    }

    /// Returns the code of the kind, and the sizes.
    pub(crate) const fn to_parts(self) -> (u8, u16, u32) {
        (self.kind as u8, self.key_bytes, self.value_bytes)
    }

    /// Makes a change of that kind, and checks the sizes.
    pub(crate) fn from_parts(kind: u8, key_bytes: u16, value_bytes: u32) -> Result<Self, Failure> {
        let change = Self { kind: EntryChangeKind::from_code(kind)?, key_bytes, value_bytes };
        change.layout().map(|_| change)
    }

    /// Returns the layout of the map's buckets.
    pub fn layout(&self) -> Result<BucketLayout, Failure> {
        BucketLayout::new(self.key_bytes.into(), self.value_bytes as usize).ok_or(Failure::BadSize)
    }

    /// Returns the bytes of the slot's word and the key.
    pub const fn head_bytes(&self) -> u32 {
        SlotWord::BYTES as u32 + self.key_bytes as u32
    }

    /// Returns the bytes of the put.
    pub const fn payload_bytes(&self) -> u32 {
        match self.kind {
            EntryChangeKind::Write | EntryChangeKind::Insert => self.head_bytes() + self.value_bytes,
            EntryChangeKind::Remove => self.head_bytes(),
        }
    }
}

/// State of an entry before its change, as the home found it. An entry that has expired is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryState {
    /// The key was absent.
    Absent = 1,
    /// The key was present.
    Present = 2,
    /// Only several buckets can tell, or have room for the entry. The home did nothing.
    Elsewhere = 3,
}

impl EntryState {
    /// Decodes the first word of an answer. With an unknown word the client looks for itself, as with `Elsewhere`.
    pub const fn of_word(word: u64) -> Self {
        match word {
            1 => Self::Absent,
            2 => Self::Present,
            _ => Self::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_of_maps_are_decoded() {
        // If this broke, a client could make the daemon compare or write outside a bucket.
        let word = |kind: u64, key: u64, value: u64| kind << 48 | key << 32 | value;
        for good in [word(1, 1, 0), word(2, 1024, 65_536), word(3, 8, 64)] {
            assert_eq!(EntryChange::from_word(good).map(EntryChange::to_word), Ok(good));
        }
        for (bad, failure) in [
            (word(0, 8, 8), Failure::Malformed),
            (word(4, 8, 8), Failure::Malformed),
            (word(257, 8, 8), Failure::Malformed),
            (word(1, 0, 8), Failure::BadSize),
            (word(1, 1025, 8), Failure::BadSize),
            (word(1, 8, 65_537), Failure::BadSize),
        ] {
            assert_eq!(EntryChange::from_word(bad), Err(failure), "{bad:x}");
        }
        for state in [EntryState::Absent, EntryState::Present, EntryState::Elsewhere] {
            assert_eq!(EntryState::of_word(state as u64), state);
        }
    }
}
