//! Changes of one entry of a map, which the home of the map executes in one request.

use crate::failure::Failure;
use crate::model::bucket::{BucketLayout, BucketSearch, SlotWord};

/// Change of an entry in one bucket of a map, as a condition of a put into that row: the home finds the slot by the key.
///
/// The bytes of the put are the word of the slot, the key and, if the change writes one, the value. The first word of the
/// answer is an [`EntryState`].
///
/// ```
/// use ddss_core::{EntryChange, EntryChangeKind};
/// let change = EntryChange { kind: EntryChangeKind::Insert, key_bytes: 8, value_bytes: 64, expected: 0 };
/// assert_eq!(EntryChange::from_words(change.to_word(), 0), Ok(change));
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
    /// Digest of the entry that [`Replace`](EntryChangeKind::Replace) expects, by [`BucketLayout::digest`]; else 0.
    pub expected: u64,
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
    /// Writes the entry if it is still the expected one, whatever happened to other entries of its bucket.
    Replace = 4,
    /// Gives the entry another expiry.
    Touch = 5,
}

impl EntryChangeKind {
    const fn from_code(code: u8) -> Result<Self, Failure> {
        match code {
            1 => Ok(Self::Write),
            2 => Ok(Self::Insert),
            3 => Ok(Self::Remove),
            4 => Ok(Self::Replace),
            5 => Ok(Self::Touch),
            _ => Err(Failure::Malformed),
        }
    }
}

impl EntryChange {
    /// Encodes all but the digest as one word.
    pub const fn to_word(self) -> u64 {
        (self.kind as u64) << 48 | (self.key_bytes as u64) << 32 | self.value_bytes as u64
    }

    /// Decodes a word and the digest, and checks the sizes. Only [`EntryChangeKind::Replace`] has a digest.
    pub fn from_words(word: u64, expected: u64) -> Result<Self, Failure> {
        let kind = u8::try_from(word >> 48).map_err(|_| Failure::Malformed)?;
        let (kind, key_bytes, value_bytes) = (EntryChangeKind::from_code(kind)?, (word >> 32) as u16, word as u32);
        let change = Self { kind, key_bytes, value_bytes, expected };
        if expected != 0 && kind != EntryChangeKind::Replace {
            return Err(Failure::Malformed);
        }
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

    /// Searches a bucket for the entry of this change. `head` is the word of the entry and its key, `seed` copies the
    /// seed of the map, and `read` bytes of the bucket. `None` if `head` is not of a used slot.
    pub fn search(
        &self,
        head: &[u8],
        seed: impl FnOnce(&mut [u8; BucketLayout::SEED_BYTES]),
        mut read: impl FnMut(usize, &mut [u8]),
    ) -> Option<BucketSearch> {
        let layout = self.layout().ok()?;
        let mut found = layout.search(head, &mut read)?;
        if let (EntryChangeKind::Replace, Some(entry)) = (self.kind, found.entry) {
            let mut bytes = [0; BucketLayout::SEED_BYTES];
            seed(&mut bytes);
            let (words, _) = bytes.as_chunks::<8>();
            found.digest = layout.digest_in_bucket([0, 1].map(|at| u64::from_le_bytes(words[at])), entry, read);
        }
        Some(found)
    }

    /// Returns the bytes of the put.
    pub const fn payload_bytes(&self) -> u32 {
        match self.kind {
            EntryChangeKind::Write | EntryChangeKind::Insert | EntryChangeKind::Replace => {
                self.head_bytes() + self.value_bytes
            }
            EntryChangeKind::Remove | EntryChangeKind::Touch => self.head_bytes(),
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
    /// The key was present, and its entry not the expected one. The home did nothing.
    Changed = 4,
}

impl EntryState {
    /// Decodes the first word of an answer. With an unknown word the client looks for itself, as with `Elsewhere`.
    pub const fn of_word(word: u64) -> Self {
        match word {
            1 => Self::Absent,
            2 => Self::Present,
            4 => Self::Changed,
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
        for good in [word(1, 1, 0), word(2, 1024, 65_536), word(3, 8, 64), word(4, 8, 64), word(5, 8, 64)] {
            assert_eq!(EntryChange::from_words(good, 0).map(EntryChange::to_word), Ok(good));
            let is_replace = good >> 48 == 4;
            assert_eq!(EntryChange::from_words(good, 7).map_err(drop).is_ok(), is_replace, "a digest");
        }
        for (bad, failure) in [
            (word(0, 8, 8), Failure::Malformed),
            (word(6, 8, 8), Failure::Malformed),
            (word(257, 8, 8), Failure::Malformed),
            (word(1, 0, 8), Failure::BadSize),
            (word(1, 1025, 8), Failure::BadSize),
            (word(1, 8, 65_537), Failure::BadSize),
        ] {
            assert_eq!(EntryChange::from_words(bad, 0), Err(failure), "{bad:x}");
        }
        for state in [EntryState::Absent, EntryState::Present, EntryState::Elsewhere, EntryState::Changed] {
            assert_eq!(EntryState::of_word(state as u64), state);
        }
    }
}
