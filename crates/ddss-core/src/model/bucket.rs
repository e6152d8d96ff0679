//! Layout of a map's bucket: one row of a table with several entries.
//!
//! ```text
//!  0         8                  80
//! +---------+------------------+--------------------------+------------------+
//! | counter | links, 36 × u16  | slots × (word, key)      | slots × value    |
//! +---------+------------------+--------------------------+------------------+
//!
//!  word: 1 bit used | 15 bits of the hash | 48 bits: expiry in ms since 1970, 0 for none; 0 is a free slot
//!  link: 7 bits of the hash | 4 bits: slot | 5 bits: step, from 1 on; 0 is a free link
//! ```
//!
//! Keys and values are padded to 8 bytes. An entry that finds no free slot in the bucket of its key lies in a slot of
//! another bucket, and a link of its own bucket refers to it: a step names one of 31 buckets
//! ([`BucketLayout::link_offsets`]). Only clients follow links. The home of the map [searches](BucketLayout::search) one
//! bucket.
//!
//! A map has slots for a quarter more keys than it is for. An insert then fails only if 31 buckets are full at the same
//! time, or 36 entries of one bucket lie elsewhere: `tests/map_load.rs` computes how seldom that is.

use super::table::TableLayout;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Sizes of a map's buckets, from those of its types.
///
/// ```
/// use ddss_core::BucketLayout;
/// let layout = BucketLayout::new(8, 64).expect("sizes of a map");
/// assert_eq!((layout.slots, layout.row_bytes()), (16, 80 + 16 * (16 + 64)));
/// assert_eq!(BucketLayout::new(0, 64), None, "a map has keys");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketLayout {
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Number of slots.
    pub slots: usize,
}

/// Reference to an entry in another bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketLink {
    /// Low bits of the key's tag.
    pub tag: u64,
    /// Slot of the entry.
    pub slot: usize,
    /// Number of the step to its bucket, from 1 on.
    pub step: usize,
}

impl BucketLink {
    /// Bytes of a link.
    pub const BYTES: usize = 2;
    const TAG: u64 = 0x7f;
    const SLOT_BITS: u32 = 4;
    const STEP_BITS: u32 = 5;

    /// Makes the link to a slot, for an entry with those bits of the hash of its key.
    pub const fn new(tag: u64, slot: usize, step: usize) -> Self {
        assert!(slot < 1 << Self::SLOT_BITS && step > 0 && step < 1 << Self::STEP_BITS, "a slot that links reach");
        Self { tag: tag & Self::TAG, slot, step }
    }

    /// Returns true if the entry may have a key with that tag.
    pub const fn may_have(&self, tag: u64) -> bool {
        self.tag == tag & Self::TAG
    }

    /// Encodes the link.
    pub const fn encode(self) -> [u8; Self::BYTES] {
        let slot_and_step = (self.slot << Self::STEP_BITS | self.step) as u16;
        ((self.tag as u16) << (Self::SLOT_BITS + Self::STEP_BITS) | slot_and_step).to_le_bytes()
    }

    /// Decodes a link; `None` for a free one.
    pub fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let word = usize::from(u16::from_le_bytes(bytes));
        let (step, word) = (word & ((1 << Self::STEP_BITS) - 1), word >> Self::STEP_BITS);
        let (slot, tag) = (word & ((1 << Self::SLOT_BITS) - 1), word >> Self::SLOT_BITS);
        (step > 0).then_some(Self { tag: tag as u64, slot, step })
    }
}

/// Word of a used slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotWord(u64);

impl SlotWord {
    /// Bytes of the word; the key follows it.
    pub const BYTES: usize = 8;
    const USED: u64 = 1 << 63;
    const EXPIRY: u64 = (1 << 48) - 1;

    /// Makes the word of an entry with those bits of the hash of its key. An expiry of 0 is none.
    pub const fn new(tag: u64, expiry_ms: u64) -> Self {
        let expiry_ms = if expiry_ms < Self::EXPIRY { expiry_ms } else { Self::EXPIRY };
        Self(Self::USED | (tag & 0x7fff) << 48 | expiry_ms)
    }

