//! Calls of a map.

use super::super::{List, Watch, list_map, watch_map};
use super::map_handle::Map;
use super::map_scan::MapEntries;
use super::map_watch::MapWatch;
use super::twin;
use crate::batch::Batch;
use crate::deadline::Deadline;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::error::reason::Reason;
use crate::map::entry::{Change, Entry, Expiry, GET, PUT, REMOVE, Repeated, check_time};
use crate::map::known_entries::MapEvent;
use crate::options::EntryOptions;
use crate::value::{Update, Written};
use ddss_core::{EntryChangeKind, Version};
use std::borrow::Borrow;
use std::time::Duration;

/// Maximum number of buckets or changes that one call holds in memory: 1 MiB of buckets at most.
const KEYS_TOGETHER_MAX: usize = 256;

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> Map<K, V> {
    fn time(&self) -> Deadline {
        self.segment().time()
    }

    /// Returns the entry of a key: its value, its version, and the time until it expires.
    pub async fn get(&self, key: &K::Input) -> Result<Option<Entry<V::Output>>, Error> {
        self.get_by(self.time(), &self.key(GET, key)?).await
    }

    #[inline]
    async fn get_by(&self, time: Deadline, key: &[u8]) -> Result<Option<Entry<V::Output>>, Error> {
        let hash = self.map.hash(key);
        if let Some(found) = self.map.get_in_place::<V>(self.segment().location(), hash, key) {
            self.segment().spend_budget(1, self.map.layout.value_bytes).await;
            return Ok(found);
        }
        self.decode_entry(self.map.entry_by_hash(time, hash, key).await?)
    }

    /// Returns the entries of keys. Each is read atomically; a snapshot of several keys does not exist.
    ///
    /// The reads of many keys are in flight at the same time, so from another node this takes less time than as many
    /// calls of [`get`](Self::get).
    pub async fn get_many(&self, keys: &[&K::Input]) -> Result<Vec<Option<Entry<V::Output>>>, Error> {
        let (mut entries, time) = (Vec::with_capacity(keys.len()), self.time().started());
        for keys in keys.chunks(KEYS_TOGETHER_MAX) {
            let keys = keys.iter().map(|key| self.key(GET, key)).collect::<Result<Vec<_>, _>>()?;
            let buckets: Vec<u64> = keys.iter().map(|key| self.map.hash(key).bucket).collect();
            let images = self.map.read_buckets(time, &buckets).await?;
            let found: Vec<_> =
                keys.iter().zip(&images).map(|(key, image)| self.map.look_up(image.as_ref()?, key)).collect();
            let unknown = keys.iter().zip(&images).zip(&found).filter(|(_, found)| found.is_none());
            let linked: Vec<_> = unknown.filter_map(|((key, image), _)| Some((&key[..], image.as_ref()?))).collect();
            let linked = self.map.find_linked(time, &linked).await?;
            let mut linked = linked.iter();
            for (key, found) in keys.iter().zip(found) {
                entries.push(match found.or_else(|| linked.next()?.entry()) {
                    Some(entry) => self.decode_entry(entry)?,
                    None => self.get_by(time, key).await?,
                });
            }
        }
        Ok(entries)
    }

    /// Writes the value of a key. The entry does not expire.
    pub async fn put(&self, key: &K::Input, value: &V::Input) -> Result<Written, Error> {
        self.put_with(key, value, EntryOptions::new()).await
    }

    /// Writes the value of a key whose entry still has that version. The entry does not expire.
    ///
    /// Otherwise the put does nothing and fails with [`ErrorKind::VersionMismatch`](crate::ErrorKind::VersionMismatch), also
    /// if the key is absent. A change of another key may have that effect too; [`update`](Self::update) is free of it.
    pub async fn put_if(&self, key: &K::Input, version: Version, value: &V::Input) -> Result<Written, Error> {
        self.put_with(key, value, EntryOptions::new().if_version(version)).await
    }

    /// Writes the value of a key with these options.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::{EntryOptions, ErrorKind, Map};
    /// use std::time::Duration;
    /// let sessions: Map<u64, u64> = client.map("sessions").allocate(1000)?;
    /// let new = EntryOptions::new().if_absent().ttl(Duration::from_secs(600));
    /// assert!(sessions.put_with(&4711, &1, new)?.is_new);
    /// let second = sessions.put_with(&4711, &2, new).expect_err("of several clients, one puts it");
    /// assert_eq!(second.kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn put_with(&self, key: &K::Input, value: &V::Input, options: EntryOptions) -> Result<Written, Error> {
        let (time, expiry) = (self.time().started(), options.expiry());
        options.check().map_err(Error::argument(PUT, self.segment().name()))?;
        let (key, value) = (self.key(PUT, key)?, self.value(PUT, value)?);
        if let Some(version) = options.if_version {
            let version = self.map.put_entry_if(time, (&key, &value), version, expiry).await?;
            return Ok(Written { is_new: false, version });
        }
        let kind = if options.if_absent { EntryChangeKind::Insert } else { EntryChangeKind::Write };
        let (was_present, version) = self.map.put_entry(time, (&key, &value), kind, expiry).await?;
        if options.if_absent && was_present {
            return Err(Reason::KeyExists { action: PUT, target: self.segment().name().to_owned() }.into());
        }
        Ok(Written { is_new: !was_present, version })
    }

    /// Writes values of keys, each by itself, and returns the result of each.
    ///
    /// The puts are in flight at the same time, so from another node this takes less time than as many calls of
    /// [`put`](Self::put). All share the timeout of one call.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let stock: ddss::Map<u64, u64> = client.map("stock").allocate(1000)?;
    /// for written in stock.put_many(&[(&1, &10), (&2, &20)]) {
    ///     assert!(written?.is_new);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn put_many(&self, entries: &[(&K::Input, &V::Input)]) -> Vec<Result<Written, Error>> {
        let (mut written, time) = (Vec::with_capacity(entries.len()), self.time().started());
        for entries in entries.chunks(KEYS_TOGETHER_MAX) {
            let mut batch = Batch::new();
            let put = |(key, value): &(&K::Input, &V::Input)| batch.map_put(self, key, value, EntryOptions::new());
            let tickets: Vec<_> = entries.iter().map(put).collect();
            let (mut replies, _) = self.segment().client().run_by(time, batch).await;
            written.extend(tickets.into_iter().map(|ticket| replies.take(ticket?)));
        }
        written
    }

    /// Returns the entry of a key, which this call puts if the key is absent: then the second value is true.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let owners: ddss::Map<u64, u64> = client.map("owners").allocate(1000)?;
    /// let (owner, is_mine) = owners.get_or_put(&4711, &1)?;
    /// assert_eq!((owner.value, is_mine), (1, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_or_put(&self, key: &K::Input, value: &V::Input) -> Result<(Entry<V::Output>, bool), Error> {
        let (time, mut repeated) = (self.time().started(), Repeated::default());
        let (key, value) = (self.key(PUT, key)?, self.value(PUT, value)?);
        loop {
            if let Some(found) = self.get_by(time, &key).await? {
                return Ok((found, false));
            }
            let put = self.map.put_entry(time, (&key, &value), EntryChangeKind::Insert, Expiry::Set(0)).await?;
            if let (false, version) = put {
                return Ok((Entry { value: self.decode(&value)?, version, expiry_ms: 0 }, true));
            }
            check_time(PUT, self.segment().name(), time)?;
            // The clocks of the two may differ about an expiry: then only time helps.
            self.map.pause_after(&mut repeated, time).await;
        }
    }

    /// Changes the entry of a key, and repeats until no other change of the key came between. Returns the entry after it.
    /// The expiry stays.
    ///
    /// A put of the present value writes nothing. All attempts share the timeout of one call.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::{Map, Update};
    /// let visits: Map<u64, u64> = client.map("visits").allocate(1000)?;
    /// let count = || visits.update(&4711, |old| Update::Put(old.map_or(1, |old| old.value + 1)));
    /// count()?;
    /// assert_eq!(count()?.map(|entry| entry.value), Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn update(
        &self,
        key: &K::Input,
        mut change: impl FnMut(Option<&Entry<V::Output>>) -> Update<V::Output>,
    ) -> Result<Option<Entry<V::Output>>, Error> {
        const ACTION: &str = "update";
        let (time, key) = (self.time().started(), self.key(ACTION, key)?);
        let mut refused = None;
        let mut apply = |old: Option<Entry<&[u8]>>| -> Result<Change, Error> {
            let old = old.map(|old| Ok::<_, Error>(old.with_value(self.decode(old.value)?))).transpose()?;
            match change(old.as_ref()) {
                Update::Put(value) => Ok(Change::Put(self.value(ACTION, value.borrow())?.into_owned())),
                Update::Keep => Ok(Change::Keep),
                Update::Remove => Ok(Change::Remove),
            }
        };
        let decide = |old: Option<Entry<&[u8]>>| {
            apply(old).unwrap_or_else(|error| {
                refused = Some(error);
                Change::Keep
            })
        };
        let changed = self.map.change((ACTION, time), &key, Expiry::Keep, decide).await?;
        match refused {
            Some(error) => Err(error),
            None => self.decode_entry(changed.entry),
        }
    }

    /// Removes a key, and returns true if it was present.
    pub async fn remove(&self, key: &K::Input) -> Result<bool, Error> {
        self.map.remove_entry(self.time().started(), &self.key(REMOVE, key)?).await
    }

    /// Removes a key whose entry still has that version, as with [`put_if`](Self::put_if). Returns false if the key is
    /// absent.
    pub async fn remove_if(&self, key: &K::Input, version: Version) -> Result<bool, Error> {
        let (time, key) = (self.time().started(), self.key(REMOVE, key)?);
        let removed = self.map.change_if((REMOVE, time), &key, version, Expiry::Keep, || Change::Remove).await?;
        Ok(removed.is_some())
    }

    /// Lets the entry of a key expire after this time from now, and returns true if the key is present. The value
    /// stays. The home does this in one request.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use std::time::Duration;
    /// const IDLE: Duration = Duration::from_secs(600);
    /// let sessions: ddss::Map<u64, u64> = client.map("sessions").allocate(1000)?;
    /// sessions.put_with(&4711, &1, ddss::EntryOptions::new().ttl(IDLE))?;
    /// assert!(sessions.touch(&4711, IDLE)?, "each request keeps the session for ten minutes more");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn touch(&self, key: &K::Input, ttl: Duration) -> Result<bool, Error> {
        self.map.touch_entry(self.time().started(), &self.key("touch", key)?, Expiry::after(ttl)).await
    }

    /// Counts the keys, within the timeout of one call. Other clients may change the map in the meantime.
    #[allow(clippy::len_without_is_empty, reason = "it is a call over the whole map")]
    pub async fn len(&self) -> Result<u64, Error> {
        self.map.count_keys().await
    }

    /// Lists the entries, in no order. The list is not a snapshot: a key that is put or removed in the meantime may be missing
    /// or not. Each part of the map has the timeout of one call.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let stock: ddss::Map<u64, u64> = client.map("stock").allocate(1000)?;
    /// stock.put(&4711, &12)?;
    /// for entry in stock.entries() {
    ///     let (item, count) = entry?;
    ///     println!("{count} of {item}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn entries(&self) -> List<(K::Output, V::Output)> {
        list_map(MapEntries::new(self.clone()))
    }

    /// Watches the keys whose bytes begin with these: first their present entries come, then each change. An empty prefix
    /// watches all keys. A prefix as long as the map's keys watches one key, and reads no other bucket.
    ///
    /// Values of a key that follow each other quickly may be merged. An entry that expires is reported when its bucket
    /// changes, at the latest when its home frees it. The watch holds the entries with the prefix in memory, to tell what has
    /// changed. The client does not poll.
    ///
    /// A change to bytes that are no key or value of the map's types is an error, and the watch goes on.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::{Map, MapEvent};
    /// let rooms: Map<[u8; 8], u64> = client.map("rooms").allocate(100)?;
    /// rooms.put(b"floor1/a", &20)?;
    /// let mut watch = rooms.watch(b"floor1/");
    /// assert_eq!(watch.next().transpose()?, Some(MapEvent::Put { key: *b"floor1/a", value: 20 }));
    /// rooms.put(b"floor2/a", &18)?;
    /// rooms.remove(b"floor1/a")?;
    /// assert_eq!(watch.next().transpose()?, Some(MapEvent::Removed { key: *b"floor1/a" }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(&self, prefix: &[u8]) -> Watch<MapEvent<K::Output, V::Output>> {
        watch_map(MapWatch::<K, V>::new(self.map.clone(), prefix))
    }
}
