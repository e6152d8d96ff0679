//! Map: the description in row 0 of its table, the bucket of a key, and what no get finds any more in a bucket.
//!
//! Clients change maps bucket by bucket, and an entry in another bucket in two steps: the entry, then the link
//! (`bucket.rs`). The home reads all buckets of a step at the same time, so it sees no change half done but that one.

use super::bucket::{BucketLayout, BucketLink, SlotWord};
use crate::model::ranges::Range;
use arrayvec::ArrayVec;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Sizes and seed of a map, and its number of buckets.
#[derive(Clone, Debug)]
pub struct MapLayout {
    /// Layout of its buckets.
    pub bucket: BucketLayout,
    seed: [u64; 2],
    buckets: u64,
    /// Distances of the buckets that links reach.
    link_offsets: Vec<u64>,
}

/// Content of a bucket that no get finds any more, as ranges of its bytes that have to be zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BucketGarbage {
    /// Words of expired entries and orphans, and links without an entry. There may be more.
    pub ranges: ArrayVec<Range, { BucketGarbage::RANGES_MAX }>,
    /// Number of entries among them.
    pub entries: u32,
    /// Orphans whose keys belong to one other bucket.
    pub orphans: Option<Orphans>,
    /// Earliest expiry of an entry that stays, in milliseconds since 1970; 0 for none.
    pub expiry_ms: u64,
}

/// Entries that no link leads to. Their client may be about to link them, so the bucket of their keys has to change before
/// they go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Orphans {
    /// Bucket of their keys.
    pub owner: u64,
    /// Words of the entries.
    pub ranges: ArrayVec<Range, { BucketGarbage::RANGES_MAX }>,
}

impl BucketGarbage {
    /// Maximum number of ranges that one commit clears.
    pub const RANGES_MAX: usize = crate::limits::RANGES_MAX;

    /// Returns true if something has to be cleared.
    pub fn is_found(&self) -> bool {
        !self.ranges.is_empty() || self.orphans.is_some()
    }

    fn push(&mut self, at: usize, bytes: usize) -> bool {
        self.ranges.try_push(Range { offset: at as u64, bytes: bytes as u32 }).is_ok()
    }

    fn push_orphan(&mut self, owner: u64, at: usize) {
        let orphans = self.orphans.get_or_insert_with(|| Orphans { owner, ranges: ArrayVec::new() });
        if orphans.owner == owner {
            // A bucket has no more slots than ranges fit.
            let _ = orphans.ranges.try_push(Range { offset: at as u64, bytes: SlotWord::BYTES as u32 });
        }
    }

    fn keep(&mut self, word: SlotWord) {
        let expiry_ms = word.expiry_ms();
        if expiry_ms > 0 && (self.expiry_ms == 0 || expiry_ms < self.expiry_ms) {
            self.expiry_ms = expiry_ms;
        }
    }
}

impl MapLayout {
    /// First word of row 0.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"DDSSMAP2");
    /// Bytes of the description in row 0: magic, sizes of key and value, slots of a bucket, seed.
    pub const DESCRIPTION_BYTES: usize = BucketLayout::SEED_AT + BucketLayout::SEED_BYTES;

    /// Decodes the description in row 0 of a table; `None` if the table is no map.
    pub fn of_description(bytes: &[u8; Self::DESCRIPTION_BYTES], rows: u64, row_bytes: u64) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let [magic, key_bytes, value_bytes, slots, first, second] =
            std::array::from_fn(|index| u64::from_le_bytes(words[index]));
        let bucket = BucketLayout::new(key_bytes.try_into().ok()?, value_bytes.try_into().ok()?)?;
        let is_map = magic == Self::MAGIC && bucket.slots as u64 == slots && bucket.row_bytes() as u64 == row_bytes;
        let buckets = rows.checked_sub(1).filter(|&buckets| is_map && buckets >= 2)?;
        Some(Self { bucket, seed: [first, second], buckets, link_offsets: BucketLayout::link_offsets(buckets) })
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Returns the hash of a key of a map with that seed. Its low bits are the tag.
    #[inline]
    pub fn hash(seed: [u64; 2], key: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(seed[0], seed[1]);
        hasher.write(key);
        hasher.finish()
    }

    /// Returns the bucket of a hash.
    #[inline]
    pub const fn bucket_of(hash: u64, buckets: u64) -> u64 {
        ((hash as u128 * buckets as u128) >> 64) as u64
    }

