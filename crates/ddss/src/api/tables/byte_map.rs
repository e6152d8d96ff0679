//! Calls of maps by bytes. `shared_map.rs` makes them of types.
//!
//! Row 0 describes the map, each other row is a bucket. The version of its bucket decides each change of a key. The home
//! executes most of them on the bucket. Otherwise a client reads it, and its conditional put fails if any other change of
//! the bucket came first. So two clients never both insert one key.
//!
//! An entry that finds no free slot in its bucket is written into a later bucket first, where no get finds it. A
//! conditional put of a link into its own bucket then makes it visible. A client that dies between the two leaves an
//! orphan. The sweep of the home frees it: it changes the bucket first, so that the put of the link fails if the client
//! lives after all.

use super::map_handle::ByteMap;
use super::table::Table;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::map::entry::{
    Entry, Expiry, HEADER_BYTES, KeyHash, Place, attempt, check_time, checked_layout, now_ms, spec_of,
};
use crate::spec::Spec;
use crate::value::first_word;
use ddss_core::{BadArgument, BucketLayout, EntryChangeKind, Failure, Operation, SlotWord, Version};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Key and value.
type ByteEntry = (Vec<u8>, Vec<u8>);

impl ByteMap {
    /// Returns the specification of a map for that many keys; other fields may be set. The map then has slots for a
    /// quarter more: its load is at most 0.8.
    pub fn spec(keys: u64, key_bytes: usize, value_bytes: usize) -> Result<Spec, Error> {
        checked_layout("specify", "a map", key_bytes, value_bytes).map(|layout| spec_of(layout, keys))
    }
}

#[twin]
impl Table {
    /// Views the table as a map of that layout, or of any. The first view with a layout writes the description.
    pub(crate) async fn into_map(self, wanted: Option<BucketLayout>) -> Result<ByteMap, Error> {
        let (segment, row_bytes) = (self.segment(), self.row_len());
        if segment.location().token.is_some() {
            // A change of an entry has conditions of its own, and no room for a token.
            let refused = BadArgument::new("table", "under its lock", "a table without the lock", Failure::Unsupported);
            return Err(Error::bad_argument("view", segment.name(), refused));
        }
        let is_fitting = wanted.is_none_or(|layout| layout.row_bytes() as u64 == row_bytes);
        if !is_fitting || row_bytes < HEADER_BYTES as u64 || self.len() < 3 {
            return ByteMap::of_header(self, [0; 6], wanted);
        }
        let time = segment.time().started();
        loop {
            check_time("open", segment.name(), time)?;
            let mut header = [0; 6];
            let read = &mut header.as_mut_bytes()[..HEADER_BYTES];
            let stamp = segment.get_by(time, 0, read).await?;
            let Some(layout) = wanted.filter(|_| stamp.version == Version(0)) else {
                return ByteMap::of_header(self, header, wanted);
            };
            let conditions = segment.location().put_conditions(Some(Version(0)));
            let header = ByteMap::new_header(layout);
            attempt(segment.put_by(time, 0, header.as_bytes(), conditions).await)?;
        }
    }
}

#[twin]
impl ByteMap {
    /// Allocates a map for that many keys, with keys and values of those sizes.
    pub async fn allocate(
        client: &Client,
        name: &str,
        keys: u64,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Result<Self, Error> {
        let layout = checked_layout("allocate", name, key_bytes, value_bytes)?;
        let segment = client.segment(name).allocate(spec_of(layout, keys)).await?;
        Table::new(segment)?.into_map(Some(layout)).await
    }

    /// Opens a map by name. Another segment is refused with [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape).
    pub async fn open(client: &Client, name: &str) -> Result<Self, Error> {
        let segment = client.segment(name).open().await?;
        Table::new(segment)?.into_map(None).await
    }

    /// Views a table whose specification was made by [`spec`](ByteMap::spec) with these sizes. The first view writes
    /// the description of the map.
    pub async fn view(table: Table, key_bytes: usize, value_bytes: usize) -> Result<Self, Error> {
        let layout = checked_layout("view as a map", table.segment().name(), key_bytes, value_bytes)?;
        table.into_map(Some(layout)).await
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.check_bytes("get from", key, None)?;
        self.get_by_hash(self.table.segment().time(), self.hash(key), key).await
    }

    /// Returns the entry of a key: its value, and the time until it expires.
    pub async fn get_entry(&self, key: &[u8]) -> Result<Option<Entry<Vec<u8>>>, Error> {
        self.check_bytes("get from", key, None)?;
        self.entry_by_hash(self.table.segment().time(), self.hash(key), key).await
    }

    pub(crate) async fn get_by_hash(
        &self,
        time: Deadline,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.entry_by_hash(time, hash, key).await?.map(|entry| entry.value))
    }

