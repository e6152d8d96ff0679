//! Handles of a map: its types, sizes and seed, and the errors of its calls.

use crate::api::tables::bucket::Bucket;
use crate::api::tables::table::Table;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use ddss_core::{BadArgument, BucketLayout, Failure, Spec};
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A hash map in shared memory, for keys and values of fixed sizes. `S` is [`Segment`] or [`AsyncSegment`](crate::AsyncSegment).
///
/// Each call is atomic. A get is one read of a bucket, in place on the home's node. Nearly all entries are found by that
/// read; an entry in another bucket costs two reads more, and a bucket above 4 KiB one more for the value.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// use ddss::SharedMap;
/// let stock: SharedMap<u64, [u32; 2]> = SharedMap::allocate(&client, "stock", 1000)?;
/// assert!(stock.insert(&4711, &[10, 0])?, "the key is new");
/// stock.update(&4711, |[left, sold]| (*left, *sold) = (*left - 1, *sold + 1))?;
/// assert_eq!(stock.get(&4711)?, Some([9, 1]));
/// assert!(stock.remove(&4711)?);
/// assert_eq!(stock.get(&4711)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedMap<K, V, S = Segment> {
    pub(super) map: ByteMap<S>,
    kind: PhantomData<fn() -> (K, V)>,
}

impl<K, V, S: Clone> Clone for SharedMap<K, V, S> {
    fn clone(&self) -> Self {
        Self::of_map(self.map.clone())
    }
}

impl<K, V, S> SharedMap<K, V, S> {
    /// Maximum bytes of a key.
    pub const KEY_BYTES_MAX: usize = BucketLayout::KEY_BYTES_MAX;
    /// Maximum bytes of a value.
    pub const VALUE_BYTES_MAX: usize = BucketLayout::VALUE_BYTES_MAX;

    pub(super) fn of_map(map: ByteMap<S>) -> Self {
        Self { map, kind: PhantomData }
    }

    pub(super) fn layout() -> BucketLayout {
        // Other sizes are refused by name, by `check_types`.
        let (key, value) = (size_of::<K>().clamp(1, Self::KEY_BYTES_MAX), size_of::<V>().min(Self::VALUE_BYTES_MAX));
        BucketLayout::new(key, value).expect("these are sizes of a map")
    }

    pub(super) fn check_types(action: &'static str, name: &str) -> Result<(), Error> {
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
    pub fn table(&self) -> &Table<S> {
        &self.map.table
    }

    /// Looks a key up in the copy of its bucket. `None` if only further reads can tell.
    pub(super) fn look_up(&self, bucket: Option<&Bucket>, key: &K) -> Option<Option<V>>
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
    pub(super) fn value_of_linked(&self, linked: Linked) -> Option<Option<V>>
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
/// `S` is [`Segment`] or [`AsyncSegment`](crate::AsyncSegment).
///
/// It views every map, whatever the types of the program that allocated it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// use ddss::{ByteMap, SharedMap};
/// let stock: SharedMap<u64, u32> = SharedMap::allocate(&client, "stock", 1000)?;
/// stock.insert(&4711, &10)?;
/// let map = ByteMap::open(&client, "stock")?;
/// assert_eq!((map.key_bytes(), map.value_bytes()), (8, 4));
/// assert_eq!(map.get(&4711u64.to_le_bytes())?, Some(10u32.to_le_bytes().to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ByteMap<S = Segment> {
    pub(super) table: Table<S>,
    pub(super) layout: BucketLayout,
    pub(super) seed: [u64; 2],
    /// Distances of the buckets that links reach.
    pub(super) link_offsets: Arc<[u64]>,
}

/// Entry of a map: its value, and the time until it expires.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// use std::time::Duration;
/// let sessions: ddss::SharedMap<u64, u64> = ddss::SharedMap::allocate(&client, "sessions", 100)?;
/// sessions.insert(&4711, &1)?;
/// let entry: ddss::Entry<u64> = sessions.get_entry(&4711)?.expect("it was inserted");
/// assert_eq!((entry.value, entry.ttl()), (1, None));
/// sessions.touch(&4711, Duration::from_secs(600))?;
/// let ttl = sessions.get_entry(&4711)?.and_then(|entry| entry.ttl());
/// assert!(ttl.expect("it expires") <= Duration::from_secs(600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry<V> {
    /// The value.
    pub value: V,
    pub(super) expiry_ms: u64,
}

