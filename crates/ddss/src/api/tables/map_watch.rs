//! Watches of the keys of a map that begin with a prefix.
//!
//! The home tells which row of the table has changed, and the client reads the entries that the change may concern: those
//! that belong to that bucket, and those of other buckets that lie in it.

use crate::api::tables::bucket::Bucket;
use crate::api::tables::map_handle::{ByteMap, SharedMap, check_time};
use crate::api::tables::map_scan::Scan;
use crate::api::tables::table::Table;
use crate::async_client::AsyncSegment;
use crate::calls::calls;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use ddss_core::{ANY_ROW, Version};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use zerocopy::FromBytes;

/// Change of one key of a map.
///
/// ```
/// use ddss::{MapEvent, SharedMap};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let stock: SharedMap<[u8; 4], u64> = SharedMap::allocate(&client, "stock", 100)?;
/// let mut watch = stock.watch_prefix(b"nut");
/// stock.insert(b"nut7", &12)?;
/// assert_eq!(watch.next_event()?, MapEvent { key: *b"nut7", value: Some(12) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapEvent<K, V> {
    /// The key.
    pub key: K,
    /// Its present value; `None` if the key was removed.
    pub value: Option<V>,
}

/// A watch of the keys that begin with a prefix: [`SharedMap::watch_prefix`] and [`ByteMap::watch_prefix`]. `S` is
/// [`Segment`] or [`AsyncSegment`](crate::AsyncSegment).
///
/// It holds the entries with the prefix in memory, to tell what has changed. The client does not poll.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let stock: ddss::SharedMap<[u8; 4], u64> = ddss::SharedMap::allocate(&client, "stock", 100)?;
/// stock.insert(b"nut7", &12)?;
/// let mut watch = stock.watch_prefix(b"nut");
/// assert_eq!(watch.next_event()?.value, Some(12), "first the entries that are there");
/// stock.remove(b"nut7")?;
/// assert_eq!(watch.next_event()?.value, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a watch does nothing until its next event is awaited"]
pub struct PrefixWatch<K, V, S = Segment> {
    map: ByteMap<S>,
    prefix: Vec<u8>,
    read_key: fn(&[u8]) -> Option<K>,
    read_value: fn(&[u8]) -> Option<V>,
    /// Number of the newest change of a row whose events are known.
    seen: Version,
    pass: Option<FirstPass>,
    entries: KnownEntries,
    events: VecDeque<Event>,
}

/// Pass over the whole map, at the beginning and after missed changes.
#[derive(Debug)]
struct FirstPass {
    /// Number of the newest change before it.
    number: Version,
    scan: Scan,
    /// Place of the next bucket to report.
    next: u64,
}

/// Key, and its present value.
type Event = (Vec<u8>, Option<Vec<u8>>);

/// Entry with the prefix: its value, and the bucket that it lies in.
type Entry = (Vec<u8>, u64);

/// Entries by key.
type Entries = HashMap<Vec<u8>, Entry>;

/// Entries with the prefix that the watcher has seen.
#[derive(Debug, Default)]
struct KnownEntries {
    /// By the bucket to which they belong.
    by_home: BTreeMap<u64, Entries>,
    /// Buckets with an entry of another bucket, and that bucket.
    elsewhere: BTreeSet<(u64, u64)>,
}

impl KnownEntries {
    /// Replaces the entries of a bucket, and returns what has changed.
    fn replace(&mut self, home: u64, found: Entries) -> Vec<Event> {
        let old = self.by_home.remove(&home).unwrap_or_default();
        for (_, place) in old.values() {
            self.elsewhere.remove(&(*place, home));
        }
        let mut events: Vec<Event> =
            old.keys().filter(|&key| !found.contains_key(key)).map(|key| (key.clone(), None)).collect();
        for (key, (value, place)) in &found {
            if old.get(key).is_none_or(|(known, _)| known != value) {
                events.push((key.clone(), Some(value.clone())));
            }
            if *place != home {
                self.elsewhere.insert((*place, home));
            }
        }
        if !found.is_empty() {
            self.by_home.insert(home, found);
        }
        events
    }

    /// Returns the buckets of which entries lie in that bucket.
    fn homes_in(&self, bucket: u64) -> impl Iterator<Item = u64> + '_ {
        self.elsewhere.range((bucket, 0)..=(bucket, u64::MAX)).map(|&(_, home)| home)
    }
}

impl<K, V, S> PrefixWatch<K, V, S> {
    fn new(
        map: ByteMap<S>,
        prefix: &[u8],
        read_key: fn(&[u8]) -> Option<K>,
        read_value: fn(&[u8]) -> Option<V>,
    ) -> Self {
        let (prefix, seen) = (prefix.to_vec(), Version(0));
        let (entries, events) = (KnownEntries::default(), VecDeque::new());
        Self { map, prefix, read_key, read_value, seen, pass: None, entries, events }
    }

    fn decode(&self, (key, value): Event) -> Option<MapEvent<K, V>> {
        let key = (self.read_key)(&key)?;
        let value = match value {
            Some(bytes) => Some((self.read_value)(&bytes)?),
            None => None,
        };
        Some(MapEvent { key, value })
    }
}

impl<S: Clone> ByteMap<S> {
    /// Watches the keys that begin with these bytes: [`SharedMap::watch_prefix`].
    pub fn watch_prefix(&self, prefix: &[u8]) -> PrefixWatch<Vec<u8>, Vec<u8>, S> {
        let read = |bytes: &[u8]| Some(bytes.to_vec());
        PrefixWatch::new(self.clone(), prefix, read, read)
    }
}

