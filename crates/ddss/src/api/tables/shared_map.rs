//! Maps from keys to values on the rows of a table.
//!
//! Row 0 describes the map, each other row is a bucket. The version of its bucket decides each change of a key. The home
//! executes most of them on the bucket. Otherwise a client reads it, and its conditional put fails if any other change of
//! the bucket came first. So two clients never both insert one key.
//!
//! An entry that finds no free slot in its bucket is written into a later bucket first, where no get finds it. A
//! conditional put of a link into its own bucket then makes it visible. A client that dies between the two leaves an
//! orphan. [`SharedMap::remove_expired`] frees it: it changes the bucket first, so that the put of the link fails if the
//! client lives after all.

use crate::api::tables::map_handle::{Expiry, HEADER_BYTES, Place, SharedMap, attempt, now_ms};
use crate::api::tables::table::Table;
use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use ddss_core::{EntryChangeKind, Failure, Version};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Maximum number of buckets that one call holds in memory: 1 MiB at most.
const KEYS_TOGETHER_MAX: usize = 256;

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

        /// Opens a map by name. A map of other sizes is refused with [`Failure::Unsupported`](crate::Failure::Unsupported).
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
            if let Some(found) = self.get_in_place(hash, key.as_bytes()) {
                return Ok(found);
            }
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
        ///
        /// The reads of many keys are in flight at the same time, so from another node this takes less time than as many
        /// calls of [`get`](Self::get).
        pub async fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
            let mut values = Vec::with_capacity(keys.len());
            for keys in keys.chunks(KEYS_TOGETHER_MAX) {
                for (key, bucket) in keys.iter().zip(wait!(self.read_buckets(keys))?) {
                    values.push(match self.look_up(bucket.as_ref(), key) {
                        Some(value) => value,
                        None => wait!(self.get(key))?,
                    });
                }
            }
            Ok(values)
        }

        /// Waits until the value of a key differs from `last` (`None`: from absent), and returns the present value. Values
        /// that follow each other quickly may be merged, and a value that returns to `last` may be missed.
        ///
        /// The client does not poll: the home answers when an entry of the same bucket changes. At the deadline of one call
        /// it fails with [`Failure::TimedOut`](crate::Failure::TimedOut).
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// # use ddss::SharedMap;
        /// let stock: SharedMap<u64, u64> = SharedMap::allocate(&client, "stock", 1000)?;
        /// let (writer, mut seen) = (stock.clone(), None);
        /// let clerk = std::thread::spawn(move || writer.insert(&4711, &3));
        /// seen = stock.wait_for_change(&4711, seen.as_ref())?;
        /// assert_eq!(seen, Some(3));
        /// # clerk.join().expect("it does not panic")?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn wait_for_change(&self, key: &K, last: Option<&V>) -> Result<Option<V>, Error> {
            let (name, time) = (self.table.segment().name(), self.table.segment().time().started());
            let hash = self.hash(key.as_bytes());
            loop {
                Self::check_time("watch", name, time)?;
                let (home, place) = wait!(self.find(time, hash, key.as_bytes()))?;
                // A key that is absent appears by a change of its own bucket, and an entry changes in the bucket that holds it.
                let (mut bucket, mut version, mut expiry_ms, mut now) = (hash.bucket, home.version, 0, None);
                if let Some(Place { bucket: at, slot, image }) = &place {
                    let image = image.as_ref().unwrap_or(&home);
                    if let Some(word) = image.word(*slot).filter(|word| !word.is_expired(now_ms())) {
                        now = wait!(self.value_of(time, *at, image, *slot))?;
                        if now.is_none() {
                            continue;
                        }
                        (bucket, version, expiry_ms) = (*at, image.version, word.expiry_ms());
                    }
                }
                if now.as_deref() != last.map(V::as_bytes) {
                    return Ok(now.and_then(|bytes| V::read_from_bytes(&bytes).ok()));
                }
                // No put announces an expiry.
                let lives = Duration::from_millis(expiry_ms.saturating_sub(now_ms()) + 1);
                let left = if expiry_ms == 0 { time.remaining() } else { time.remaining().min(lives) };
                let left = Deadline::of(left.max(Duration::from_micros(1)));
                match wait!(self.table.segment().wait_at(left, self.place(bucket, 0), version)) {
                    Err(Error::Failed { failure: Failure::TimedOut, .. }) => {}
                    ended => drop(ended?),
                }
            }
        }

        /// Writes the value of a key, and returns true if the key is new. The entry does not expire.
        pub async fn insert(&self, key: &K, value: &V) -> Result<bool, Error> {
            wait!(self.insert_entry(key, value, EntryChangeKind::Write, Expiry::Set(0)))
        }

        /// Writes the value of a key that expires after this time, and returns true if the key is new. Readers compare
        /// the absolute expiry (in milliseconds) with the clock of their own node.
        pub async fn insert_for(&self, key: &K, value: &V, time: Duration) -> Result<bool, Error> {
            wait!(self.insert_entry(key, value, EntryChangeKind::Write, Expiry::after(time)))
        }

        /// Writes the value of a key that is new. Returns false, and does nothing, if the key is present. Of several
        /// clients that insert one key, one gets true.
        pub async fn insert_new(&self, key: &K, value: &V) -> Result<bool, Error> {
            wait!(self.insert_entry(key, value, EntryChangeKind::Insert, Expiry::Set(0)))
        }

        /// Writes the value of a key that is new, and that expires after this time: [`insert_new`](Self::insert_new) and
        /// [`insert_for`](Self::insert_for) in one call.
        pub async fn insert_new_for(&self, key: &K, value: &V, time: Duration) -> Result<bool, Error> {
            wait!(self.insert_entry(key, value, EntryChangeKind::Insert, Expiry::after(time)))
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
            let time = self.table.segment().time().started();
            let is_present = wait!(self.change(("update", time), key, Expiry::Keep, apply))?;
            Ok(written.filter(|_| is_present))
        }

        /// Removes a key, and returns true if it was present.
        pub async fn remove(&self, key: &K) -> Result<bool, Error> {
            wait!(self.remove_entry(key))
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

        /// Frees the map in the whole cluster: [`Segment::release`](crate::Segment::release).
        pub async fn release(self) -> Result<(), Error> {
            wait!(self.table.release())
        }
    }
}
