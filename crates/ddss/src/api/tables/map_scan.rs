//! Calls over all buckets of a map: its number of keys, its entries, and the first events of a watch.
//!
//! They read a window of buckets at a time, together with the buckets around it that entries of the window may lie in. The
//! reads of a window are in flight at the same time, and all windows of a call share its deadline.

use super::map_handle::{ByteMap, Map};
use super::twin;
use crate::deadline::Deadline;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::map::entry::{Linked, check_time, now_ms};
use crate::map::scan::Scan;
use crate::map::shape::decoded;
use crate::value::Stamp;
use ddss_core::{BucketLink, Failure, RowList};
use std::any::type_name;
use std::collections::VecDeque;
use zerocopy::IntoBytes;

impl ByteMap {
    /// Returns the error of a call of a group. At the deadline, calls that found no room name that as their reason.
    fn at_deadline(&self, time: Deadline, error: Error) -> Error {
        if time.remaining().is_zero() { error.at_deadline() } else { error }
    }

    /// Returns the bucket of the key in a used slot, and whether the entry lives.
    fn owner(&self, image: &Bucket, slot: usize, now_ms: u64) -> Option<(u64, bool)> {
        let word = image.word(slot)?;
        Some((self.hash(image.key(slot)).bucket, !word.is_expired(now_ms)))
    }

    /// Returns the live entries that belong to the bucket at a place of the window: the bucket that each lies in, its copy,
    /// and the slot.
    pub(crate) fn entries_of<'a>(
        &'a self,
        scan: &'a Scan,
        place: u64,
    ) -> impl Iterator<Item = (u64, &'a Bucket, usize)> + 'a {
        let (home, now_ms) = (scan.image(place), now_ms());
        let own = home.used_slots().map(move |(slot, _)| (place, slot));
        let linked = home.links().map(move |(_, link)| (scan.target(place, &link), link.slot));
        own.chain(linked).filter_map(move |(at, slot)| {
            let image = scan.image(at);
            let is_own = self.owner(image, slot, now_ms)? == (scan.bucket(place), true);
            is_own.then_some((scan.bucket(at), image, slot))
        })
    }
}

#[twin]
impl ByteMap {
    /// Reads buckets at the same time; those in this node's memory one by one.
    pub(crate) async fn read_together(&self, time: Deadline, buckets: &[u64]) -> Result<Vec<Bucket>, Error> {
        let segment = self.table.segment();
        let (location, length) = (segment.location(), self.layout.read_bytes());
        if location.can_read_locally() {
            let mut images = Vec::with_capacity(buckets.len());
            for &bucket in buckets {
                images.push(self.read_bucket(time, bucket).await?);
            }
            return Ok(images);
        }
        let mut images = Vec::with_capacity(buckets.len());
        for buckets in buckets.chunks(RowList::rows_max(length)) {
            if let Some(records) = self.read_rows(time, buckets).await?
                && records.iter().all(Option::is_some)
            {
                images.extend(records.into_iter().flatten());
                continue;
            }
            let plan = |&bucket| (segment.client().shard(), location.plan_get(self.place(bucket, 0), length, None));
            let (results, error) = segment.client().run_group(time, buckets.iter().map(plan).collect()).await;
            if let Some(error) = error {
                return Err(error);
            }
            for result in results {
                let (completion, bytes) = result.map_err(|error| self.at_deadline(time, error))?;
                images.push(Bucket::new(self.layout, bytes, Stamp::of(&completion).version));
            }
        }
        Ok(images)
    }