impl<K: FromBytes, V: FromBytes, S: Clone> SharedMap<K, V, S> {
    /// Watches the keys whose bytes begin with these: first their present entries come, then each change. An empty prefix
    /// watches all keys.
    ///
    /// Values of a key that follow each other quickly may be merged. An entry that expires is reported when its bucket
    /// changes for another reason.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// use ddss::{MapEvent, SharedMap};
    /// let rooms: SharedMap<[u8; 8], u64> = SharedMap::allocate(&client, "rooms", 100)?;
    /// rooms.insert(b"floor1/a", &20)?;
    /// let mut watch = rooms.watch_prefix(b"floor1/");
    /// assert_eq!(watch.next_event()?, MapEvent { key: *b"floor1/a", value: Some(20) });
    /// rooms.insert(b"floor2/a", &18)?;
    /// rooms.remove(b"floor1/a")?;
    /// assert_eq!(watch.next_event()?, MapEvent { key: *b"floor1/a", value: None });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch_prefix(&self, prefix: &[u8]) -> PrefixWatch<K, V, S> {
        let read_key = |bytes: &[u8]| K::read_from_bytes(bytes).ok();
        let read_value = |bytes: &[u8]| V::read_from_bytes(bytes).ok();
        PrefixWatch::new(self.map.clone(), prefix, read_key, read_value)
    }
}

calls! {
    impl Table, Table<AsyncSegment> {
        /// Waits for the change of any row after the change of that number. Returns its number and its row; no row if
        /// changes were missed.
        async fn wait_for_any_row(&self, time: Deadline, after: Version) -> Result<(Version, Option<u64>), Error> {
            let stamp = wait!(self.segment().wait_at(time, ANY_ROW, after))?;
            Ok((stamp.version, stamp.timestamp.0.checked_sub(1)))
        }
    }
}

calls! {
    impl ByteMap, ByteMap<AsyncSegment> {
        /// Returns the entries of a bucket whose keys begin with the prefix.
        async fn entries_with(&self, time: Deadline, bucket: u64, prefix: &[u8]) -> Result<Entries, Error> {
            let name = self.table.segment().name();
            'again: loop {
                check_time("watch", name, time)?;
                let Some((home, places)) = wait!(self.live_places(time, bucket))? else { continue };
                let mut entries = HashMap::new();
                for place in places {
                    let image = place.image.as_ref().unwrap_or(&home);
                    if !image.key(place.slot).starts_with(prefix) {
                        continue;
                    }
                    let value = wait!(self.value_of(time, place.bucket, image, place.slot))?;
                    let Some(value) = value else { continue 'again };
                    entries.insert(image.key(place.slot).to_vec(), (value, place.bucket));
                }
                return Ok(entries);
            }
        }

        /// Returns the entries with the prefix of the bucket at a place of a window. A bucket with values that are not in its copy
        /// is read by itself.
        async fn entries_at(&self, time: Deadline, scan: &Scan, place: u64, prefix: &[u8]) -> Result<Entries, Error> {
            let has_prefix = |(_, image, slot): &(u64, &Bucket, usize)| image.key(*slot).starts_with(prefix);
            let entry = |(bucket, image, slot): (u64, &Bucket, usize)| {
                Some((image.key(slot).to_vec(), (image.value(slot)?.to_vec(), bucket)))
            };
            match self.entries_of(scan, place).filter(has_prefix).map(entry).collect() {
                Some(found) => Ok(found),
                None => wait!(self.entries_with(time, scan.bucket(place), prefix)),
            }
        }

        /// Returns the buckets to which the entries in one bucket belong.
        async fn homes_of_entries_in(&self, time: Deadline, bucket: u64) -> Result<BTreeSet<u64>, Error> {
            let image = wait!(self.read_bucket(time, bucket))?;
            Ok(image.used_slots().map(|(slot, _)| self.hash(image.key(slot)).bucket).collect())
        }
    }
}

calls! {
    impl {K, V} PrefixWatch<K, V>, PrefixWatch<K, V, AsyncSegment> {
        /// Waits for the next change of a key with the prefix. At the deadline of one call it fails with
        /// [`Failure::TimedOut`](crate::Failure::TimedOut), and may be called again: no change is lost by that.
        pub async fn next_event(&mut self) -> Result<MapEvent<K, V>, Error> {
            let time = self.map.table.segment().time().started();
            loop {
                while let Some(event) = self.events.pop_front() {
                    if let Some(event) = self.decode(event) {
                        return Ok(event);
                    }
                }
                if let Some(FirstPass { number, scan, next }) = &mut self.pass {
                    // The next call goes on with the bucket where this one fails.
                    if scan.places().contains(next) {
                        let found = wait!(self.map.entries_at(time, scan, *next, &self.prefix))?;
                        self.events.extend(self.entries.replace(scan.bucket(*next), found));
                        *next += 1;
                    } else if wait!(self.map.advance("watch", time, scan))? {
                        *next = scan.places().start;
                    } else {
                        (self.seen, self.pass) = (*number, None);
                    }
                    continue;
                }
                let (number, row) = wait!(self.map.table.wait_for_any_row(time, self.seen))?;
                let mut homes = BTreeSet::new();
                match row.map(|row| row.checked_sub(1)) {
                    // Row 0 describes the map.
                    Some(None) => {}
                    Some(Some(bucket)) => {
                        homes = wait!(self.map.homes_of_entries_in(time, bucket))?;
                        homes.extend(self.entries.homes_in(bucket));
                        homes.insert(bucket);
                    }
                    None => {
                        self.pass = Some(FirstPass { number, scan: Scan::new(&self.map, 0..u64::MAX), next: 0 });
                        continue;
                    }
                }
                for home in homes {
                    let found = wait!(self.map.entries_with(time, home, &self.prefix))?;
                    self.events.extend(self.entries.replace(home, found));
                }
                // A change that was not read to its end is read again by the next call.
                self.seen = number;
            }
        }
    }
}
