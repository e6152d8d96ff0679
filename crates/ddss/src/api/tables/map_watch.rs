//! Watches of the keys of a map that begin with a prefix.
//!
//! The home tells which row of the table has changed, and the client reads the entries that the change may concern: those
//! that belong to that bucket, and those of other buckets that lie in it.

use super::map_handle::ByteMap;
use super::{only_aio, twin};
use crate::deadline::Deadline;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::map::entry::{EntryPlace, check_time, now_ms};
use crate::map::known_entries::{Entries, Event, FirstPass, KnownEntries, MapEvent};
use crate::map::scan::Scan;
use crate::map::shape::decoded_value;
use ddss_core::{Failure, Version};
use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;
use std::time::Duration;

/// A watch of the keys of a map that begin with a prefix.
pub(crate) struct MapWatch<K: ?Sized, V: ?Sized> {
    map: ByteMap,
    prefix: Vec<u8>,
    changes: Changes,
    events: VecDeque<Event>,
    kind: PhantomData<fn(&K, &V)>,
}

/// How a watch finds changes.
enum Changes {
    /// Of one key: its value is known.
    Key(Option<Vec<u8>>),
    /// Of a prefix: entries and the number of the newest change of a row are known.
    Prefix { seen: Version, pass: Option<FirstPass>, entries: KnownEntries },
}

impl<K: Encoding + ?Sized, V: Encoding + ?Sized> MapWatch<K, V> {
    pub(super) fn new(map: ByteMap, prefix: &[u8]) -> Self {
        let changes = if prefix.len() == map.layout.key_bytes {
            Changes::Key(None)
        } else {
            Changes::Prefix { seen: Version(0), pass: None, entries: KnownEntries::default() }
        };
        Self { map, prefix: prefix.to_vec(), changes, events: VecDeque::new(), kind: PhantomData }
    }

    /// Returns the deadline of a step.
    pub(crate) fn time(&self) -> Deadline {
        self.map.table.segment().time()
    }

    fn decode(&self, (key, value): Event) -> Result<MapEvent<K::Output, V::Output>, Error> {
        let name = self.map.table.segment().name();
        let key = decoded_value::<K>(name, &key)?;
        Ok(match value {
            Some(bytes) => MapEvent::Put { key, value: decoded_value::<V>(name, &bytes)? },
            None => MapEvent::Removed { key },
        })
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
            let mut entries = Entries::new();
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
    pub(super) async fn entries_at(
        &self,
        time: Deadline,
        scan: &Scan,
        place: u64,
        prefix: &[u8],
    ) -> Result<Entries, Error> {
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
impl ByteMap {
    /// Waits until the value of a key differs from `last` (`None`: from absent), and returns the present value.
    async fn wait_for_change(&self, time: Deadline, key: &[u8], last: Option<&[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let (name, hash) = (self.table.segment().name(), self.hash(key));
        loop {
            check_time("watch", name, time)?;
            let (home, place) = self.find(time, hash, key).await?;
            // A key that is absent appears by a change of its own bucket, and an entry changes in the bucket that holds it.
            let (mut bucket, mut version, mut expiry_ms, mut now) = (hash.bucket, home.version, 0, None);
            if let Some(EntryPlace { bucket: at, slot, image }) = &place {
                let image = image.as_ref().unwrap_or(&home);
                // A put of a key that has expired takes its old place.
                (bucket, version) = (*at, image.version);
                if let Some(word) = image.word(*slot).filter(|word| !word.is_expired(now_ms())) {
                    now = self.value_of(time, *at, image, *slot).await?;
                    if now.is_none() {
                        continue;
                    }
                    expiry_ms = word.expiry_ms();
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
}

#[only_aio]
impl<K: ?Sized, V: ?Sized> MapWatch<K, V> {
    pub(crate) fn segment(&self) -> &crate::aio::Segment {
        self.map.table.segment()
    }
}

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> MapWatch<K, V> {
    /// Waits for the next change of a key with the prefix. A call that fails loses no change, and a change to other bytes
    /// than those of the types is an error of its own.
    pub(crate) async fn next_event(&mut self, time: Deadline) -> Result<MapEvent<K::Output, V::Output>, Error> {
        let time = time.started();
        loop {
            if let Some(event) = self.events.pop_front() {
                return self.decode(event);
            }
            self.read_changes(time).await?;
        }
    }

    /// Waits for changes, and reads some of them.
    async fn read_changes(&mut self, time: Deadline) -> Result<(), Error> {
        let Self { map, prefix, changes, events, .. } = self;
        let (seen, pass, entries) = match changes {
            Changes::Key(last) => {
                let now = map.wait_for_change(time, prefix, last.as_deref()).await?;
                last.clone_from(&now);
                events.push_back((prefix.clone(), now));
                return Ok(());
            }
            Changes::Prefix { seen, pass, entries } => (seen, pass, entries),
        };
        if let Some(FirstPass { number, scan, next }) = pass {
            // The next call goes on with the bucket where this one fails.
            if scan.places().contains(next) {
                let found = map.entries_at(time, scan, *next, prefix).await?;
                events.extend(entries.replace(scan.bucket(*next), found));
                *next += 1;
            } else if map.advance("watch", time, scan).await? {
                *next = scan.places().start;
            } else {
                (*seen, *pass) = (*number, None);
            }
            return Ok(());
        }
        let (number, row) = map.table.segment().row_change_after(time, *seen).await?;
        let mut homes = BTreeSet::new();
        match row.map(|row| row.checked_sub(1)) {
            // Row 0 describes the map.
            Some(None) => {}
            Some(Some(bucket)) => {
                homes = map.homes_of_entries_in(time, bucket).await?;
                homes.extend(entries.homes_in(bucket));
                homes.insert(bucket);
            }
            None => {
                let scan = Scan::new(map.buckets(), map.link_offsets.clone(), 0..u64::MAX);
                *pass = Some(FirstPass { number, scan, next: 0 });
                return Ok(());
            }
        }
        for home in homes {
            let found = map.entries_with(time, home, prefix).await?;
            events.extend(entries.replace(home, found));
        }
        // A change that was not read to its end is read again by the next call.
        *seen = number;
        Ok(())
    }
}
