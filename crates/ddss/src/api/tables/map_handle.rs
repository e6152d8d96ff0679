//! Handles of a map: its types, sizes and seed, and the errors of its calls.

use super::super::named::{Handle, Named};
use super::super::segment::Segment;
use super::table::Table;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::encoding::{Encoding, Room, Seal};
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::map::entry::{Entry, KeyHash, Lengths, Linked, MAGIC, MAGIC_OF_EARLIER_RELEASE, PUT, now_ms};
use crate::spec::Spec;
use ddss_core::{BadArgument, BucketLayout, Failure, MapLayout, Version};
use std::any::type_name;
use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

/// A hash map in shared memory, for keys and values of fixed lengths.
///
/// Each call is atomic. A get is one read of a bucket, in place on the home's node. Nearly all entries are found by that
/// read; an entry in another bucket costs two reads more, and a bucket above 4 KiB one more for the value.
///
/// Keys and values are of any type with an [`Encoding`](crate::Encoding). Without types the map is of bytes, and opens
/// every map.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// use ddss::{Map, Update};
/// let stock: Map<u64, [u32; 2]> = client.map("stock").allocate(1000)?;
/// assert!(stock.put(&4711, &[10, 0])?.is_new);
/// stock.update(&4711, |item| item.map_or(Update::Keep, |item| Update::Put([item[0] - 1, item[1] + 1])))?;
/// assert_eq!(stock.get(&4711)?.map(|item| item.value), Some([9, 1]));
/// assert!(stock.remove(&4711)?);
/// assert_eq!(stock.get(&4711)?, None);
///
/// let bytes: Map = client.map("stock").open()?;
/// assert_eq!(bytes.entry_len(), (8, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct Map<K: ?Sized = [u8], V: ?Sized = [u8]> {
    pub(crate) map: ByteMap,
    kind: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone(), kind: PhantomData }
    }
}

#[twin]
impl Client {
    /// Names a map from keys to values; sends nothing.
    pub fn map<'c, K: ?Sized, V: ?Sized>(&'c self, name: &'c str) -> Named<'c, Map<K, V>> {
        Named::new(self, name)
    }
}

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> Handle for Map<K, V> {
    fn spec(action: &'static str, name: &str, spec: Spec, _: Seal) -> Result<Spec, Error> {
        let found = spec.lengths().or(K::LEN.zip(V::LEN));
        let Some((key, value)) = found.filter(|&(key, value)| {
            K::LEN.is_none_or(|wanted| wanted == key) && V::LEN.is_none_or(|wanted| wanted == value)
        }) else {
            let found = found.map_or("no lengths".to_owned(), |(key, value)| format!("lengths {key} and {value}"));
            let wanted = "those of its keys and values (Spec::entry_len)";
            return Err(Error::bad_argument(action, name, BadArgument::new("spec", found, wanted, Failure::BadSize)));
        };
        Ok(spec.entry_len(key, value))
    }

    async fn of(segment: Segment, spec: Option<Spec>, time: Deadline, _: Seal) -> Result<Self, Error> {
        let (key, value) = spec.and_then(|spec| spec.lengths()).unzip();
        let wanted = Lengths { key: key.or(K::LEN), value: value.or(V::LEN) };
        Ok(Self { map: <Table>::try_from(segment)?.into_map(time, wanted).await?, kind: PhantomData })
    }
}

#[twin]
impl<K: ?Sized, V: ?Sized> Map<K, V> {
    /// Returns the bytes of each key and of each value.
    pub fn entry_len(&self) -> (usize, usize) {
        (self.map.layout.key_bytes, self.map.layout.value_bytes)
    }

    /// Returns the segment behind the map: for its lock, permissions and release.
    pub fn segment(&self) -> &Segment {
        self.map.table.segment()
    }
}

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> Map<K, V> {
    #[inline]
    pub(super) fn key<'a>(&self, action: &'static str, key: &'a K::Input) -> Result<Cow<'a, [u8]>, Error> {
        let encoded = K::encode("bytes of the key", key, Room::Exact(self.map.layout.key_bytes), Seal);
        encoded.map_err(Error::argument(action, self.segment().name()))
    }

    #[inline]
    pub(super) fn value<'a>(&self, action: &'static str, value: &'a V::Input) -> Result<Cow<'a, [u8]>, Error> {
        let encoded = V::encode("bytes of the value", value, Room::Exact(self.map.layout.value_bytes), Seal);
        encoded.map_err(Error::argument(action, self.segment().name()))
    }

    /// Decodes a value that a map has.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<V::Output, Error> {
        let value = decoded::<V>(bytes);
        value.ok_or_else(|| Error::wrong_shape("decode", self.segment().name(), "other bytes", type_name::<V>()))
    }

    pub(super) fn decode_entry(&self, entry: Option<Entry<Vec<u8>>>) -> Result<Option<Entry<V::Output>>, Error> {
        entry.map(|entry| Ok(entry.with_value(self.decode(&entry.value)?))).transpose()
    }

    /// Looks a key up in the copy of its bucket. `None` if only further reads can tell.
    pub(super) fn look_up(&self, bucket: Option<&Bucket>, key: &[u8]) -> Option<Option<Entry<V::Output>>> {
        let bucket = bucket?;
        let KeyHash { tag, .. } = self.map.hash(key);
        let Some(slot) = bucket.slot_of(tag, key) else {
            return (!bucket.is_linked(tag)).then_some(None);
        };
        Self::entry_in(bucket, slot, bucket.version)
    }

    /// Returns the entry of a slot, or `Some(None)` if it has expired. `None` if the copy does not include its value.
    fn entry_in(bucket: &Bucket, slot: usize, version: Version) -> Option<Option<Entry<V::Output>>> {
        let Some(word) = bucket.word(slot).filter(|word| !word.is_expired(now_ms())) else { return Some(None) };
        let value = decoded::<V>(bucket.value(slot)?)?;
        Some(Some(Entry { value, version, expiry_ms: word.expiry_ms() }))
    }

    /// Returns the entry of a key that was looked for behind links.
    pub(super) fn entry_of_linked(linked: Linked) -> Option<Option<Entry<V::Output>>> {
        match linked {
            Linked::At(bucket, slot, version) => Self::entry_in(&bucket, slot, version),
            Linked::Absent => Some(None),
            Linked::Unknown => None,
        }
    }
}