    /// Returns the word of a slot that is used.
    pub fn of(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// Encodes the word.
    pub const fn bytes(self) -> [u8; Self::BYTES] {
        self.0.to_le_bytes()
    }

    /// Returns the bits of the key's hash.
    pub const fn tag(self) -> u64 {
        self.0 >> 48 & 0x7fff
    }

    /// Returns the expiry in milliseconds since 1970; 0 for none.
    pub const fn expiry_ms(self) -> u64 {
        self.0 & Self::EXPIRY
    }

    /// Returns true if the entry has expired.
    pub const fn is_expired(self, now_ms: u64) -> bool {
        self.expiry_ms() != 0 && self.expiry_ms() <= now_ms
    }
}

/// Result of a search for a key in one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketSearch {
    /// Slot with the key, and its word.
    pub entry: Option<(usize, SlotWord)>,
    /// First free slot.
    pub free: Option<usize>,
    /// True if a link has the tag of the key, so that the entry may lie in another bucket.
    pub is_linked: bool,
    /// Digest of the entry; 0 if the change expects none.
    pub digest: u64,
    /// Expiry that the change gives to the entry; 0 for none.
    pub expiry_ms: u64,
}

const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

impl BucketLayout {
    /// Maximum bytes of a key.
    pub const KEY_BYTES_MAX: usize = 1024;
    /// Maximum bytes of a value.
    pub const VALUE_BYTES_MAX: usize = 64 << 10;
    /// Number of links of a bucket.
    pub const LINKS: usize = 36;
    /// Number of buckets that the links of a bucket reach.
    pub const STEPS: usize = 31;
    /// Place of the seed in row 0, which describes the map.
    pub const SEED_AT: usize = 32;
    /// Bytes of the seed: two words.
    pub const SEED_BYTES: usize = 16;
    const LINKS_AT: usize = 8;
    const HEADS_AT: usize = Self::LINKS_AT + BucketLink::BYTES * Self::LINKS;
    /// A get reads a bucket of up to this size whole, and the value of a larger bucket by itself.
    const WHOLE_BYTES_MAX: usize = 4096;
    /// Bytes of a value that are copied and hashed together.
    const DIGEST_PIECE_BYTES: usize = 1024;
    /// More slots level out the load of buckets, fewer make the bucket that a get reads smaller.
    const SLOTS: (usize, usize) = (8, 16);

    /// Makes the layout for keys and values of those sizes; `None` for sizes that no map has.
    pub fn new(key_bytes: usize, value_bytes: usize) -> Option<Self> {
        if key_bytes == 0 || key_bytes > Self::KEY_BYTES_MAX || value_bytes > Self::VALUE_BYTES_MAX {
            return None;
        }
        let slot = SlotWord::BYTES + padded(key_bytes) + padded(value_bytes);
        let wanted = ((Self::WHOLE_BYTES_MAX - Self::HEADS_AT) / slot).clamp(Self::SLOTS.0, Self::SLOTS.1);
        let fitting = (TableLayout::ROW_BYTES_MAX as usize - Self::HEADS_AT) / slot;
        Some(Self { key_bytes, value_bytes, slots: wanted.min(fitting) })
    }

    /// Returns the distances of the buckets that the links of a bucket reach, in the order of the steps. They grow, so that
    /// one crowd does not fill all of them, and end at 168, so that a call over all buckets finds both ends of a link.
    pub fn link_offsets(buckets: u64) -> Vec<u64> {
        let others = buckets.max(1) - 1;
        if others <= Self::STEPS as u64 {
            return (1..=others).collect();
        }
        let grown = (1..=Self::STEPS as u64).map(|step| step + step * step / 7);
        let mut offsets: Vec<u64> = grown.filter(|&offset| offset <= others).collect();
        let mut near = 0;
        while offsets.len() < Self::STEPS {
            near += 1;
            if !offsets.contains(&near) {
                offsets.push(near);
            }
        }
        offsets
    }

    /// Returns the bytes of a bucket.
    pub const fn row_bytes(&self) -> usize {
        self.value_at(self.slots)
    }

    /// Returns the bytes that a lookup reads.
    pub const fn read_bytes(&self) -> usize {
        if self.row_bytes() <= Self::WHOLE_BYTES_MAX { self.row_bytes() } else { self.value_at(0) }
    }

    /// Returns the place of a link.
    pub const fn link_at(&self, index: usize) -> usize {
        Self::LINKS_AT + BucketLink::BYTES * index
    }

    /// Returns the place of a slot's word; the key follows it.
    pub const fn head_at(&self, slot: usize) -> usize {
        Self::HEADS_AT + slot * (SlotWord::BYTES + padded(self.key_bytes))
    }

    /// Returns the place of a slot's value.
    pub const fn value_at(&self, slot: usize) -> usize {
        self.head_at(self.slots) + slot * padded(self.value_bytes)
    }

    /// Returns the digest of an entry: a hash of its word and its value. The seed of the map keeps clients that choose
    /// values from finding two of one digest.
    pub fn digest(seed: [u64; 2], word: SlotWord, value: &[u8]) -> u64 {
        let mut hasher = Self::begin_digest(seed, word);
        hasher.write(value);
        hasher.finish()
    }