impl<V> Entry<V> {
    /// Returns the time from now until the entry expires: zero if it has expired since it was read, `None` if it does
    /// not expire.
    pub fn ttl(&self) -> Option<Duration> {
        (self.expiry_ms > 0).then(|| Duration::from_millis(self.expiry_ms.saturating_sub(now_ms())))
    }
}

/// Row 0 of a map: magic, sizes of key and value, slots of a bucket, seed.
pub(super) const HEADER_BYTES: usize = BucketLayout::SEED_AT + BucketLayout::SEED_BYTES;
const MAGIC: u64 = u64::from_le_bytes(*b"DDSSMAP2");
/// Magic of maps whose links had four bytes.
const MAGIC_OF_EARLIER_RELEASE: u64 = u64::from_le_bytes(*b"DDSSMAP1");

/// Returns the layout of a map for keys and values of those sizes, or names the size that no map has.
pub(super) fn checked_layout(
    action: &'static str,
    name: &str,
    key_bytes: usize,
    value_bytes: usize,
) -> Result<BucketLayout, Error> {
    let sizes = [
        ("bytes of the key", key_bytes, 1, BucketLayout::KEY_BYTES_MAX),
        ("bytes of the value", value_bytes, 0, BucketLayout::VALUE_BYTES_MAX),
    ];
    for (argument, bytes, least, most) in sizes {
        if bytes < least || bytes > most {
            let refused = BadArgument::new(argument, bytes, format_args!("{least} to {most}"), Failure::BadSize);
            return Err(Error::BadArgument { action, target: name.to_owned(), refused });
        }
    }
    Ok(BucketLayout::new(key_bytes, value_bytes).expect("these are sizes of a map"))
}

/// Returns the specification of a map for that many keys, at a load of 0.8.
pub(super) fn spec_of(layout: BucketLayout, keys: u64) -> Spec {
    let buckets = keys.saturating_mul(5).div_ceil(4 * layout.slots as u64).max(2);
    Spec::table(buckets + 1, layout.row_bytes() as u32)
}

