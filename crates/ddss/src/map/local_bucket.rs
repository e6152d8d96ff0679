//! Search for a key in a map's bucket that this process has mapped. No copy of the bucket is made: a get reads the words of
//! its slots, the key of the slot with the right tag, and the value.

use crate::encoding::{Encoding, Seal};
use crate::location::local_read::LocalRow;
use crate::map::entry::{Entry, now_ms};
use ddss_core::{BucketLayout, BucketLink, SlotWord};

/// Bucket in this node's memory. The daemon may change it at any time, so no answer counts before the row was
/// [whole](LocalRow::is_whole).
pub(crate) struct LocalBucket<'a> {
    pub(crate) row: LocalRow<'a>,
    pub(crate) layout: BucketLayout,
}

impl LocalBucket<'_> {
    /// Returns the entry of a key, or that the key is absent; `None` if the entry may lie in another bucket.
    #[inline]
    pub(crate) fn entry_of<V: Encoding + ?Sized>(&self, tag: u64, key: &[u8]) -> Option<Option<Entry<V::Output>>> {
        for slot in 0..self.layout.slots {
            let at = self.layout.head_at(slot);
            let Some(word) = SlotWord::of(self.row.word(at)?) else { continue };
            if word.tag() != tag || !self.has_key(at + SlotWord::BYTES, key)? {
                continue;
            }
            if word.expiry_ms() > 0 && word.is_expired(now_ms()) {
                return Some(None);
            }
            let read = |into: &mut [u8]| {
                self.row.read(self.layout.value_at(slot), into)?;
                // The code of a user's type decodes only bytes of one put.
                (V::FIRST_READ.is_none() || self.row.is_whole()).then_some(())
            };
            let value = V::read(self.layout.value_bytes, read, Seal)?;
            return Some(Some(Entry { value, version: self.row.version(), expiry_ms: word.expiry_ms() }));
        }
        if self.is_linked(tag)? { None } else { Some(None) }
    }

    /// Compares a key word by word.
    #[inline]
    fn has_key(&self, at: usize, key: &[u8]) -> Option<bool> {
        let (words, rest) = key.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            if self.row.word(at + 8 * index)? != u64::from_le_bytes(*word) {
                return Some(false);
            }
        }
        // Keys are padded to whole words.
        let last = if rest.is_empty() { [0; 8] } else { self.row.word(at + 8 * words.len())?.to_le_bytes() };
        Some(last[..rest.len()] == *rest)
    }

    /// Returns true if an entry with that tag may lie in another bucket.
    fn is_linked(&self, tag: u64) -> Option<bool> {
        const { assert!(BucketLayout::LINKS.is_multiple_of(4), "four links are one word") };
        for index in (0..BucketLayout::LINKS).step_by(4) {
            let four = self.row.word(self.layout.link_at(index))?;
            if four == 0 {
                continue;
            }
            let bytes = four.to_le_bytes();
            let (links, _) = bytes.as_chunks::<{ BucketLink::BYTES }>();
            if links.iter().any(|link| BucketLink::decode(*link).is_some_and(|link| link.may_have(tag))) {
                return Some(true);
            }
        }
        Some(false)
    }
}