    /// Reads buckets by one request. `None` if the home, its model or the fabric need a request for each of them; a bucket
    /// is missing if a put had not finished.
    async fn read_rows(&self, time: Deadline, buckets: &[u64]) -> Result<Option<Vec<Option<Bucket>>>, Error> {
        let (segment, length) = (self.table.segment(), self.layout.read_bytes());
        let Some(list) = RowList::new(buckets.len(), length) else { return Ok(None) };
        let numbers: Vec<u8> = buckets.iter().flat_map(|bucket| (bucket + 1).to_le_bytes()).collect();
        let mut records = Vec::with_capacity(buckets.len());
        let call = segment.location().plan_get_rows(list, &numbers).returns(|_, reply| {
            for at in (0..list.rows()).map(|index| list.record_at(index)) {
                let (mut words, mut bytes) = ([0; 2], vec![0; length]);
                reply.read(at, words.as_mut_bytes());
                reply.read(at + words.as_bytes().len(), &mut bytes);
                let version = RowList::version_of(words.map(u64::from_le));
                records.push(version.map(|version| Bucket::new(self.layout, bytes, version)));
            }
        });
        match segment.client().execute(time, call).await {
            Ok(()) => Ok(Some(records)),
            Err(error) if error.has_failed_with(Failure::Unsupported) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Searches for keys behind the links of their buckets, whose copies do not hold them. One request reads the linked
    /// buckets, and each key's own bucket behind those: home and fabric keep this order.
    pub(crate) async fn find_linked(&self, time: Deadline, keys: &[(&[u8], &Bucket)]) -> Result<Vec<Linked>, Error> {
        let mut buckets = Vec::new();
        let mut searches = Vec::with_capacity(keys.len());
        for (key, home) in keys {
            let hash = self.hash(key);
            let links: Vec<BucketLink> =
                home.links().map(|(_, link)| link).filter(|link| link.may_have(hash.tag)).collect();
            let (begin, rows) = (buckets.len(), links.len() + 1);
            if begin + rows > RowList::rows_max(self.layout.read_bytes()) {
                break;
            }
            buckets.extend(links.iter().map(|link| self.stepped(hash.bucket, link.step)));
            buckets.push(hash.bucket);
            searches.push((begin, links));
        }
        let images = if buckets.is_empty() { None } else { self.read_rows(time, &buckets).await? };
        let images = images.unwrap_or_default();
        let search = |(index, (key, before)): (usize, &(&[u8], &Bucket))| {
            let (begin, links) = searches.get(index)?;
            let home = images.get(begin + links.len())?.as_ref()?;
            let tag = self.hash(key).tag;
            if before.slot_of(tag, key).is_some() {
                // Its bucket has it, and the copy lacks the value.
                return None;
            }
            for (link, image) in links.iter().zip(&images[*begin..]) {
                let image = image.as_ref()?;
                // The slot may have changed hands meanwhile, unless the link is still there: see `find`.
                if image.holds(link.slot, tag, key) {
                    let (bucket, at) = (self.hash(key).bucket, self.stepped(self.hash(key).bucket, link.step));
                    let version = self.entry_version(bucket, at, image.version);
                    return home.has_link(link.step, link.slot).then(|| Linked::At(image.clone(), link.slot, version));
                }
            }
            (home.version == before.version).then_some(Linked::Absent)
        };
        Ok(keys.iter().enumerate().map(|key| search(key).unwrap_or(Linked::Unknown)).collect())
    }

    /// Moves to the next window; false at the end. A call that failed may be repeated.
    pub(crate) async fn advance(&self, action: &'static str, time: Deadline, scan: &mut Scan) -> Result<bool, Error> {
        let (window, missing) = scan.next();
        if window.is_empty() {
            return Ok(false);
        }
        check_time(action, self.table.segment().name(), time)?;
        let images = self.read_together(time, &missing).await?;
        scan.accept(window, images);
        Ok(true)
    }

    /// Counts the keys.
    pub(crate) async fn count_keys(&self) -> Result<u64, Error> {
        let (time, mut scan) =
            (self.table.segment().time().started(), Scan::new(self.buckets(), self.link_offsets.clone(), 0..u64::MAX));
        let mut keys = 0;
        while self.advance("count the keys of", time, &mut scan).await? {
            keys += scan.places().map(|place| self.entries_of(&scan, place).count() as u64).sum::<u64>();
        }
        Ok(keys)
    }
}

/// Key and value.
type Decoded<K, V> = (<K as Encoding>::Output, <V as Encoding>::Output);

/// The entries of a map, bucket by bucket.
pub(crate) struct MapEntries<K: ?Sized, V: ?Sized> {
    map: Map<K, V>,
    scan: Scan,
    /// Place of the next bucket.
    next: u64,
    ready: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Set at the end, and after an error.
    is_ended: bool,
}

#[twin]
impl<K: Encoding + ?Sized, V: Encoding + ?Sized> MapEntries<K, V> {
    pub(super) fn new(map: Map<K, V>) -> Self {
        let scan = Scan::new(map.map.buckets(), map.map.link_offsets.clone(), 0..u64::MAX);
        Self { map, scan, next: 0, ready: VecDeque::new(), is_ended: false }
    }

    /// Returns the next entry; `None` at the end.
    pub(crate) async fn next_entry(&mut self) -> Option<Result<Decoded<K, V>, Error>> {
        // A large map that is nearly empty has many buckets before the next entry.
        let time = self.map.segment().time().started();
        loop {
            if let Some((key, value)) = self.ready.pop_front() {
                return Some(self.decode(&key, &value));
            }
            if self.is_ended {
                return None;
            }
            match self.read_bucket(time).await {
                Ok(is_read) => self.is_ended = !is_read,
                Err(error) => {
                    self.is_ended = true;
                    return Some(Err(error));
                }
            }
        }
    }

    fn decode(&self, key: &[u8], value: &[u8]) -> Result<Decoded<K, V>, Error> {
        let name = self.map.segment().name();
        let key = decoded::<K>(key).ok_or_else(|| Error::wrong_shape("list", name, "other bytes", type_name::<K>()))?;
        Ok((key, self.map.decode(value)?))
    }

    /// Reads the next bucket, or the next window; false at the end.
    async fn read_bucket(&mut self, time: Deadline) -> Result<bool, Error> {
        let map = &self.map.map;
        if self.scan.places().contains(&self.next) {
            let found = map.entries_at(time, &self.scan, self.next, &[]).await?;
            self.ready.extend(found.into_iter().map(|(key, (value, _))| (key, value)));
            self.next += 1;
            return Ok(true);
        }
        let is_read = map.advance("list", time, &mut self.scan).await?;
        self.next = self.scan.places().start;
        Ok(is_read)
    }
}