impl<S> ByteMap<S> {
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
        self.table.rows() - 1
    }

    /// Returns the table behind the map, for its segment.
    pub fn table(&self) -> &Table<S> {
        &self.table
    }

    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = SipHasher13::new_with_keys(self.seed[0], self.seed[1]);
        hasher.write(key);
        let hash = hasher.finish();
        let bucket = (u128::from(hash) * u128::from(self.buckets())) >> 64;
        KeyHash { bucket: bucket as u64, tag: hash & 0x7fff }
    }

    /// Checks that a key and a value have the sizes of this map.
    pub(super) fn check_bytes(
        &self,
        action: &'static str,
        name: &str,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), Error> {
        let BucketLayout { key_bytes, value_bytes, .. } = self.layout;
        let sizes = [
            ("bytes of the key", key.len(), key_bytes),
            ("bytes of the value", value.map_or(value_bytes, <[u8]>::len), value_bytes),
        ];
        for (argument, bytes, wanted) in sizes {
            if bytes != wanted {
                let refused = BadArgument::new(argument, bytes, wanted, Failure::BadSize);
                return Err(Error::BadArgument { action, target: name.to_owned(), refused });
            }
        }
        Ok(())
    }

    /// Returns the bucket that a step leads to: 0 is the same bucket, and so is a step that no link has.
    pub(super) fn stepped(&self, bucket: u64, step: usize) -> u64 {
        let offset = step.checked_sub(1).and_then(|at| self.link_offsets.get(at)).copied();
        (bucket + offset.unwrap_or(0)) % self.buckets()
    }

    pub(super) fn place(&self, bucket: u64, at: usize) -> u64 {
        (bucket + 1) * self.table.row_bytes() + at as u64
    }

    pub(super) fn new_header(layout: BucketLayout) -> [u64; 6] {
        let random = || RandomState::new().build_hasher().finish();
        let BucketLayout { key_bytes, value_bytes, slots } = layout;
        [MAGIC, key_bytes as u64, value_bytes as u64, slots as u64, random(), random()]
    }

    /// Views a table by the description in its row 0. `wanted` is the layout that the map has to have; `None` for any.
    pub(super) fn of_header(
        table: Table<S>,
        name: &str,
        header: [u64; 6],
        wanted: Option<BucketLayout>,
    ) -> Result<Self, Error> {
        let [magic, key_bytes, value_bytes, slots, ..] = header;
        let sizes = usize::try_from(key_bytes).ok().zip(usize::try_from(value_bytes).ok());
        let found = sizes.filter(|_| magic == MAGIC).and_then(|(key, value)| BucketLayout::new(key, value));
        let is_whole = |layout: &BucketLayout| {
            layout.slots as u64 == slots && layout.row_bytes() as u64 == table.row_bytes() && table.rows() >= 3
        };
        let is_wanted = |layout: &BucketLayout| wanted.is_none_or(|wanted| wanted == *layout);
        if let Some(layout) = found.filter(is_whole).filter(is_wanted) {
            let link_offsets = BucketLayout::link_offsets(table.rows() - 1).into();
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
        let refused = BadArgument::new("segment", found, range, Failure::Unsupported);
        Err(Error::BadArgument { action: "view as a map", target: name.to_owned(), refused })
    }

    pub(super) fn full(&self, name: &str) -> Error {
        let range = format!("{} in the whole map (load limit 0.8): allocate a larger map", self.capacity());
        let refused =
            BadArgument::new("number of keys", "more than the buckets of this key hold", range, Failure::NoSpace);
        Error::BadArgument { action: "insert into", target: name.to_owned(), refused }
    }
}

/// Refuses to begin one more attempt after the deadline.
pub(super) fn check_time(action: &'static str, name: &str, time: Deadline) -> Result<(), Error> {
    if time.remaining() > Duration::ZERO {
        return Ok(());
    }
    Err(Error::Failed { action, target: name.to_owned(), failure: Failure::TimedOut })
}

/// Hash of a key: its bucket, and the bits that words and links hold.
#[derive(Clone, Copy)]
pub(super) struct KeyHash {
    pub(super) bucket: u64,
    pub(super) tag: u64,
}

/// Place of an entry. `image` is its bucket if that is not the bucket of its key.
pub(super) struct Place {
    pub(super) bucket: u64,
    pub(super) slot: usize,
    pub(super) image: Option<Bucket>,
}

/// Result of a search behind the links of a bucket.
pub(super) enum Linked {
    /// Copy of the bucket with the entry, and its slot.
    At(Bucket, usize),
    Absent,
    /// A change came between, or there was no room for the search.
    Unknown,
}

/// Expiry that a change gives to an entry.
#[derive(Clone, Copy)]
pub(super) enum Expiry {
    Keep,
    Set(u64),
}

impl Expiry {
    /// Returns the expiry of an entry that is written; 0 for none.
    pub(super) fn set_ms(self) -> u64 {
        match self {
            Self::Keep => 0,
            Self::Set(expiry_ms) => expiry_ms,
        }
    }

    pub(super) fn after(time: Duration) -> Self {
        Self::Set(now_ms().saturating_add(time.as_millis().max(1) as u64))
    }
}

/// End of one attempt of a change.
pub(super) enum Attempt {
    Done,
    Changed,
    Full,
}

/// Returns the end of an attempt whose conditional put ended so.
pub(super) fn attempt<T>(put: Result<T, Error>) -> Result<Attempt, Error> {
    match put {
        Ok(_) => Ok(Attempt::Done),
        Err(error) if error.failure() == Some(Failure::VersionMismatch) => Ok(Attempt::Changed),
        Err(error) => Err(error),
    }
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
