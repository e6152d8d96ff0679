//! Shape of a map: its buckets, the sizes of its entries, and the seed of its hashes.

use crate::encoding::{Encoding, Room, Seal};
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::map::bucket::Bucket;
use crate::map::entry::{Entry, KeyHash, Lengths, Linked, MAGIC, MAGIC_OF_EARLIER_RELEASE, PUT, now_ms};
use crate::map::local_bucket::LocalBucket;
use ddss_core::{BadArgument, BucketLayout, Failure, MapLayout, Version};
use std::any::type_name;
use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// Attempts of a get in place beside changes of the bucket.
const ATTEMPTS_IN_PLACE_MAX: usize = 4;
/// Bytes of a value that a get in place reads to the stack.
const VALUE_IN_PLACE_MAX: usize = 4096;

/// Shape of a map, which its row 0 describes and which never changes.
#[derive(Clone, Debug)]
pub(crate) struct MapShape {
    pub(crate) layout: BucketLayout,
    buckets: u64,
    pub(crate) seed: [u64; 2],
    /// Distances of the buckets that links reach.
    pub(crate) link_offsets: Arc<[u64]>,
}

impl MapShape {
    /// Makes the description of a new map.
    pub(crate) fn new_header(layout: BucketLayout) -> [u64; 6] {
        let random = || RandomState::new().build_hasher().finish();
        let BucketLayout { key_bytes, value_bytes, slots } = layout;
        [MAGIC, key_bytes as u64, value_bytes as u64, slots as u64, random(), random()]
    }

    /// Reads the description of a table that is viewed as a map.
    pub(crate) fn of_header(location: &SegmentLocation, header: [u64; 6], wanted: Lengths) -> Result<Self, Error> {
        let [magic, key_bytes, value_bytes, slots, ..] = header;
        let (row_bytes, rows) = (u64::from(location.row_bytes), location.bytes / u64::from(location.row_bytes));
        let sizes = usize::try_from(key_bytes).ok().zip(usize::try_from(value_bytes).ok());
        let found = sizes.filter(|_| magic == MAGIC).and_then(|(key, value)| BucketLayout::new(key, value));
        let is_whole =
            |layout: &BucketLayout| layout.slots as u64 == slots && layout.row_bytes() as u64 == row_bytes && rows >= 3;
        if let Some(layout) = found.filter(is_whole).filter(|layout| wanted.are_of(layout)) {
            let link_offsets = BucketLayout::link_offsets(rows - 1).into();
            return Ok(Self { layout, buckets: rows - 1, seed: [header[4], header[5]], link_offsets });
        }
        let found = match magic {
            MAGIC => format!("a map of {key_bytes} byte keys and {value_bytes} byte values"),
            MAGIC_OF_EARLIER_RELEASE => "a map of an earlier release: copy its entries with that release".to_owned(),
            _ => "another table".to_owned(),
        };
        Err(Error::wrong_shape("view as a map", &location.name, found, wanted))
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Returns the bucket and the tag of a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = MapLayout::hash(self.seed, key);
        KeyHash { bucket: MapLayout::bucket_of(hash, self.buckets), tag: hash & 0x7fff }
    }

    /// Returns the bucket that a step leads to: 0 is the same bucket, and so is a step that no link has.
    pub(crate) fn stepped(&self, bucket: u64, step: usize) -> u64 {
        let offset = step.checked_sub(1).and_then(|at| self.link_offsets.get(at)).copied();
        (bucket + offset.unwrap_or(0)) % self.buckets
    }

    /// Returns the version of an entry whose key belongs to bucket `home`, and that lies in bucket `at` of that version. Versions of
    /// different buckets have nothing to do with each other, so the way between the two is a part of it.
    pub(crate) fn entry_version(&self, home: u64, at: u64, version: Version) -> Version {
        const STEP_SHIFT: u32 = 44;
        let step = (1..=self.link_offsets.len()).find(|&step| at != home && self.stepped(home, step) == at);
        Version(version.0.wrapping_add((step.unwrap_or(0) as u64) << STEP_SHIFT))
    }

    /// Returns the offset of a byte of a bucket in the table.
    #[inline]
    pub(crate) fn place(&self, bucket: u64, at: usize) -> u64 {
        (bucket + 1) * self.layout.row_bytes() as u64 + at as u64
    }

