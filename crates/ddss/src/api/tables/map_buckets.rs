//! Searches and conditional puts of a map, bucket by bucket.

use super::map_handle::ByteMap;
use super::twin;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::map::entry::{
    Attempt, Change, ChangeResult, Entry, EntryPlace, Expiry, KeyHash, Repeated, attempt, check_time, now_ms,
};
use ddss_core::{BucketLayout, BucketLink, SlotWord, Version};
use std::time::Duration;

#[twin]
impl ByteMap {
    pub(crate) async fn read_bucket(&self, time: Deadline, bucket: u64) -> Result<Bucket, Error> {
        let mut bytes = vec![0; self.layout.read_bytes()];
        let stamp = self.table.segment().get_by(time, self.place(bucket, 0), &mut bytes).await?;
        Ok(Bucket::new(self.layout, bytes, stamp.version))
    }

    /// Reads buckets at the same time. `None` stands for buckets that are read in place, one by one.
    pub(crate) async fn read_buckets(&self, time: Deadline, buckets: &[u64]) -> Result<Vec<Option<Bucket>>, Error> {
        if self.table.segment().location().can_read_locally() {
            return Ok(buckets.iter().map(|_| None).collect());
        }
        Ok(self.read_together(time, buckets).await?.into_iter().map(Some).collect())
    }

    /// Reads the value of a slot; `None` if the bucket has changed since. Values are bytes here: several copies of a
    /// large one would not fit on the stack of a thread.
    pub(crate) async fn value_of(
        &self,
        time: Deadline,
        bucket: u64,
        image: &Bucket,
        slot: usize,
    ) -> Result<Option<Vec<u8>>, Error> {
        if let Some(bytes) = image.value(slot) {
            return Ok(Some(bytes.to_vec()));
        }
        let (mut value, at) = (vec![0; self.layout.value_bytes], self.place(bucket, self.layout.value_at(slot)));
        let stamp = self.table.segment().get_by(time, at, &mut value).await?;
        Ok((stamp.version == image.version).then_some(value))
    }

    /// Finds a key, and returns the bucket of the key with it. An expired entry is found.
    pub(crate) async fn find(
        &self,
        time: Deadline,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<(Bucket, Option<EntryPlace>), Error> {
        let KeyHash { bucket, tag } = hash;
        let mut time = time;
        'again: loop {
            let home = self.read_bucket(time, bucket).await?;
            if let Some(slot) = home.slot_of(tag, key) {
                return Ok((home, Some(EntryPlace { bucket, slot, image: None })));
            }
            for (_, link) in home.links().filter(|(_, link)| link.may_have(tag)) {
                let at = self.stepped(bucket, link.step);
                let image = self.read_bucket(time, at).await?;
                if !image.holds(link.slot, tag, key) {
                    continue;
                }
                // The slot may have changed hands between the two reads, to an entry that is not linked yet. A link
                // that is still there is of this entry: an insert takes no slot that its bucket has a link to.
                let home = self.read_bucket(time, bucket).await?;
                if !home.has_link(link.step, link.slot) {
                    time = time.started();
                    check_time("search", self.table.segment().name(), time)?;
                    continue 'again;
                }
                return Ok((home, Some(EntryPlace { bucket: at, slot: link.slot, image: Some(image) })));
            }
            return Ok((home, None));
        }
    }

    pub(crate) async fn put_bucket(
        &self,
        time: Deadline,
        bucket: u64,
        version: Version,
        parts: &[(usize, &[u8])],
    ) -> Result<Attempt, Error> {
        let segment = self.table.segment().with_timeout(time.remaining().max(Duration::from_micros(1)));
        let parts: Vec<(u64, &[u8])> = parts.iter().map(|&(at, bytes)| (self.place(bucket, at), bytes)).collect();
        attempt(match parts[..] {
            [(at, bytes)] => segment.put_if(version, at, bytes).await,
            _ => segment.put_many_with(&parts, segment.location().put_conditions(Some(version))).await,
        })
    }

