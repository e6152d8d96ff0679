//! Layout of a map's bucket: one row of a table with several entries.
//!
//! ```text
//!  0         8                  80
//! +---------+------------------+--------------------------+------------------+
//! | counter | links, 18 × u32  | slots × (word, key)      | slots × value    |
//! +---------+------------------+--------------------------+------------------+
//!
//!  word: 1 bit used | 15 bits of the hash | 48 bits: expiry in ms since 1970, 0 for none; 0 is a free slot
//!  link: 1 bit used | 15 bits of the hash | 8 bits of slot | 8 bits of distance in buckets; 0 is a free link
//! ```
//!
//! Keys and values are padded to 8 bytes. An entry that finds no free slot in the bucket of its key lies in a slot of a
//! later bucket, and a link of its own bucket refers to it.

use ddss_core::{TableLayout, Version};
use std::ops::Deref;

/// Sizes of a map's buckets, from those of its types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketLayout {
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) slots: usize,
}

/// Reference to an entry in another bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) tag: u64,
    pub(crate) slot: usize,
    pub(crate) distance: u64,
}

impl Link {
    pub(crate) fn encode(self) -> [u8; 4] {
        (1 << 31 | (self.tag as u32) << 16 | (self.slot as u32) << 8 | self.distance as u32).to_le_bytes()
    }

    fn decode(bytes: [u8; 4]) -> Option<Self> {
        let word = u32::from_le_bytes(bytes);
        let tag = u64::from(word >> 16 & 0x7fff);
        (word != 0).then_some(Self { tag, slot: (word >> 8 & 0xff) as usize, distance: u64::from(word & 0xff) })
    }
}

const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

impl BucketLayout {
    pub(crate) const LINKS: usize = 18;
    /// Maximum distance of a link. Longer searches would read too many buckets for one insert.
    pub(crate) const REACH: u64 = 64;
    const LINKS_AT: usize = 8;
    const HEADS_AT: usize = Self::LINKS_AT + 4 * Self::LINKS;
    /// A get reads a bucket of up to this size whole, and the value of a larger bucket by itself.
    const WHOLE_BYTES_MAX: usize = 4096;
    /// More slots level out the load of buckets, fewer make the bucket that a get reads smaller.
    const SLOTS: (usize, usize) = (8, 16);

    pub(crate) fn new(key_bytes: usize, value_bytes: usize) -> Self {
        let slot = 8 + padded(key_bytes) + padded(value_bytes);
        let wanted = ((Self::WHOLE_BYTES_MAX - Self::HEADS_AT) / slot).clamp(Self::SLOTS.0, Self::SLOTS.1);
        let fitting = (TableLayout::ROW_BYTES_MAX as usize - Self::HEADS_AT) / slot;
        Self { key_bytes, value_bytes, slots: wanted.min(fitting) }
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.value_at(self.slots)
    }

    /// Returns the bytes that a lookup reads.
    pub(crate) fn read_bytes(&self) -> usize {
        if self.row_bytes() <= Self::WHOLE_BYTES_MAX { self.row_bytes() } else { self.value_at(0) }
    }

    pub(crate) fn link_at(&self, index: usize) -> usize {
        Self::LINKS_AT + 4 * index
    }

    pub(crate) fn head_at(&self, slot: usize) -> usize {
        Self::HEADS_AT + slot * (8 + padded(self.key_bytes))
    }

    pub(crate) fn value_at(&self, slot: usize) -> usize {
        self.head_at(self.slots) + slot * padded(self.value_bytes)
    }
}

/// Word of a used slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotWord(u64);

impl SlotWord {
    const USED: u64 = 1 << 63;
    const EXPIRY: u64 = (1 << 48) - 1;

    pub(crate) fn new(tag: u64, expiry_ms: u64) -> Self {
        Self(Self::USED | (tag & 0x7fff) << 48 | expiry_ms.min(Self::EXPIRY))
    }

    pub(crate) fn bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(crate) fn expiry_ms(self) -> u64 {
        self.0 & Self::EXPIRY
    }

    pub(crate) fn is_expired(self, now_ms: u64) -> bool {
        self.expiry_ms() != 0 && self.expiry_ms() <= now_ms
    }
}

/// Copy of a bucket of one version: the whole, or the part in front of the values.
#[derive(Clone, Debug)]
pub(crate) struct Bucket<B = Vec<u8>> {
    layout: BucketLayout,
    bytes: B,
    pub(crate) version: Version,
}

impl Bucket {
    pub(crate) fn new(layout: BucketLayout, bytes: Vec<u8>, version: Version) -> Self {
        assert_eq!(bytes.len(), layout.read_bytes(), "the part that a lookup reads");
        Self { layout, bytes, version }
    }
}

