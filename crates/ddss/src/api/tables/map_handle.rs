//! Handles of a map: its types, sizes and seed, and the errors of its calls.

use super::table::Table;
use super::twin;
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::map::entry::{KeyHash, Linked, MAGIC, MAGIC_OF_EARLIER_RELEASE, checked_layout, now_ms, spec_of};
use crate::spec::Spec;
use ddss_core::{BadArgument, BucketLayout, Failure, MapLayout};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A hash map in shared memory, for keys and values of fixed sizes.
///
/// Each call is atomic. A get is one read of a bucket, in place on the home's node. Nearly all entries are found by that
/// read; an entry in another bucket costs two reads more, and a bucket above 4 KiB one more for the value.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// use ddss::SharedMap;
/// let stock: SharedMap<u64, [u32; 2]> = SharedMap::allocate(&client, "stock", 1000)?;
/// assert!(stock.insert(&4711, &[10, 0])?, "the key is new");
/// stock.update(&4711, |[left, sold]| (*left, *sold) = (*left - 1, *sold + 1))?;
/// assert_eq!(stock.get(&4711)?, Some([9, 1]));
/// assert!(stock.remove(&4711)?);
/// assert_eq!(stock.get(&4711)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct SharedMap<K, V> {
    pub(crate) map: ByteMap,
    kind: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self::of_map(self.map.clone())
    }
}

#[twin]
impl<K, V> SharedMap<K, V> {
    /// Maximum bytes of a key.
    pub const KEY_BYTES_MAX: usize = BucketLayout::KEY_BYTES_MAX;
    /// Maximum bytes of a value.
    pub const VALUE_BYTES_MAX: usize = BucketLayout::VALUE_BYTES_MAX;

    pub(crate) fn of_map(map: ByteMap) -> Self {
        Self { map, kind: PhantomData }
    }

    pub(crate) fn layout() -> BucketLayout {
        // Other sizes are refused by name, by `check_types`.
        let (key, value) = (size_of::<K>().clamp(1, Self::KEY_BYTES_MAX), size_of::<V>().min(Self::VALUE_BYTES_MAX));
        BucketLayout::new(key, value).expect("these are sizes of a map")
    }

    pub(crate) fn check_types(action: &'static str, name: &str) -> Result<(), Error> {
        checked_layout(action, name, size_of::<K>(), size_of::<V>()).map(drop)
    }

    /// Returns the specification of a map for that many keys; other fields may be set. The map then has slots for a
    /// quarter more: its load is at most 0.8.
    pub fn spec(keys: u64) -> Spec {
        spec_of(Self::layout(), keys)
    }

    /// Returns the number of keys for which the map has room at a load of 0.8.
    pub fn capacity(&self) -> u64 {
        self.map.capacity()
    }

    /// Returns the number of buckets, for [`bucket_entries`](Self::bucket_entries).
    pub fn buckets(&self) -> u64 {
        self.map.buckets()
    }

    /// Returns the table behind the map, for its segment.
    pub fn table(&self) -> &Table {
        &self.map.table
    }

    /// Looks a key up in the copy of its bucket. `None` if only further reads can tell.
    pub(crate) fn look_up(&self, bucket: Option<&Bucket>, key: &K) -> Option<Option<V>>
    where
        K: IntoBytes + Immutable,
        V: FromBytes,
    {
        let (bucket, key) = (bucket?, key.as_bytes());
        let KeyHash { tag, .. } = self.map.hash(key);
        let Some(slot) = bucket.slot_of(tag, key) else {
            return (!bucket.is_linked(tag)).then_some(None);
        };
        Self::value_in(bucket, slot)
    }

    /// Returns the value of a slot, or `Some(None)` if it has expired. `None` if the copy does not include it.
    fn value_in(bucket: &Bucket, slot: usize) -> Option<Option<V>>
    where
        V: FromBytes,
    {
        if bucket.word(slot).is_none_or(|word| word.is_expired(now_ms())) {
            return Some(None);
        }
        Some(V::read_from_bytes(bucket.value(slot)?).ok())
    }

    /// Returns the value of a key that was looked for behind links.
    pub(crate) fn value_of_linked(&self, linked: Linked) -> Option<Option<V>>
    where
        V: FromBytes,
    {
        match linked {
            Linked::At(bucket, slot) => Self::value_in(&bucket, slot),
            Linked::Absent => Some(None),
            Linked::Unknown => None,
        }
    }
}