    /// Makes what `decide` makes of the present entry.
    pub(crate) async fn change(
        &self,
        (action, time): (&'static str, Deadline),
        key: &[u8],
        expiry: Expiry,
        decide: impl FnMut(Option<Entry<&[u8]>>) -> Change,
    ) -> Result<ChangeResult, Error> {
        let name = self.table.segment().name();
        let (mut decide, mut is_cleaned, mut repeated) = (decide, false, Repeated::default());
        let hash = self.hash(key);
        loop {
            check_time(action, name, time)?;
            let (home, place) = self.find(time, hash, key).await?;
            let mut old = None;
            if let Some(EntryPlace { bucket, slot, image }) = &place {
                let image = image.as_ref().unwrap_or(&home);
                if let Some(word) = image.word(*slot).filter(|word| !word.is_expired(now_ms())) {
                    let Some(value) = self.value_of(time, *bucket, image, *slot).await? else { continue };
                    let version = self.entry_version(hash.bucket, *bucket, image.version);
                    old = Some((word, Entry { value, version, expiry_ms: word.expiry_ms() }));
                }
            }
            let was_present = old.is_some();
            let (new, is_conditional) = match decide(old.as_ref().map(|(_, old)| old.with_value(&old.value[..]))) {
                Change::Put(new) => (new, false),
                Change::PutIfUnchanged(new) => (new, true),
                Change::Keep => return Ok(ChangeResult { was_present, entry: old.map(|(_, old)| old) }),
                Change::Remove => match place.filter(|_| was_present) {
                    Some(place) if !self.free_place(time, hash.bucket, &home, &place).await? => continue,
                    _ => return Ok(ChangeResult { was_present, entry: None }),
                },
            };
            let kept_ms = old.as_ref().map_or(0, |(word, _)| word.expiry_ms());
            let expiry_ms = if let Expiry::Set(at) = expiry { at } else { kept_ms };
            let word = SlotWord::new(hash.tag, expiry_ms);
            if let Some((old_word, old)) = old.as_ref().filter(|_| !is_conditional) {
                if (*old_word, &old.value) == (word, &new) {
                    return Ok(ChangeResult::to(was_present, old.with_value(new)));
                }
                if place.as_ref().is_some_and(|place| place.image.is_none()) {
                    let (entry, content) = ((*old_word, &old.value[..]), (word.expiry_ms(), &new[..]));
                    match self.replace_entry((action, time), (hash, key), entry, content).await? {
                        Some(version) => {
                            return Ok(ChangeResult::to(was_present, Entry { value: new, version, expiry_ms }));
                        }
                        None => {
                            // The clocks of the two may differ about an expiry: then only time helps.
                            self.pause_after(&mut repeated, time).await;
                            continue;
                        }
                    }
                }
            }
            match self.write(time, (hash, key), (&home, place), word, &new).await? {
                Attempt::Done(version) => {
                    return Ok(ChangeResult::to(was_present, Entry { value: new, version, expiry_ms }));
                }
                Attempt::Changed => {}
                Attempt::Full if is_cleaned => return Err(self.full(name)),
                Attempt::Full => {
                    is_cleaned = true;
                    // The own bucket comes last: its links to entries that were freed are removed then.
                    for step in (0..=self.link_offsets.len()).rev() {
                        self.sweep(time, self.stepped(hash.bucket, step), 1).await?;
                    }
                }
            }
        }
    }

    /// Returns the end of an attempt with the version of the entry, for that of its bucket.
    fn of_entry(&self, home: u64, at: u64, attempt: Attempt) -> Attempt {
        match attempt {
            Attempt::Done(version) => Attempt::Done(self.entry_version(home, at, version)),
            other => other,
        }
    }

    /// Waits a moment before a change is tried again, if that has happened often.
    pub(super) async fn pause_after(&self, repeated: &mut Repeated, time: Deadline) {
        if let Some(pause) = repeated.next() {
            self.table.segment().client().pause(pause.min(time.remaining())).await;
        }
    }

    /// Frees the slot of an entry of a bucket. Returns false if it has changed.
    async fn free_place(&self, time: Deadline, bucket: u64, home: &Bucket, place: &EntryPlace) -> Result<bool, Error> {
        let image = place.image.as_ref().unwrap_or(home);
        let freed = self.free_slot(time, place.bucket, image, place.slot).await?;
        if place.image.is_some() && matches!(freed, Attempt::Done(_)) {
            // A link to a free slot does no harm. If this put fails, a later call removes it.
            self.remove_links(time, bucket).await.ok();
        }
        Ok(matches!(freed, Attempt::Done(_)))
    }

    /// Writes an entry at its place, in a free slot of its bucket, or elsewhere.
    pub(crate) async fn write(
        &self,
        time: Deadline,
        (hash, key): (KeyHash, &[u8]),
        (home, place): (&Bucket, Option<EntryPlace>),
        word: SlotWord,
        value: &[u8],
    ) -> Result<Attempt, Error> {
        let (bucket, version, slot) = match &place {
            Some(EntryPlace { bucket, slot, image }) => (*bucket, image.as_ref().unwrap_or(home).version, *slot),
            None => {
                let is_reusable = |&(slot, word): &(usize, SlotWord)| {
                    word.is_expired(now_ms()) && self.hash(home.key(slot)).bucket == hash.bucket
                };
                let free = home.free_slots().next();
                match free.or_else(|| home.used_slots().find(is_reusable).map(|(slot, _)| slot)) {
                    Some(slot) => (hash.bucket, home.version, slot),
                    None => return self.write_elsewhere(time, (hash, key), home, word, value).await,
                }
            }
        };
        let at = self.layout.head_at(slot);
        let parts = [(at, &word.bytes()[..]), (at + 8, key), (self.layout.value_at(slot), value)];
        let written = self.put_bucket(time, bucket, version, &parts[..if value.is_empty() { 2 } else { 3 }]).await?;
        Ok(self.of_entry(hash.bucket, bucket, written))
    }

    /// Writes an entry into a later bucket, then the link to it.
    pub(crate) async fn write_elsewhere(
        &self,
        time: Deadline,
        (hash, key): (KeyHash, &[u8]),
        home: &Bucket,
        word: SlotWord,
        value: &[u8],
    ) -> Result<Attempt, Error> {
        let Some(index) = home.free_link() else { return Ok(Attempt::Full) };
        for step in 1..=self.link_offsets.len() {
            let bucket = self.stepped(hash.bucket, step);
            let image = self.read_bucket(time, bucket).await?;
            let Some(slot) = image.free_slots().find(|&slot| !home.has_link(step, slot)) else { continue };
            // From here on no other client can link that slot: either of the puts would fail.
            if self.read_bucket(time, hash.bucket).await?.version != home.version {
                return Ok(Attempt::Changed);
            }
            let at = self.layout.head_at(slot);
            let parts = [(at, &word.bytes()[..]), (at + 8, key), (self.layout.value_at(slot), value)];
            let parts = &parts[..if value.is_empty() { 2 } else { 3 }];
            let written = self.put_bucket(time, bucket, image.version, parts).await?;
            if let Attempt::Changed = written {
                return Ok(Attempt::Changed);
            }
            let link = BucketLink::new(hash.tag, slot, step).encode();
            let linked =
                self.put_bucket(time, hash.bucket, home.version, &[(self.layout.link_at(index), &link)]).await?;
            if let Attempt::Changed = linked {
                self.free_orphan(time, bucket, slot).await?;
                return Ok(linked);
            }
            return Ok(self.of_entry(hash.bucket, bucket, written));
        }
        Ok(Attempt::Full)
    }

    pub(crate) async fn free_slot(
        &self,
        time: Deadline,
        bucket: u64,
        image: &Bucket,
        slot: usize,
    ) -> Result<Attempt, Error> {
        self.put_bucket(time, bucket, image.version, &[(self.layout.head_at(slot), &[0; 8])]).await
    }

    /// Frees a slot whose entry belongs to another bucket, unless that bucket has a link to it.
    pub(crate) async fn free_orphan(&self, time: Deadline, bucket: u64, slot: usize) -> Result<bool, Error> {
        let image = self.read_bucket(time, bucket).await?;
        if image.word(slot).is_none() {
            return Ok(false);
        }
        let owner = self.hash(image.key(slot)).bucket;
        let home = self.read_bucket(time, owner).await?;
        let is_linked = |at: usize| self.stepped(owner, at) == bucket && home.has_link(at, slot);
        if owner == bucket || (1..=self.link_offsets.len()).any(is_linked) {
            return Ok(false);
        }
        // The client that wrote the entry may still live. This change makes the put of its link fail.
        let counter = home.counter().wrapping_add(1).to_le_bytes();
        match self.put_bucket(time, owner, home.version, &[(0, &counter)]).await? {
            Attempt::Done(_) => Ok(matches!(self.free_slot(time, bucket, &image, slot).await?, Attempt::Done(_))),
            _ => Ok(false),
        }
    }

    /// Removes the links of a bucket whose slots hold no entry of it, and frees slots of expired entries.
    pub(crate) async fn remove_links(&self, time: Deadline, bucket: u64) -> Result<(), Error> {
        let mut home = self.read_bucket(time, bucket).await?;
        for index in 0..BucketLayout::LINKS {
            let Some((_, link)) = home.links().find(|(at, _)| *at == index) else { continue };
            let at = self.stepped(bucket, link.step);
            let image = self.read_bucket(time, at).await?;
            if let Some(word) = image.word(link.slot).filter(|_| self.hash(image.key(link.slot)).bucket == bucket) {
                if !word.is_expired(now_ms()) {
                    continue;
                }
                if let Attempt::Changed = self.free_slot(time, at, &image, link.slot).await? {
                    continue;
                }
            }
            self.put_bucket(time, bucket, home.version, &[(self.layout.link_at(index), &[0; BucketLink::BYTES])])
                .await?;
            home = self.read_bucket(time, bucket).await?;
        }
        Ok(())
    }

    /// Returns the places of the entries that belong to a bucket; `None` if the bucket changed meanwhile.
    pub(crate) async fn live_places(
        &self,
        time: Deadline,
        bucket: u64,
    ) -> Result<Option<(Bucket, Vec<EntryPlace>)>, Error> {
        let (home, now_ms) = (self.read_bucket(time, bucket).await?, now_ms());
        let is_own = |image: &Bucket, slot: usize| self.hash(image.key(slot)).bucket == bucket;
        let mut places = Vec::new();
        for (slot, word) in home.used_slots() {
            if is_own(&home, slot) && !word.is_expired(now_ms) {
                places.push(EntryPlace { bucket, slot, image: None });
            }
        }
        let own = places.len();
        for (_, link) in home.links() {
            let at = self.stepped(bucket, link.step);
            let image = self.read_bucket(time, at).await?;
            let is_live = image.word(link.slot).is_some_and(|word| !word.is_expired(now_ms));
            if is_live && is_own(&image, link.slot) {
                places.push(EntryPlace { bucket: at, slot: link.slot, image: Some(image) });
            }
        }
        let is_whole = places.len() == own || self.read_bucket(time, bucket).await?.version == home.version;
        Ok(is_whole.then_some((home, places)))
    }
}
