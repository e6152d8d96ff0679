//! Maps from keys to values on the rows of a table: the calls of `byte_map.rs` with types.

use super::map_handle::SharedMap;
use super::table::Table;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::map::entry::{Entry, Expiry};
use ddss_core::EntryChangeKind;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Maximum number of buckets that one call holds in memory: 1 MiB at most.
const KEYS_TOGETHER_MAX: usize = 256;

#[twin]
impl<K: FromBytes + IntoBytes + Immutable, V: FromBytes + IntoBytes + Immutable> SharedMap<K, V> {
    /// Allocates a map for that many keys.
    pub async fn allocate(client: &Client, name: &str, keys: u64) -> Result<Self, Error> {
        Self::check_types("allocate", name)?;
        let segment = client.segment(name).allocate(Self::spec(keys)).await?;
        Ok(Self::of_map(Table::new(segment)?.into_map(Some(Self::layout())).await?))
    }

    /// Opens a map by name. A map of other sizes is refused with [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape).
    pub async fn open(client: &Client, name: &str) -> Result<Self, Error> {
        Self::check_types("open", name)?;
        let segment = client.segment(name).open().await?;
        Ok(Self::of_map(Table::new(segment)?.into_map(Some(Self::layout())).await?))
    }

    /// Views a table whose specification was made by [`spec`](Self::spec). The first view writes the description of
    /// the map, so that a client that died after it allocated the table leaves a usable map.
    pub async fn view(table: Table) -> Result<Self, Error> {
        Self::check_types("view as a map", table.segment().name())?;
        Ok(Self::of_map(table.into_map(Some(Self::layout())).await?))
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: &K) -> Result<Option<V>, Error> {
        self.get_by(self.map.table.segment().time(), key).await
    }

    #[inline]
    async fn get_by(&self, time: Deadline, key: &K) -> Result<Option<V>, Error> {
        let hash = self.map.hash(key.as_bytes());
        if let Some(found) = self.get_in_place(hash, key.as_bytes()) {
            self.map.table.segment().spend_budget(1, size_of::<V>()).await;
            return Ok(found);
        }
        let value = self.map.get_by_hash(time, hash, key.as_bytes()).await?;
        Ok(value.and_then(|bytes| V::read_from_bytes(&bytes).ok()))
    }

    /// Returns the entry of a key: its value, and the time until it expires.
    pub async fn get_entry(&self, key: &K) -> Result<Option<Entry<V>>, Error> {
        let (time, hash) = (self.map.table.segment().time(), self.map.hash(key.as_bytes()));
        let found = self.map.entry_by_hash(time, hash, key.as_bytes()).await?;
        let typed = |Entry { value, expiry_ms }: Entry<Vec<u8>>| {
            Some(Entry { value: V::read_from_bytes(&value).ok()?, expiry_ms })
        };
        Ok(found.and_then(typed))
    }