    /// Encodes a key for a call on the map of that name.
    #[inline]
    pub(crate) fn key<'a, K: Encoding + ?Sized>(
        &self,
        (action, name): (&'static str, &str),
        key: &'a K::Input,
    ) -> Result<Cow<'a, [u8]>, Error> {
        let encoded = K::encode("bytes of the key", key, Room::Exact(self.layout.key_bytes), Seal);
        encoded.map_err(Error::argument(action, name))
    }

    /// Encodes a value.
    #[inline]
    pub(crate) fn value<'a, V: Encoding + ?Sized>(
        &self,
        (action, name): (&'static str, &str),
        value: &'a V::Input,
    ) -> Result<Cow<'a, [u8]>, Error> {
        let encoded = V::encode("bytes of the value", value, Room::Exact(self.layout.value_bytes), Seal);
        encoded.map_err(Error::argument(action, name))
    }

    /// Reads the entry of a key in place. `None` if only further reads can tell: the bucket is on another node or changes
    /// in the meantime, the value is large, or the entry may lie in another bucket.
    #[inline]
    pub(crate) fn get_in_place<V: Encoding + ?Sized>(
        &self,
        location: &SegmentLocation,
        hash: KeyHash,
        key: &[u8],
    ) -> Option<Option<Entry<V::Output>>> {
        if V::LEN.unwrap_or(self.layout.value_bytes) > VALUE_IN_PLACE_MAX {
            return None;
        }
        for _ in 0..ATTEMPTS_IN_PLACE_MAX {
            let row = location.begin_row(hash.bucket + 1)?;
            let found = LocalBucket { row, layout: self.layout }.entry_of::<V>(hash.tag, key);
            if row.is_whole() {
                return found;
            }
        }
        None
    }

    /// Looks a key up in the copy of its bucket. `None` if only further reads can tell.
    pub(crate) fn look_up<'b>(&self, bucket: &'b Bucket, key: &[u8]) -> Option<Option<Entry<&'b [u8]>>> {
        let KeyHash { tag, .. } = self.hash(key);
        match bucket.slot_of(tag, key) {
            Some(slot) => Self::entry_in(bucket, slot, bucket.version),
            None => (!bucket.is_linked(tag)).then_some(None),
        }
    }

    /// Returns the entry of a slot, or `Some(None)` if it has expired. `None` if the copy does not include its value.
    pub(crate) fn entry_in(bucket: &Bucket, slot: usize, version: Version) -> Option<Option<Entry<&[u8]>>> {
        let Some(word) = bucket.word(slot).filter(|word| !word.is_expired(now_ms())) else { return Some(None) };
        Some(Some(Entry { value: bucket.value(slot)?, version, expiry_ms: word.expiry_ms() }))
    }

    /// Builds the error of a put that finds no room.
    pub(crate) fn full(&self, name: &str) -> Error {
        // The map has room for its keys at a load of 0.8.
        let capacity = self.buckets * self.layout.slots as u64 * 4 / 5;
        let range = format!("{capacity} in the whole map (load limit 0.8): allocate a larger map");
        let refused =
            BadArgument::new("number of keys", "more than the buckets of this key hold", range, Failure::NoSpace);
        Error::bad_argument(PUT, name, refused)
    }
}

impl Linked {
    /// Returns the entry of a key that was looked for behind links. `None` if only further reads can tell.
    pub(crate) fn entry(&self) -> Option<Option<Entry<&[u8]>>> {
        match self {
            Self::At(bucket, slot, version) => MapShape::entry_in(bucket, *slot, *version),
            Self::Absent => Some(None),
            Self::Unknown => None,
        }
    }
}

/// Decodes bytes; `None` if they stand for no value of the type.
pub(crate) fn decoded<T: Encoding + ?Sized>(bytes: &[u8]) -> Option<T::Output> {
    let copy = |into: &mut [u8]| {
        into.copy_from_slice(bytes.get(..into.len())?);
        Some(())
    };
    T::read(bytes.len(), copy, Seal)
}

/// Decodes a key or a value that a map of that name has.
pub(crate) fn decoded_value<V: Encoding + ?Sized>(name: &str, bytes: &[u8]) -> Result<V::Output, Error> {
    decoded::<V>(bytes).ok_or_else(|| Error::wrong_shape("decode", name, "other bytes", type_name::<V>()))
}
