//! Maps from keys to values on the rows of a table.
//!
//! Row 0 describes the map, each other row is a [`Bucket`]. The version of its bucket decides each insert of a key: a
//! client reads the bucket, and its conditional put fails if any other change of the bucket came first. So two clients
//! never both insert one key.
//!
//! An entry that finds no free slot in its bucket is written into a later bucket first, where no get finds it. A
//! conditional put of a link into its own bucket then makes it visible. A client that dies between the two leaves an
//! orphan. [`SharedMap::remove_expired`] frees it: it changes the bucket first, so that the put of the link fails if the
//! client lives after all.

use crate::api::tables::bucket::{BucketLayout, Link};
use crate::api::tables::map_buckets::{Attempt, Expiry, KeyHash, attempt, now_ms};
use crate::api::tables::table::Table;
use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use ddss_core::{BadArgument, Failure, Spec, Version};
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A hash map in shared memory, for keys and values of fixed sizes. `S` is [`Segment`] or [`AsyncSegment`].
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
const HEADER_BYTES: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"DDSSMAP1");

impl<K, V, S> SharedMap<K, V, S> {
    /// Maximum bytes of a key.
    pub const KEY_BYTES_MAX: usize = 1024;
    /// Maximum bytes of a value.
    pub const VALUE_BYTES_MAX: usize = 64 << 10;

    fn layout() -> BucketLayout {
        BucketLayout::new(size_of::<K>().min(Self::KEY_BYTES_MAX), size_of::<V>().min(Self::VALUE_BYTES_MAX))
    }