impl<'a> Bucket<&'a [u8]> {
    /// Views the part in front of the values.
    pub(crate) fn of_heads(layout: BucketLayout, bytes: &'a [u8], version: Version) -> Self {
        assert_eq!(bytes.len(), layout.value_at(0), "the part in front of the values");
        Self { layout, bytes, version }
    }
}

impl<B: Deref<Target = [u8]>> Bucket<B> {
    fn word_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    pub(crate) fn counter(&self) -> u64 {
        self.word_at(0)
    }

    /// Returns the word of a slot that is used.
    pub(crate) fn word(&self, slot: usize) -> Option<SlotWord> {
        // The link that named the slot came from memory that other processes write.
        if slot >= self.layout.slots {
            return None;
        }
        let word = self.word_at(self.layout.head_at(slot));
        (word != 0).then_some(SlotWord(word))
    }

    pub(crate) fn key(&self, slot: usize) -> &[u8] {
        let at = self.layout.head_at(slot) + 8;
        &self.bytes[at..at + self.layout.key_bytes]
    }

    /// Returns a slot's value if the copy includes it.
    pub(crate) fn value(&self, slot: usize) -> Option<&[u8]> {
        let at = self.layout.value_at(slot);
        self.bytes.get(at..at + self.layout.value_bytes)
    }

    /// Returns true if the slot holds that key.
    pub(crate) fn holds(&self, slot: usize, tag: u64, key: &[u8]) -> bool {
        self.word(slot).is_some_and(|word| word.0 >> 48 & 0x7fff == tag) && self.key(slot) == key
    }

    pub(crate) fn slot_of(&self, tag: u64, key: &[u8]) -> Option<usize> {
        (0..self.layout.slots).find(|&slot| self.holds(slot, tag, key))
    }

    pub(crate) fn used_slots(&self) -> impl Iterator<Item = (usize, SlotWord)> + '_ {
        (0..self.layout.slots).filter_map(|slot| Some((slot, self.word(slot)?)))
    }

    pub(crate) fn free_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.layout.slots).filter(|&slot| self.word(slot).is_none())
    }

    fn link(&self, index: usize) -> Option<Link> {
        let at = self.layout.link_at(index);
        Link::decode(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (usize, Link)> + '_ {
        (0..BucketLayout::LINKS).filter_map(|index| Some((index, self.link(index)?)))
    }

    /// Returns true if an entry with that tag may lie in another bucket.
    pub(crate) fn is_linked(&self, tag: u64) -> bool {
        self.links().any(|(_, link)| link.tag == tag)
    }

    pub(crate) fn free_link(&self) -> Option<usize> {
        (0..BucketLayout::LINKS).find(|&index| self.link(index).is_none())
    }

    pub(crate) fn has_link(&self, distance: u64, slot: usize) -> bool {
        self.links().any(|(_, link)| (link.distance, link.slot) == (distance, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_bucket_do_not_overlap_and_fit_a_row() {
        // If this broke, an entry would overwrite another one.
        for (key, value) in [(1, 0), (8, 64), (16, 240), (8, 4000), (1024, 65_536)] {
            let layout = BucketLayout::new(key, value);
            assert!(layout.slots >= 7, "{layout:?}");
            assert!(layout.row_bytes() <= TableLayout::ROW_BYTES_MAX as usize && layout.row_bytes().is_multiple_of(8));
            assert_eq!(layout.link_at(BucketLayout::LINKS), layout.head_at(0));
            assert!(layout.head_at(0) + 8 + key <= layout.head_at(1));
            assert!(layout.head_at(layout.slots) <= layout.value_at(0));
            assert!(layout.value_at(0) + value <= layout.value_at(1));
        }
    }

    #[test]
    fn words_and_links_keep_their_fields() {
        // If this broke, an entry would expire at another time, or be looked for at another place.
        let word = SlotWord::new(0x7fff, 1234);
        assert_eq!((word.expiry_ms(), word.is_expired(1233), word.is_expired(1234)), (1234, false, true));
        assert!(!SlotWord::new(0, 0).is_expired(u64::MAX));
        let link = Link { tag: 0x7ffe, slot: 15, distance: 64 };
        assert_eq!(Link::decode(link.encode()), Some(link));
        assert_eq!(Link::decode([0; 4]), None);
    }

    #[test]
    fn bytes_of_a_map_are_at_most_one_and_a_half_of_its_data() {
        // If this broke, a node would hold fewer keys than the limits of maps promise.
        for (key, value) in [(8, 64), (16, 64), (8, 256), (32, 1000), (8, 65_536)] {
            let layout = BucketLayout::new(key, value);
            let record = layout.row_bytes() as u64 + TableLayout::RECORD_HEADER_BYTES;
            // At the load limit of 0.8, four of five slots are used: 2 · record / (0.8 · slots) <= 3 · data.
            let data = (layout.slots * (key + value)) as u64;
            assert!(10 * record <= 12 * data, "{layout:?}: {record} bytes for {data}");
        }
    }
}
