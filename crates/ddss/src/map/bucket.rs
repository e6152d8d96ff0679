//! Copy of a map's bucket. `ddss-core` defines the layout.

use ddss_core::{BucketLayout, BucketLink, SlotWord, Version};

/// Copy of a bucket of one version: the whole, or the part in front of the values.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    layout: BucketLayout,
    bytes: Vec<u8>,
    pub(crate) version: Version,
}

impl Bucket {
    pub(crate) fn new(layout: BucketLayout, bytes: Vec<u8>, version: Version) -> Self {
        assert_eq!(bytes.len(), layout.read_bytes(), "the part that a lookup reads");
        Self { layout, bytes, version }
    }

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
        SlotWord::of(word)
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
        self.word(slot).is_some_and(|word| word.tag() == tag) && self.key(slot) == key
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

    fn link(&self, index: usize) -> Option<BucketLink> {
        let (link, _) = self.bytes[self.layout.link_at(index)..].split_first_chunk().expect("links lie before slots");
        BucketLink::decode(*link)
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (usize, BucketLink)> + '_ {
        (0..BucketLayout::LINKS).filter_map(|index| Some((index, self.link(index)?)))
    }

    /// Returns true if an entry with that tag may lie in another bucket.
    pub(crate) fn is_linked(&self, tag: u64) -> bool {
        self.links().any(|(_, link)| link.may_have(tag))
    }

    pub(crate) fn free_link(&self) -> Option<usize> {
        (0..BucketLayout::LINKS).find(|&index| self.link(index).is_none())
    }

    pub(crate) fn has_link(&self, step: usize, slot: usize) -> bool {
        self.links().any(|(_, link)| (link.step, link.slot) == (step, slot))
    }
}
