//! Handle of a map: its types, sizes and seed, and the errors of its calls.

use crate::api::tables::bucket::Bucket;
use crate::api::tables::table::Table;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use ddss_core::{BadArgument, BucketLayout, BucketLink, Failure, Spec};
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
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
    pub(super) table: Table<S>,
    pub(super) layout: BucketLayout,
    seed: [u64; 2],
    kind: PhantomData<fn() -> (K, V)>,
}

impl<K, V, S: Clone> Clone for SharedMap<K, V, S> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), layout: self.layout, seed: self.seed, kind: PhantomData }
    }
}

/// Row 0 of a map: magic, sizes of key and value, slots of a bucket, seed.
pub(super) const HEADER_BYTES: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"DDSSMAP1");

impl<K, V, S> SharedMap<K, V, S> {
    /// Maximum bytes of a key.
    pub const KEY_BYTES_MAX: usize = BucketLayout::KEY_BYTES_MAX;
    /// Maximum bytes of a value.
    pub const VALUE_BYTES_MAX: usize = BucketLayout::VALUE_BYTES_MAX;

    pub(super) fn layout() -> BucketLayout {
        // Other sizes are refused by name, by `check_types`.
        let (key, value) = (size_of::<K>().clamp(1, Self::KEY_BYTES_MAX), size_of::<V>().min(Self::VALUE_BYTES_MAX));
        BucketLayout::new(key, value).expect("these are sizes of a map")
    }

    pub(super) fn check_types(action: &'static str, name: &str) -> Result<(), Error> {
        let sizes = [
            ("bytes of the key", size_of::<K>(), 1, Self::KEY_BYTES_MAX),
            ("bytes of the value", size_of::<V>(), 0, Self::VALUE_BYTES_MAX),
        ];
        for (argument, bytes, least, most) in sizes {
            if bytes < least || bytes > most {
                let refused = BadArgument::new(argument, bytes, format_args!("{least} to {most}"), Failure::BadSize);
                return Err(Error::BadArgument { action, target: name.to_owned(), refused });
            }
        }
        Ok(())
    }

    /// Returns the specification of a map for that many keys; other fields may be set. The map then has slots for a
    /// quarter more: its load is at most 0.8.
    pub fn spec(keys: u64) -> Spec {
        let layout = Self::layout();
        let buckets = keys.saturating_mul(5).div_ceil(4 * layout.slots as u64).max(2);
        Spec::table(buckets + 1, layout.row_bytes() as u32)
    }

    /// Returns the number of keys for which the map has room at a load of 0.8.
    pub fn capacity(&self) -> u64 {
        self.buckets() * self.layout.slots as u64 / 5 * 4
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

    /// Looks a key up in the copy of its bucket. `None` if only further reads can tell.
    pub(super) fn look_up(&self, bucket: Option<&Bucket>, key: &K) -> Option<Option<V>>
    where
        K: IntoBytes + Immutable,
        V: FromBytes,
    {
        let (bucket, key) = (bucket?, key.as_bytes());
        let KeyHash { tag, .. } = self.hash(key);
        let Some(slot) = bucket.slot_of(tag, key) else {
            return (!bucket.is_linked(tag)).then_some(None);
        };
        if bucket.word(slot).is_none_or(|word| word.is_expired(now_ms())) {
            return Some(None);
        }
        Some(V::read_from_bytes(bucket.value(slot)?).ok())
    }

    pub(super) fn linked(&self, bucket: u64, link: BucketLink) -> u64 {
        (bucket + link.distance) % self.buckets()
    }

    pub(super) fn place(&self, bucket: u64, at: usize) -> u64 {
        (bucket + 1) * self.table.row_bytes() + at as u64
    }

    pub(super) fn new_header() -> [u64; 6] {
        let random = || RandomState::new().build_hasher().finish();
        let BucketLayout { key_bytes, value_bytes, slots } = Self::layout();
        [MAGIC, key_bytes as u64, value_bytes as u64, slots as u64, random(), random()]
    }

    pub(super) fn of_header(table: Table<S>, name: &str, header: [u64; 6]) -> Result<Self, Error> {
        let wanted = Self::new_header();
        if header[..4] != wanted[..4] {
            let found = if header[0] == MAGIC {
                format!("a map of {} byte keys and {} byte values", header[1], header[2])
            } else {
                "another table".to_owned()
            };
            let range = format!("a map of {} byte keys and {} byte values", wanted[1], wanted[2]);
            let refused = BadArgument::new("segment", found, range, Failure::Unsupported);
            return Err(Error::BadArgument { action: "view as a map", target: name.to_owned(), refused });
        }
        Ok(Self { table, layout: Self::layout(), seed: [header[4], header[5]], kind: PhantomData })
    }

    /// Refuses to begin one more attempt after the deadline.
    pub(super) fn check_time(action: &'static str, name: &str, time: Deadline) -> Result<(), Error> {
        if time.remaining() > Duration::ZERO {
            return Ok(());
        }
        Err(Error::Failed { action, target: name.to_owned(), failure: Failure::TimedOut })
    }

    pub(super) fn full(&self, name: &str) -> Error {
        let range = format!("{} in the whole map (load limit 0.8): allocate a larger map", self.capacity());
        let refused =
            BadArgument::new("number of keys", "more than the buckets of this key hold", range, Failure::NoSpace);
        Error::BadArgument { action: "insert into", target: name.to_owned(), refused }
    }
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
        Err(Error::Failed { failure: Failure::VersionMismatch, .. }) => Ok(Attempt::Changed),
        Err(error) => Err(error),
    }
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
