//! Watches of the keys of a map that begin with a prefix.
//!
//! The home tells which row of the table has changed, and the client reads the entries that the change may concern: those
//! that belong to that bucket, and those of other buckets that lie in it.

use super::map_handle::{ByteMap, SharedMap};
use super::table::Table;
use super::twin;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::map::entry::check_time;
use crate::map::known_entries::{Entries, Event, FirstPass, KnownEntries, MapEvent};
use crate::map::scan::Scan;
use ddss_core::{ANY_ROW, Version};
use std::collections::{BTreeSet, HashMap, VecDeque};
use zerocopy::FromBytes;

/// A watch of the keys that begin with a prefix: [`SharedMap::watch_prefix`] and [`ByteMap::watch_prefix`].
///
/// It holds the entries with the prefix in memory, to tell what has changed. The client does not poll.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let stock: ddss::SharedMap<[u8; 4], u64> = ddss::SharedMap::allocate(&client, "stock", 100)?;
/// stock.insert(b"nut7", &12)?;
/// let mut watch = stock.watch_prefix(b"nut");
/// assert_eq!(watch.next_event()?.value, Some(12), "first the entries that are there");
/// stock.remove(b"nut7")?;
/// assert_eq!(watch.next_event()?.value, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
#[must_use = "a watch does nothing until its next event is awaited"]
pub struct PrefixWatch<K, V> {
    map: ByteMap,
    prefix: Vec<u8>,
    read_key: fn(&[u8]) -> Option<K>,
    read_value: fn(&[u8]) -> Option<V>,
    /// Number of the newest change of a row whose events are known.
    seen: Version,
    pass: Option<FirstPass>,
    entries: KnownEntries,
    events: VecDeque<Event>,
}

impl<K, V> PrefixWatch<K, V> {
    fn new(map: ByteMap, prefix: &[u8], read_key: fn(&[u8]) -> Option<K>, read_value: fn(&[u8]) -> Option<V>) -> Self {
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

#[twin]
impl ByteMap {
    /// Watches the keys that begin with these bytes: [`SharedMap::watch_prefix`].
    pub fn watch_prefix(&self, prefix: &[u8]) -> PrefixWatch<Vec<u8>, Vec<u8>> {
        let read = |bytes: &[u8]| Some(bytes.to_vec());
        PrefixWatch::new(self.clone(), prefix, read, read)
    }
}

#[twin]
impl<K: FromBytes, V: FromBytes> SharedMap<K, V> {
    /// Watches the keys whose bytes begin with these: first their present entries come, then each change. An empty prefix
    /// watches all keys.
    ///
    /// Values of a key that follow each other quickly may be merged. An entry that expires is reported when its bucket
    /// changes, at the latest when its home frees it.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
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
    pub fn watch_prefix(&self, prefix: &[u8]) -> PrefixWatch<K, V> {
        let read_key = |bytes: &[u8]| K::read_from_bytes(bytes).ok();
        let read_value = |bytes: &[u8]| V::read_from_bytes(bytes).ok();
        PrefixWatch::new(self.map.clone(), prefix, read_key, read_value)
    }
}

#[twin]
impl Table {
    /// Waits for the change of any row after the change of that number. Returns its number and its row; no row if
    /// changes were missed.
    async fn wait_for_any_row(&self, time: Deadline, after: Version) -> Result<(Version, Option<u64>), Error> {
        let stamp = self.segment().wait_at(time, ANY_ROW, after).await?;
        Ok((stamp.version, stamp.timestamp.0.checked_sub(1)))
    }
}

#[twin]
impl ByteMap {
    /// Returns the entries of a bucket whose keys begin with the prefix.
    async fn entries_with(&self, time: Deadline, bucket: u64, prefix: &[u8]) -> Result<Entries, Error> {
        let name = self.table.segment().name();
        'again: loop {
            check_time("watch", name, time)?;
            let Some((home, places)) = self.live_places(time, bucket).await? else { continue };
            let mut entries = HashMap::new();
            for place in places {
                let image = place.image.as_ref().unwrap_or(&home);
                if !image.key(place.slot).starts_with(prefix) {
                    continue;
                }
                let value = self.value_of(time, place.bucket, image, place.slot).await?;
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
            None => self.entries_with(time, scan.bucket(place), prefix).await,
        }
    }

    /// Returns the buckets to which the entries in one bucket belong.
    async fn homes_of_entries_in(&self, time: Deadline, bucket: u64) -> Result<BTreeSet<u64>, Error> {
        let image = self.read_bucket(time, bucket).await?;
        Ok(image.used_slots().map(|(slot, _)| self.hash(image.key(slot)).bucket).collect())
    }
}

#[twin]
impl<K, V> PrefixWatch<K, V> {
    /// Waits for the next change of a key with the prefix. At the deadline of one call it fails with
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut), and may be called again: no change is lost by that.
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
                    let found = self.map.entries_at(time, scan, *next, &self.prefix).await?;
                    self.events.extend(self.entries.replace(scan.bucket(*next), found));
                    *next += 1;
                } else if self.map.advance("watch", time, scan).await? {
                    *next = scan.places().start;
                } else {
                    (self.seen, self.pass) = (*number, None);
                }
                continue;
            }
            let (number, row) = self.map.table.wait_for_any_row(time, self.seen).await?;
            let mut homes = BTreeSet::new();
            match row.map(|row| row.checked_sub(1)) {
                // Row 0 describes the map.
                Some(None) => {}
                Some(Some(bucket)) => {
                    homes = self.map.homes_of_entries_in(time, bucket).await?;
                    homes.extend(self.entries.homes_in(bucket));
                    homes.insert(bucket);
                }
                None => {
                    self.pass = Some(FirstPass {
                        number,
                        scan: Scan::new(self.map.buckets(), self.map.link_offsets.clone(), 0..u64::MAX),
                        next: 0,
                    });
                    continue;
                }
            }
            for home in homes {
                let found = self.map.entries_with(time, home, &self.prefix).await?;
                self.events.extend(self.entries.replace(home, found));
            }
            // A change that was not read to its end is read again by the next call.
            self.seen = number;
        }
    }
}