    /// Finds what has to be cleared in a bucket. `read` copies bytes of any bucket, all of one moment.
    ///
    /// An expired entry keeps its link: a client may put a new value in its place, without a change of the bucket with
    /// the link. The link goes once the slot is free, or has the entry of another bucket.
    pub fn garbage_in(&self, bucket: u64, now_ms: u64, mut read: impl FnMut(u64, usize, &mut [u8])) -> BucketGarbage {
        let (mut found, mut key) = (BucketGarbage::default(), [0; BucketLayout::KEY_BYTES_MAX]);
        for slot in 0..self.bucket.slots {
            let Some((owner, word)) = self.owner(bucket, slot, &mut key, &mut read) else { continue };
            if word.is_expired(now_ms) {
                found.entries += u32::from(found.push(self.bucket.head_at(slot), SlotWord::BYTES));
            } else if owner == bucket || self.is_linked(owner, bucket, slot, &mut read) {
                found.keep(word);
            } else {
                found.push_orphan(owner, self.bucket.head_at(slot));
            }
        }
        for (index, link) in self.links(bucket, &mut read) {
            let target = self.stepped(bucket, link.step);
            let owner = self.owner(target, link.slot, &mut key, &mut read);
            if owner.is_none_or(|(owner, _)| owner != bucket) {
                found.push(self.bucket.link_at(index), BucketLink::BYTES);
            }
        }
        found
    }

    fn links(&self, bucket: u64, read: &mut impl FnMut(u64, usize, &mut [u8])) -> Vec<(usize, BucketLink)> {
        let mut links = [[0; BucketLink::BYTES]; BucketLayout::LINKS];
        read(bucket, self.bucket.link_at(0), links.as_flattened_mut());
        let decoded =
            links.into_iter().enumerate().filter_map(|(index, link)| Some((index, BucketLink::decode(link)?)));
        decoded.filter(|(_, link)| link.slot < self.bucket.slots).collect()
    }

    fn is_linked(&self, owner: u64, bucket: u64, slot: usize, read: &mut impl FnMut(u64, usize, &mut [u8])) -> bool {
        self.links(owner, read).iter().any(|(_, link)| link.slot == slot && self.stepped(owner, link.step) == bucket)
    }

    /// Returns the bucket that a step leads to; a step that no link has leads to the same bucket.
    fn stepped(&self, bucket: u64, step: usize) -> u64 {
        let offset = step.checked_sub(1).and_then(|at| self.link_offsets.get(at)).copied();
        (bucket + offset.unwrap_or(0)) % self.buckets
    }