    fn begin_digest(seed: [u64; 2], word: SlotWord) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(seed[0], seed[1]);
        hasher.write(&word.bytes());
        hasher
    }

    /// Returns the digest of an entry of a bucket, whose bytes `read` copies.
    pub(crate) fn digest_in_bucket(
        &self,
        seed: [u64; 2],
        (slot, word): (usize, SlotWord),
        mut read: impl FnMut(usize, &mut [u8]),
    ) -> u64 {
        let (mut hasher, mut piece) = (Self::begin_digest(seed, word), [0; Self::DIGEST_PIECE_BYTES]);
        for at in (0..self.value_bytes).step_by(piece.len()) {
            let piece = &mut piece[..(self.value_bytes - at).min(Self::DIGEST_PIECE_BYTES)];
            read(self.value_at(slot) + at, piece);
            hasher.write(piece);
        }
        hasher.finish()
    }

    /// Searches a bucket for a key. `head` is the word of the entry and its key, and `read` copies bytes of the bucket.
    /// `None` if `head` is not of a used slot of this layout.
    pub fn search(&self, head: &[u8], mut read: impl FnMut(usize, &mut [u8])) -> Option<BucketSearch> {
        let (word, key) = head.split_first_chunk::<{ SlotWord::BYTES }>()?;
        let wanted = u64::from_le_bytes(*word);
        if wanted & SlotWord::USED == 0 || key.len() != self.key_bytes {
            return None;
        }
        let tag = SlotWord(wanted).tag();
        let mut found = BucketSearch { expiry_ms: SlotWord(wanted).expiry_ms(), ..BucketSearch::default() };
        let mut links = [[0; BucketLink::BYTES]; Self::LINKS];
        read(Self::LINKS_AT, links.as_flattened_mut());
        found.is_linked = links.into_iter().filter_map(BucketLink::decode).any(|link| link.may_have(tag));
        let mut other = [0; Self::KEY_BYTES_MAX];
        let other = &mut other[..self.key_bytes];
        for slot in 0..self.slots {
            let (at, mut word) = (self.head_at(slot), [0; SlotWord::BYTES]);
            read(at, &mut word);
            let Some(word) = SlotWord::of(u64::from_le_bytes(word)) else {
                found.free = found.free.or(Some(slot));
                continue;
            };
            if found.entry.is_none() && word.tag() == tag {
                read(at + SlotWord::BYTES, other);
                found.entry = (*other == *key).then_some((slot, word));
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_bucket_do_not_overlap_and_fit_a_row() {
        // If this broke, an entry would overwrite another one.
        for (key, value) in [(1, 0), (8, 64), (16, 240), (8, 4000), (1024, 65_536)] {
            let layout = BucketLayout::new(key, value).unwrap();
            assert!(layout.slots >= 7, "{layout:?}");
            assert!(layout.row_bytes() <= TableLayout::ROW_BYTES_MAX as usize && layout.row_bytes().is_multiple_of(8));
            assert_eq!(layout.link_at(BucketLayout::LINKS), layout.head_at(0));
            assert!(layout.head_at(0) + 8 + key <= layout.head_at(1));
            assert!(layout.head_at(layout.slots) <= layout.value_at(0));
            assert!(layout.value_at(0) + value <= layout.value_at(1));
        }
        for (key, value) in [(0, 8), (1025, 8), (8, 65_537), (usize::MAX, usize::MAX)] {
            assert_eq!(BucketLayout::new(key, value), None);
        }
    }

    #[test]
    fn words_and_links_keep_their_fields() {
        // If this broke, an entry would expire at another time, or be looked for at another place.
        let word = SlotWord::new(0x7fff, 1234);
        assert_eq!((word.tag(), word.expiry_ms()), (0x7fff, 1234));
        assert_eq!((word.is_expired(1233), word.is_expired(1234)), (false, true));
        assert!(!SlotWord::new(0, 0).is_expired(u64::MAX));
        for link in [BucketLink::new(0x7ffe, 15, 31), BucketLink::new(0, 0, 1), BucketLink::new(0x7f, 1, 30)] {
            assert_eq!(BucketLink::decode(link.encode()), Some(link));
        }
        assert!(BucketLink::new(0x7ffe, 3, 1).may_have(0x7ffe) && !BucketLink::new(0x7ffe, 3, 1).may_have(0x7fff));
        assert_eq!(BucketLink::decode([0; 2]), None);
    }

    #[test]
    fn links_reach_each_bucket_once_and_all_buckets_of_a_small_map() {
        // If this broke, a slot would have two links, or a map with free slots would refuse its keys.
        for buckets in (1..600).chain([78_125, 1 << 30, u64::MAX >> 1]) {
            let offsets = BucketLayout::link_offsets(buckets);
            assert_eq!(offsets.len() as u64, (buckets - 1).min(31), "{buckets}");
            assert!(offsets.iter().all(|&offset| offset > 0 && offset < buckets.min(169)));
            assert!((1..offsets.len()).all(|at| !offsets[..at].contains(&offsets[at])), "{buckets}");
        }
    }

    #[test]
    fn bytes_of_a_map_are_at_most_one_and_a_half_of_its_data() {
        // If this broke, a node would hold fewer keys than the limits of maps promise.
        for (key, value) in [(8, 64), (16, 64), (8, 256), (32, 1000), (8, 65_536)] {
            let layout = BucketLayout::new(key, value).unwrap();
            let record = layout.row_bytes() as u64 + TableLayout::RECORD_HEADER_BYTES;
            // At the load limit of 0.8, four of five slots are used: 2 · record / (0.8 · slots) <= 3 · data.
            let data = (layout.slots * (key + value)) as u64;
            assert!(10 * record <= 12 * data, "{layout:?}: {record} bytes for {data}");
        }
    }

    #[test]
    fn digest_of_an_entry_is_the_same_in_pieces_and_tells_all_entries_apart() {
        // If this broke, an update of a large value would never succeed, or would overwrite another change.
        let (seed, word) = ([5, 7], SlotWord::new(3, 0));
        for bytes in [0, 1, 8, 1023, 1024, 1025, 5000] {
            let layout = BucketLayout::new(8, bytes).unwrap();
            let value: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let mut bucket = vec![0; layout.row_bytes()];
            bucket[layout.value_at(2)..][..bytes].copy_from_slice(&value);
            let in_bucket =
                layout.digest_in_bucket(seed, (2, word), |at, into| into.copy_from_slice(&bucket[at..][..into.len()]));
            assert_eq!(in_bucket, BucketLayout::digest(seed, word, &value), "{bytes}");
            assert_ne!(in_bucket, BucketLayout::digest([5, 8], word, &value), "another seed");
            assert_ne!(in_bucket, BucketLayout::digest(seed, SlotWord::new(3, 1), &value), "another expiry");
            if let Some((last, value)) = value.split_last() {
                assert_ne!(
                    in_bucket,
                    BucketLayout::digest(seed, word, &[value, &[last ^ 1]].concat()),
                    "another value"
                );
            }
        }
    }

    #[test]
    fn search_finds_the_key_the_first_free_slot_and_links_of_its_tag() {
        // If this broke, a home would insert a key twice, or overwrite the entry of another key.
        let layout = BucketLayout::new(12, 8).unwrap();
        let mut bucket = vec![0; layout.row_bytes()];
        let head = |tag, key: u8| [&SlotWord::new(tag, 77).bytes()[..], &[key; 12]].concat();
        let search = |bucket: &[u8], head: &[u8]| {
            layout.search(head, |at, into| into.copy_from_slice(&bucket[at..][..into.len()]))
        };
        let free = BucketSearch { free: Some(0), expiry_ms: 77, ..BucketSearch::default() };
        assert_eq!(search(&bucket, &head(5, 1)), Some(free));
        for (slot, tag, key) in [(0, 5, 2), (1, 6, 1), (3, 5, 1)] {
            bucket[layout.head_at(slot)..][..20].copy_from_slice(&head(tag, key));
        }
        let found = search(&bucket, &head(5, 1)).unwrap();
        assert_eq!(found.entry, Some((3, SlotWord::new(5, 77))), "neither another key nor another tag");
        assert_eq!((found.free, found.is_linked), (Some(2), false));
        assert_eq!(search(&bucket, &head(7, 1)).unwrap().entry, None);
        let link = BucketLink::new(5, 0, 1).encode();
        bucket[layout.link_at(BucketLayout::LINKS - 1)..][..2].copy_from_slice(&link);
        assert!(search(&bucket, &head(5, 9)).unwrap().is_linked && !search(&bucket, &head(6, 9)).unwrap().is_linked);
        for slot in 0..layout.slots {
            bucket[layout.head_at(slot)..][..20].copy_from_slice(&head(5, slot as u8));
        }
        assert_eq!(search(&bucket, &head(5, 99)).unwrap().free, None);
        for wrong in [&[][..], &[0; 20], &head(5, 1)[..19], &[&head(5, 1)[..], &[1]].concat()] {
            assert_eq!(search(&bucket, wrong), None, "{wrong:?}");
        }
    }
}