    fn check_types(action: &'static str, name: &str) -> Result<(), Error> {
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

    pub(super) fn linked(&self, bucket: u64, link: Link) -> u64 {
        (bucket + link.distance) % self.buckets()
    }

    pub(super) fn place(&self, bucket: u64, at: usize) -> u64 {
        (bucket + 1) * self.table.row_bytes() + at as u64
    }

    fn new_header() -> [u64; 6] {
        let random = || RandomState::new().build_hasher().finish();
        let BucketLayout { key_bytes, value_bytes, slots } = Self::layout();
        [MAGIC, key_bytes as u64, value_bytes as u64, slots as u64, random(), random()]
    }

    fn of_header(table: Table<S>, name: &str, header: [u64; 6]) -> Result<Self, Error> {
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

calls! {
    impl {K: FromBytes + IntoBytes + Immutable, V: FromBytes + IntoBytes + Immutable}
        SharedMap<K, V>, SharedMap<K, V, AsyncSegment>
    {
        /// Allocates a map for that many keys.
        pub async fn allocate | allocate_async(client: &Client, name: &str, keys: u64)
            | (client: &AsyncClient, name: &str, keys: u64) -> Result<Self, Error>
        {
            Self::check_types("allocate", name)?;
            let segment = wait!(client.allocate(name, Self::spec(keys)))?;
            let location = segment.location().clone();
            wait!(Self::of_table(Table::of(segment, &location)?))
        }

        /// Opens a map by name. A map of other sizes is refused with [`Failure::Unsupported`].
        pub async fn open | open_async(client: &Client, name: &str) | (client: &AsyncClient, name: &str)
            -> Result<Self, Error>
        {
            let segment = wait!(client.open(name))?;
            let location = segment.location().clone();
            wait!(Self::of_table(Table::of(segment, &location)?))
        }

        /// Views a table whose specification was made by [`spec`](Self::spec). The first view writes the description of
        /// the map, so that a client that died after it allocated the table leaves a usable map.
        pub async fn view | view_async(table: Table) | (table: Table<AsyncSegment>) -> Result<Self, Error> {
            wait!(Self::of_table(table))
        }

        async fn of_table(table: Table) | (table: Table<AsyncSegment>) -> Result<Self, Error> {
            let (segment, name) = (table.segment().clone(), table.segment().name().to_owned());
            Self::check_types("view as a map", &name)?;
            if table.row_bytes() != Self::layout().row_bytes() as u64 || table.rows() < 3 {
                return Self::of_header(table, &name, [0; 6]);
            }
            let time = segment.time().started();
            loop {
                Self::check_time("open", &name, time)?;
                let mut header = [0; 6];
                let read = &mut header.as_mut_bytes()[..HEADER_BYTES];
                let stamp = wait!(segment.get_by(time, 0, read))?;
                if stamp.version > Version(0) {
                    return Self::of_header(table, &name, header);
                }
                let (header, conditions) = (Self::new_header(), segment.location().put_conditions(Some(Version(0)), None));
                attempt(wait!(segment.put_by(time, 0, header.as_bytes(), conditions)))?;
            }
        }

        /// Returns the value of a key.
        pub async fn get(&self, key: &K) -> Result<Option<V>, Error> {
            let (mut time, hash) = (self.table.segment().time(), self.hash(key.as_bytes()));
            loop {
                let (home, place) = wait!(self.find(time, hash, key.as_bytes()))?;
                let Some(place) = place else { return Ok(None) };
                let image = place.image.as_ref().unwrap_or(&home);
                if image.word(place.slot).is_none_or(|word| word.expiry_ms() > 0 && word.is_expired(now_ms())) {
                    return Ok(None);
                }
                if let Some(value) = wait!(self.value_of(time, place.bucket, image, place.slot))? {
                    return Ok(V::read_from_bytes(&value).ok());
                }
                time = time.started();
                Self::check_time("get from", self.table.segment().name(), time)?;
            }
        }

        /// Returns the values of keys. Each is whole by itself; a snapshot of several keys does not exist.
        pub async fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(wait!(self.get(key))?);
            }
            Ok(values)
        }

        /// Writes the value of a key, and returns true if the key is new. The entry does not expire.
        pub async fn insert(&self, key: &K, value: &V) -> Result<bool, Error> {
            let copy = |_: Option<&[u8]>| Some(value.as_bytes().to_vec());
            Ok(!wait!(self.change("insert into", key, Expiry::Set(0), copy))?)
        }

        /// Writes the value of a key that expires after this time, and returns true if the key is new. Readers compare
        /// the absolute expiry (in milliseconds) with the clock of their own node.
        pub async fn insert_for(&self, key: &K, value: &V, time: Duration) -> Result<bool, Error> {
            let copy = |_: Option<&[u8]>| Some(value.as_bytes().to_vec());
            let expiry = Expiry::Set(now_ms().saturating_add(time.as_millis().max(1) as u64));
            Ok(!wait!(self.change("insert into", key, expiry, copy))?)
        }

        /// Writes the value of a key that is new. Returns false, and does nothing, if the key is present. Of several
        /// clients that insert one key, one gets true.
        pub async fn insert_new(&self, key: &K, value: &V) -> Result<bool, Error> {
            let copy = |old: Option<&[u8]>| old.is_none().then(|| value.as_bytes().to_vec());
            Ok(!wait!(self.change("insert into", key, Expiry::Set(0), copy))?)
        }

        /// Changes the value of a key, and repeats until no other change of the key came between. Returns the new value,
        /// or `None` if the key is absent. The expiry stays.
        pub async fn update(&self, key: &K, mut change: impl FnMut(&mut V)) -> Result<Option<V>, Error> {
            let mut written = None;
            let apply = |old: Option<&[u8]>| {
                let mut value = V::read_from_bytes(old?).ok()?;
                change(&mut value);
                let bytes = value.as_bytes().to_vec();
                written = Some(value);
                Some(bytes)
            };
            let is_present = wait!(self.change("update", key, Expiry::Keep, apply))?;
            Ok(written.filter(|_| is_present))
        }

        /// Removes a key, and returns true if it was present.
        pub async fn remove(&self, key: &K) -> Result<bool, Error> {
            let (name, time) = (self.table.segment().name(), self.table.segment().time().started());
            let hash = self.hash(key.as_bytes());
            loop {
                Self::check_time("remove from", name, time)?;
                let (home, place) = wait!(self.find(time, hash, key.as_bytes()))?;
                let Some(place) = place else { return Ok(false) };
                let image = place.image.as_ref().unwrap_or(&home);
                let is_live = image.word(place.slot).is_some_and(|word| !word.is_expired(now_ms()));
                if let Attempt::Done = wait!(self.free_slot(time, place.bucket, image, place.slot))? {
                    if place.image.is_some() {
                        // A link to a free slot does no harm. If this put fails, a later call removes it.
                        wait!(self.remove_links(time, hash.bucket)).ok();
                    }
                    return Ok(is_live);
                }
            }
        }

        /// Returns the entries whose keys belong to a bucket. Buckets are read one by one: a key that is inserted or
        /// removed meanwhile may be missing or not.
        pub async fn bucket_entries(&self, bucket: u64) -> Result<Vec<(K, V)>, Error> {
            let (name, time) = (self.table.segment().name(), self.table.segment().time().started());
            'again: loop {
                Self::check_time("read", name, time)?;
                let Some((home, places)) = wait!(self.live_places(time, bucket))? else { continue };
                let mut entries = Vec::with_capacity(places.len());
                for place in places {
                    let image = place.image.as_ref().unwrap_or(&home);
                    let value = wait!(self.value_of(time, place.bucket, image, place.slot))?;
                    let Some(value) = value else { continue 'again };
                    let key = K::read_from_bytes(image.key(place.slot)).ok();
                    entries.extend(key.zip(V::read_from_bytes(&value).ok()));
                }
                return Ok(entries);
            }
        }

        /// Counts the keys, bucket by bucket: other clients may change the map meanwhile.
        pub async fn count(&self) -> Result<u64, Error> {
            let name = self.table.segment().name();
            let mut keys = 0;
            for bucket in 0..self.buckets() {
                let time = self.table.segment().time().started();
                keys += loop {
                    Self::check_time("count the keys of", name, time)?;
                    if let Some((_, places)) = wait!(self.live_places(time, bucket))? {
                        break places.len() as u64;
                    }
                };
            }
            Ok(keys)
        }

        /// Frees the slots of expired entries, and of entries whose client died before it linked them, in some buckets
        /// from `first` on. Returns their number. Inserts that find no room do the same for the buckets of their key.
        pub async fn remove_expired(&self, first: u64, buckets: u64) -> Result<u64, Error> {
            let mut removed = 0;
            for bucket in first..first.saturating_add(buckets).min(self.buckets()) {
                removed += wait!(self.clean(self.table.segment().time().started(), bucket))?;
            }
            Ok(removed)
        }

        /// Frees the map in the whole cluster: [`Segment::release`].
        pub async fn release(self) -> Result<(), Error> {
            wait!(self.table.release())
        }
    }
}