    /// Returns the values of keys. Each is whole by itself; a snapshot of several keys does not exist.
    ///
    /// The reads of many keys are in flight at the same time, so from another node this takes less time than as many
    /// calls of [`get`](Self::get).
    pub async fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
        let (mut values, time) = (Vec::with_capacity(keys.len()), self.map.table.segment().time().started());
        for keys in keys.chunks(KEYS_TOGETHER_MAX) {
            let buckets: Vec<u64> = keys.iter().map(|key| self.map.hash(key.as_bytes()).bucket).collect();
            let images = self.map.read_buckets(time, &buckets).await?;
            let found: Vec<_> =
                keys.iter().zip(&images).map(|(key, image)| self.look_up(image.as_ref(), key)).collect();
            let unknown = keys.iter().zip(images).zip(&found).filter(|(_, found)| found.is_none());
            let linked: Vec<_> = unknown.filter_map(|((key, image), _)| Some((key.as_bytes(), image?))).collect();
            let mut linked = self.map.find_linked(time, &linked).await?.into_iter();
            for (key, found) in keys.iter().zip(found) {
                values.push(match found.or_else(|| self.value_of_linked(linked.next()?)) {
                    Some(value) => value,
                    None => self.get_by(time, key).await?,
                });
            }
        }
        Ok(values)
    }

    /// Waits until the value of a key differs from `last` (`None`: from absent), and returns the present value. Values
    /// that follow each other quickly may be merged, and a value that returns to `last` may be missed.
    ///
    /// The client does not poll: the home answers when an entry of the same bucket changes. At the deadline of one call
    /// it fails with [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
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
        let found = self.map.wait_for_change(key.as_bytes(), last.map(V::as_bytes)).await?;
        Ok(found.and_then(|bytes| V::read_from_bytes(&bytes).ok()))
    }

    /// Writes the value of a key, and returns true if the key is new. The entry does not expire.
    pub async fn insert(&self, key: &K, value: &V) -> Result<bool, Error> {
        self.map.insert_entry(key.as_bytes(), value.as_bytes(), EntryChangeKind::Write, Expiry::Set(0)).await
    }

    /// Writes the value of a key that expires after this time, and returns true if the key is new. Readers compare
    /// the absolute expiry (in milliseconds) with the clock of their own node.
    pub async fn insert_for(&self, key: &K, value: &V, time: Duration) -> Result<bool, Error> {
        self.map.insert_entry(key.as_bytes(), value.as_bytes(), EntryChangeKind::Write, Expiry::after(time)).await
    }

    /// Writes the value of a key that is new. Returns false, and does nothing, if the key is present. Of several
    /// clients that insert one key, one gets true.
    pub async fn insert_new(&self, key: &K, value: &V) -> Result<bool, Error> {
        self.map.insert_entry(key.as_bytes(), value.as_bytes(), EntryChangeKind::Insert, Expiry::Set(0)).await
    }

    /// Writes the value of a key that is new, and that expires after this time: [`insert_new`](Self::insert_new) and
    /// [`insert_for`](Self::insert_for) in one call.
    pub async fn insert_new_for(&self, key: &K, value: &V, time: Duration) -> Result<bool, Error> {
        self.map.insert_entry(key.as_bytes(), value.as_bytes(), EntryChangeKind::Insert, Expiry::after(time)).await
    }

    /// Lets the entry of a key expire after this time from now, and returns true if the key is present. The value
    /// stays. The home does this in one request.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// use std::time::Duration;
    /// const IDLE: Duration = Duration::from_secs(600);
    /// let sessions: ddss::SharedMap<u64, u64> = ddss::SharedMap::allocate(&client, "sessions", 1000)?;
    /// sessions.insert_for(&4711, &1, IDLE)?;
    /// assert!(sessions.touch(&4711, IDLE)?, "each request keeps the session for ten minutes more");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn touch(&self, key: &K, time: Duration) -> Result<bool, Error> {
        self.map.touch_entry(key.as_bytes(), Expiry::after(time)).await
    }

    /// Changes the value of a key, and repeats until no other change of the key came between. Returns the new value,
    /// or `None` if the key is absent. The expiry stays. A change that leaves the value as it is writes nothing.
    pub async fn update(&self, key: &K, change: impl FnMut(&mut V)) -> Result<Option<V>, Error> {
        self.update_with(key, Expiry::Keep, change).await
    }

    /// Changes the value of a key like [`update`](Self::update), and lets the entry expire after this time from now.
    pub async fn update_for(&self, key: &K, time: Duration, change: impl FnMut(&mut V)) -> Result<Option<V>, Error> {
        self.update_with(key, Expiry::after(time), change).await
    }

    async fn update_with(&self, key: &K, expiry: Expiry, mut change: impl FnMut(&mut V)) -> Result<Option<V>, Error> {
        let mut written = None;
        let apply = |old: Option<&[u8]>| {
            let mut value = V::read_from_bytes(old?).ok()?;
            change(&mut value);
            let bytes = value.as_bytes().to_vec();
            written = Some(value);
            Some(bytes)
        };
        let time = self.map.table.segment().time().started();
        let is_present = self.map.change(("update", time), key.as_bytes(), expiry, apply).await?;
        Ok(written.filter(|_| is_present))
    }

    /// Removes a key, and returns true if it was present.
    pub async fn remove(&self, key: &K) -> Result<bool, Error> {
        self.map.remove_entry(key.as_bytes()).await
    }

    /// Returns the entries whose keys belong to a bucket. Buckets are read one by one: a key that is inserted or
    /// removed meanwhile may be missing or not.
    pub async fn bucket_entries(&self, bucket: u64) -> Result<Vec<(K, V)>, Error> {
        let entries = self.map.bucket_entries(bucket).await?;
        let typed =
            |(key, value): (Vec<u8>, Vec<u8>)| K::read_from_bytes(&key).ok().zip(V::read_from_bytes(&value).ok());
        Ok(entries.into_iter().filter_map(typed).collect())
    }

    /// Counts the keys, within the timeout of one call. Other clients may change the map meanwhile.
    pub async fn count(&self) -> Result<u64, Error> {
        self.map.count().await
    }

    /// Frees the slots of expired entries, and of entries whose client died before it linked them, in some buckets
    /// from `first` on, by one request. Returns their number. The home does the same by itself from time to time, and
    /// inserts that find no room do so for the buckets of their key.
    pub async fn remove_expired(&self, first: u64, buckets: u64) -> Result<u64, Error> {
        self.map.remove_expired(first, buckets).await
    }

    /// Frees the map in the whole cluster: [`Segment::release`](crate::Segment::release).
    pub async fn release(self) -> Result<(), Error> {
        self.map.release().await
    }
}