    pub(crate) async fn entry_by_hash(
        &self,
        time: Deadline,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Option<Entry<Vec<u8>>>, Error> {
        let mut time = time;
        loop {
            let (home, place) = self.find(time, hash, key).await?;
            let Some(place) = place else { return Ok(None) };
            let image = place.image.as_ref().unwrap_or(&home);
            let word = image.word(place.slot).filter(|word| word.expiry_ms() == 0 || !word.is_expired(now_ms()));
            let Some(expiry_ms) = word.map(SlotWord::expiry_ms) else { return Ok(None) };
            if let Some(value) = self.value_of(time, place.bucket, image, place.slot).await? {
                return Ok(Some(Entry { value, expiry_ms }));
            }
            time = time.started();
            check_time("get from", self.table.segment().name(), time)?;
        }
    }

    /// Waits until the value of a key differs from `last` (`None`: from absent), and returns the present value:
    /// [`SharedMap::wait_for_change`](crate::SharedMap::wait_for_change).
    pub async fn wait_for_change(&self, key: &[u8], last: Option<&[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let (name, time) = (self.table.segment().name(), self.table.segment().time().started());
        self.check_bytes("watch", key, None)?;
        let hash = self.hash(key);
        loop {
            check_time("watch", name, time)?;
            let (home, place) = self.find(time, hash, key).await?;
            // A key that is absent appears by a change of its own bucket, and an entry changes in the bucket that holds it.
            let (mut bucket, mut version, mut expiry_ms, mut now) = (hash.bucket, home.version, 0, None);
            if let Some(Place { bucket: at, slot, image }) = &place {
                let image = image.as_ref().unwrap_or(&home);
                if let Some(word) = image.word(*slot).filter(|word| !word.is_expired(now_ms())) {
                    now = self.value_of(time, *at, image, *slot).await?;
                    if now.is_none() {
                        continue;
                    }
                    (bucket, version, expiry_ms) = (*at, image.version, word.expiry_ms());
                }
            }
            if now.as_deref() != last {
                return Ok(now);
            }
            // No put announces an expiry.
            let lives = Duration::from_millis(expiry_ms.saturating_sub(now_ms()) + 1);
            let left = if expiry_ms == 0 { time.remaining() } else { time.remaining().min(lives) };
            let left = Deadline::of(left.max(Duration::from_micros(1)));
            match self.table.segment().wait_at(left, self.place(bucket, 0), version).await {
                Err(error) if error.has_failed_with(Failure::TimedOut) => {}
                ended => drop(ended?),
            }
        }
    }

    /// Writes the value of a key, and returns true if the key is new. The entry does not expire.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        self.insert_bytes(key, value, EntryChangeKind::Write, Expiry::Set(0)).await
    }

    /// Writes the value of a key that expires after this time, and returns true if the key is new.
    pub async fn insert_for(&self, key: &[u8], value: &[u8], time: Duration) -> Result<bool, Error> {
        self.insert_bytes(key, value, EntryChangeKind::Write, Expiry::after(time)).await
    }

    /// Writes the value of a key that is new. Returns false, and does nothing, if the key is present.
    pub async fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        self.insert_bytes(key, value, EntryChangeKind::Insert, Expiry::Set(0)).await
    }

    /// Writes the value of a key that is new, and that expires after this time.
    pub async fn insert_new_for(&self, key: &[u8], value: &[u8], time: Duration) -> Result<bool, Error> {
        self.insert_bytes(key, value, EntryChangeKind::Insert, Expiry::after(time)).await
    }

    async fn insert_bytes(
        &self,
        key: &[u8],
        value: &[u8],
        kind: EntryChangeKind,
        expiry: Expiry,
    ) -> Result<bool, Error> {
        self.check_bytes("insert into", key, Some(value))?;
        self.insert_entry(key, value, kind, expiry).await
    }

    /// Lets the entry of a key expire after this time from now, and returns true if the key is present:
    /// [`SharedMap::touch`](crate::SharedMap::touch).
    pub async fn touch(&self, key: &[u8], time: Duration) -> Result<bool, Error> {
        self.check_bytes("touch", key, None)?;
        self.touch_entry(key, Expiry::after(time)).await
    }

    /// Removes a key, and returns true if it was present.
    pub async fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.check_bytes("remove from", key, None)?;
        self.remove_entry(key).await
    }

    /// Returns the entries whose keys belong to a bucket. Buckets are read one by one: a key that is inserted or
    /// removed meanwhile may be missing or not.
    pub async fn bucket_entries(&self, bucket: u64) -> Result<Vec<ByteEntry>, Error> {
        let (name, time) = (self.table.segment().name(), self.table.segment().time().started());
        'again: loop {
            check_time("read", name, time)?;
            let Some((home, places)) = self.live_places(time, bucket).await? else { continue };
            let mut entries = Vec::with_capacity(places.len());
            for place in places {
                let image = place.image.as_ref().unwrap_or(&home);
                let value = self.value_of(time, place.bucket, image, place.slot).await?;
                let Some(value) = value else { continue 'again };
                entries.push((image.key(place.slot).to_vec(), value));
            }
            return Ok(entries);
        }
    }

    /// Counts the keys, within the timeout of one call. Other clients may change the map meanwhile.
    pub async fn count(&self) -> Result<u64, Error> {
        self.count_keys().await
    }

    /// Frees the slots of expired entries, and of entries whose client died before it linked them, in some buckets
    /// from `first` on, by one request. Returns their number. The home does the same by itself from time to time, and
    /// inserts that find no room do so for the buckets of their key.
    pub async fn remove_expired(&self, first: u64, buckets: u64) -> Result<u64, Error> {
        let segment = self.table.segment();
        let sweep = Operation::Sweep { segment: segment.id(), first, buckets };
        segment.run_operation("remove expired entries of", sweep, first_word).await
    }

    /// Frees the map in the whole cluster: [`Segment::release`](crate::Segment::release).
    pub async fn release(self) -> Result<(), Error> {
        self.table.segment().release().await
    }
}