/// A [`SharedMap`] whose keys and values are bytes: their sizes are fixed for a map, and known when the program runs.
///
///
/// It views every map, whatever the types of the program that allocated it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// use ddss::{ByteMap, SharedMap};
/// let stock: SharedMap<u64, u32> = SharedMap::allocate(&client, "stock", 1000)?;
/// stock.insert(&4711, &10)?;
/// let map = ByteMap::open(&client, "stock")?;
/// assert_eq!((map.key_bytes(), map.value_bytes()), (8, 4));
/// assert_eq!(map.get(&4711u64.to_le_bytes())?, Some(10u32.to_le_bytes().to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Clone, Debug)]
pub struct ByteMap {
    pub(crate) table: Table,
    pub(crate) layout: BucketLayout,
    pub(crate) seed: [u64; 2],
    /// Distances of the buckets that links reach.
    pub(crate) link_offsets: Arc<[u64]>,
}

#[twin]
impl ByteMap {
    /// Returns the bytes of each key.
    pub fn key_bytes(&self) -> usize {
        self.layout.key_bytes
    }

    /// Returns the bytes of each value.
    pub fn value_bytes(&self) -> usize {
        self.layout.value_bytes
    }

    /// Returns the number of keys for which the map has room at a load of 0.8.
    pub fn capacity(&self) -> u64 {
        self.buckets() * self.layout.slots as u64 * 4 / 5
    }

    /// Returns the number of buckets, for [`bucket_entries`](Self::bucket_entries).
    pub fn buckets(&self) -> u64 {
        self.table.len() - 1
    }

    /// Returns the table behind the map, for its segment.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the bucket and the tag of a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = MapLayout::hash(self.seed, key);
        KeyHash { bucket: MapLayout::bucket_of(hash, self.buckets()), tag: hash & 0x7fff }
    }

    /// Checks that a key and a value have the sizes of this map.
    pub(crate) fn check_bytes(&self, action: &'static str, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        let BucketLayout { key_bytes, value_bytes, .. } = self.layout;
        let sizes = [
            ("bytes of the key", key.len(), key_bytes),
            ("bytes of the value", value.map_or(value_bytes, <[u8]>::len), value_bytes),
        ];
        for (argument, bytes, wanted) in sizes {
            if bytes != wanted {
                let refused = BadArgument::new(argument, bytes, wanted, Failure::BadSize);
                return Err(Error::bad_argument(action, self.table.segment().name(), refused));
            }
        }
        Ok(())
    }

    /// Returns the bucket that a step leads to: 0 is the same bucket, and so is a step that no link has.
    pub(crate) fn stepped(&self, bucket: u64, step: usize) -> u64 {
        let offset = step.checked_sub(1).and_then(|at| self.link_offsets.get(at)).copied();
        (bucket + offset.unwrap_or(0)) % self.buckets()
    }

    #[inline]
    pub(crate) fn place(&self, bucket: u64, at: usize) -> u64 {
        (bucket + 1) * self.table.row_len() + at as u64
    }

    pub(crate) fn new_header(layout: BucketLayout) -> [u64; 6] {
        let random = || RandomState::new().build_hasher().finish();
        let BucketLayout { key_bytes, value_bytes, slots } = layout;
        [MAGIC, key_bytes as u64, value_bytes as u64, slots as u64, random(), random()]
    }

    /// Views a table by the description in its row 0. `wanted` is the layout that the map has to have; `None` for any.
    pub(crate) fn of_header(table: Table, header: [u64; 6], wanted: Option<BucketLayout>) -> Result<Self, Error> {
        let [magic, key_bytes, value_bytes, slots, ..] = header;
        let sizes = usize::try_from(key_bytes).ok().zip(usize::try_from(value_bytes).ok());
        let found = sizes.filter(|_| magic == MAGIC).and_then(|(key, value)| BucketLayout::new(key, value));
        let is_whole = |layout: &BucketLayout| {
            layout.slots as u64 == slots && layout.row_bytes() as u64 == table.row_len() && table.len() >= 3
        };
        let is_wanted = |layout: &BucketLayout| wanted.is_none_or(|wanted| wanted == *layout);
        if let Some(layout) = found.filter(is_whole).filter(is_wanted) {
            let link_offsets = BucketLayout::link_offsets(table.len() - 1).into();
            return Ok(Self { table, layout, seed: [header[4], header[5]], link_offsets });
        }
        let sizes = |key, value| format!("a map of {key} byte keys and {value} byte values");
        let found = match magic {
            MAGIC => sizes(key_bytes, value_bytes),
            MAGIC_OF_EARLIER_RELEASE => "a map of an earlier release: copy its entries with that release".to_owned(),
            _ => "another table".to_owned(),
        };
        let range =
            wanted.map_or("a map".to_owned(), |layout| sizes(layout.key_bytes as u64, layout.value_bytes as u64));
        Err(Error::wrong_shape("view as a map", table.segment().name(), found, range))
    }

    pub(crate) fn full(&self) -> Error {
        let range = format!("{} in the whole map (load limit 0.8): allocate a larger map", self.capacity());
        let refused =
            BadArgument::new("number of keys", "more than the buckets of this key hold", range, Failure::NoSpace);
        Error::bad_argument("insert into", self.table.segment().name(), refused)
    }
}