    /// Returns the bucket of the key in a slot, and the word of the slot; `None` for a free slot.
    fn owner(
        &self,
        bucket: u64,
        slot: usize,
        key: &mut [u8; BucketLayout::KEY_BYTES_MAX],
        read: &mut impl FnMut(u64, usize, &mut [u8]),
    ) -> Option<(u64, SlotWord)> {
        let (at, mut word) = (self.bucket.head_at(slot), [0; SlotWord::BYTES]);
        read(bucket, at, &mut word);
        let word = SlotWord::of(u64::from_le_bytes(word))?;
        let key = &mut key[..self.bucket.key_bytes];
        read(bucket, at + SlotWord::BYTES, key);
        Some((Self::bucket_of(Self::hash(self.seed, key), self.buckets), word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1000;

    /// A map of 9 buckets in memory, with keys of 8 bytes and no values.
    struct Buckets {
        map: MapLayout,
        bytes: Vec<Vec<u8>>,
    }

    impl Buckets {
        fn new() -> Self {
            let layout = BucketLayout::new(8, 0).unwrap();
            let words = [MapLayout::MAGIC, 8, 0, layout.slots as u64, 5, 7];
            let description: [u8; MapLayout::DESCRIPTION_BYTES] =
                std::array::from_fn(|at| words[at / 8].to_le_bytes()[at % 8]);
            let row_bytes = layout.row_bytes() as u64;
            assert!(MapLayout::of_description(&description, 10, row_bytes + 8).is_none(), "another table");
            assert!(MapLayout::of_description(&[0; MapLayout::DESCRIPTION_BYTES], 10, row_bytes).is_none());
            let map = MapLayout::of_description(&description, 10, row_bytes).unwrap();
            Self { map, bytes: vec![vec![0; row_bytes as usize]; 9] }
        }

        /// Returns keys of a bucket.
        fn keys(&self, bucket: u64) -> impl Iterator<Item = u64> {
            let owner = |key: &u64| MapLayout::bucket_of(MapLayout::hash([5, 7], &key.to_le_bytes()), 9);
            (0..).filter(move |key| owner(key) == bucket)
        }

        fn put(&mut self, bucket: usize, slot: usize, key: u64, expiry_ms: u64) {
            let entry = [SlotWord::new(0, expiry_ms).bytes(), key.to_le_bytes()].concat();
            self.bytes[bucket][self.map.bucket.head_at(slot)..][..16].copy_from_slice(&entry);
        }

        fn link(&mut self, bucket: usize, index: usize, slot: usize, step: usize) {
            let link = BucketLink::new(0, slot, step).encode();
            self.bytes[bucket][self.map.bucket.link_at(index)..][..2].copy_from_slice(&link);
        }

        fn garbage(&self, bucket: u64) -> BucketGarbage {
            self.map.garbage_in(bucket, NOW_MS, |bucket, at, into| {
                into.copy_from_slice(&self.bytes[bucket as usize][at..][..into.len()]);
            })
        }

        fn clear(&mut self, bucket: usize, ranges: &[Range]) {
            ranges.iter().for_each(|range| self.bytes[bucket][range.offset as usize..][..range.bytes as usize].fill(0));
        }
    }

    #[test]
    fn link_to_an_expired_entry_is_garbage_once_its_slot_is_free() {
        // If this broke, a value that a client puts in the place of an expired one would be lost.
        let mut buckets = Buckets::new();
        let key = buckets.keys(2).next().unwrap();
        buckets.put(3, 4, key, NOW_MS);
        buckets.link(2, 7, 4, 1);
        assert!(!buckets.garbage(2).is_found(), "the link stays");
        let expired = buckets.garbage(3);
        let word = Range { offset: buckets.map.bucket.head_at(4) as u64, bytes: 8 };
        assert_eq!((&expired.ranges[..], expired.entries, expired.orphans), (&[word][..], 1, None));
        buckets.clear(3, &expired.ranges);
        let link = Range { offset: buckets.map.bucket.link_at(7) as u64, bytes: 2 };
        let dead = buckets.garbage(2);
        assert_eq!((&dead.ranges[..], dead.entries), (&[link][..], 0));
        // The slot has the entry of another bucket.
        let other = buckets.keys(3).next().unwrap();
        buckets.put(3, 4, other, 0);
        assert_eq!((buckets.garbage(2), buckets.garbage(3).is_found()), (dead, false));
    }

    #[test]
    fn entries_that_live_stay_and_tell_their_expiry() {
        // If this broke, a sweep would lose keys, or not know when the next entry expires.
        let mut buckets = Buckets::new();
        let [first, second, third] = std::array::from_fn(|index| buckets.keys(2).nth(index).unwrap());
        buckets.put(2, 0, first, 0);
        buckets.put(2, 1, second, NOW_MS + 70);
        buckets.put(3, 0, third, NOW_MS + 50);
        buckets.link(2, 0, 0, 1);
        for (bucket, expiry_ms) in [(2, NOW_MS + 70), (3, NOW_MS + 50), (4, 0)] {
            let found = buckets.garbage(bucket);
            assert!(!found.is_found() && found.expiry_ms == expiry_ms, "{bucket}: {found:?}");
        }
        // Without its link the entry is an orphan.
        buckets.link(2, 0, 0, 2);
        let found = buckets.garbage(3);
        let word = Range { offset: buckets.map.bucket.head_at(0) as u64, bytes: 8 };
        let orphans = found.orphans.expect("no link leads to it");
        assert_eq!((orphans.owner, &orphans.ranges[..], found.ranges.len()), (2, &[word][..], 0));
    }

    #[test]
    fn bucket_of_any_bytes_is_read_within_its_bounds() {
        // If this broke, a client that writes nonsense into a map would end the daemon of its home.
        let mut buckets = Buckets::new();
        let mut next = 1u64;
        for _ in 0..200 {
            for byte in buckets.bytes.iter_mut().flatten() {
                next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                *byte = (next >> 56) as u8;
            }
            for bucket in 0..9 {
                let found = buckets.garbage(bucket);
                assert!(found.ranges.iter().all(|range| range.offset + u64::from(range.bytes) <= 9000));
            }
        }
    }
}