/// The map by its bytes: the table, the sizes of entries, and the seed of hashes.
#[twin]
#[derive(Clone, Debug)]
pub(crate) struct ByteMap {
    pub(crate) table: Table,
    pub(crate) layout: BucketLayout,
    pub(crate) seed: [u64; 2],
    /// Distances of the buckets that links reach.
    pub(crate) link_offsets: Arc<[u64]>,
}

#[twin]
impl ByteMap {
    /// Returns the number of keys for which the map has room at a load of 0.8.
    fn capacity(&self) -> u64 {
        self.buckets() * self.layout.slots as u64 * 4 / 5
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> u64 {
        self.table.len() - 1
    }

    /// Returns the bucket and the tag of a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = MapLayout::hash(self.seed, key);
        KeyHash { bucket: MapLayout::bucket_of(hash, self.buckets()), tag: hash & 0x7fff }
    }

    /// Returns the bucket that a step leads to: 0 is the same bucket, and so is a step that no link has.
    pub(crate) fn stepped(&self, bucket: u64, step: usize) -> u64 {
        let offset = step.checked_sub(1).and_then(|at| self.link_offsets.get(at)).copied();
        (bucket + offset.unwrap_or(0)) % self.buckets()
    }

    /// Returns the version of an entry whose key belongs to bucket `home`, and that lies in bucket `at` of that version. Versions of
    /// different buckets have nothing to do with each other, so the way between the two is a part of it.
    pub(crate) fn entry_version(&self, home: u64, at: u64, version: Version) -> Version {
        const STEP_SHIFT: u32 = 44;
        let step = (1..=self.link_offsets.len()).find(|&step| at != home && self.stepped(home, step) == at);
        Version(version.0.wrapping_add((step.unwrap_or(0) as u64) << STEP_SHIFT))
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

    /// Views a table by the description in its row 0.
    pub(crate) fn of_header(table: Table, header: [u64; 6], wanted: Lengths) -> Result<Self, Error> {
        let [magic, key_bytes, value_bytes, slots, ..] = header;
        let sizes = usize::try_from(key_bytes).ok().zip(usize::try_from(value_bytes).ok());
        let found = sizes.filter(|_| magic == MAGIC).and_then(|(key, value)| BucketLayout::new(key, value));
        let is_whole = |layout: &BucketLayout| {
            layout.slots as u64 == slots && layout.row_bytes() as u64 == table.row_len() && table.len() >= 3
        };
        if let Some(layout) = found.filter(is_whole).filter(|layout| wanted.are_of(layout)) {
            let link_offsets = BucketLayout::link_offsets(table.len() - 1).into();
            return Ok(Self { table, layout, seed: [header[4], header[5]], link_offsets });
        }
        let found = match magic {
            MAGIC => format!("a map of {key_bytes} byte keys and {value_bytes} byte values"),
            MAGIC_OF_EARLIER_RELEASE => "a map of an earlier release: copy its entries with that release".to_owned(),
            _ => "another table".to_owned(),
        };
        Err(Error::wrong_shape("view as a map", table.segment().name(), found, wanted))
    }

    pub(crate) fn full(&self) -> Error {
        let range = format!("{} in the whole map (load limit 0.8): allocate a larger map", self.capacity());
        let refused =
            BadArgument::new("number of keys", "more than the buckets of this key hold", range, Failure::NoSpace);
        Error::bad_argument(PUT, self.table.segment().name(), refused)
    }
}

/// Decodes bytes; `None` if they stand for no value of the type.
pub(super) fn decoded<T: Encoding + ?Sized>(bytes: &[u8]) -> Option<T::Output> {
    let copy = |into: &mut [u8]| {
        into.copy_from_slice(bytes.get(..into.len())?);
        Some(())
    };
    T::read(bytes.len(), copy, Seal)
}
