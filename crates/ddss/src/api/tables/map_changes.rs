//! Changes of a map that its home executes in one round trip.
//!
//! The home finds the entry in the bucket of its key. Where it may lie in another bucket, or finds no free slot, the home
//! does nothing and says so. Then the client goes bucket by bucket, as `map_buckets.rs` describes. A client
//! that replaces an entry names it by its digest, so changes of other keys of the bucket do not matter.

use super::map_handle::ByteMap;
use super::twin;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::reason::Reason;
use crate::location::entry_change::entry_changed;
use crate::map::entry::{Change, Entry, Expiry, KeyHash, PUT, REMOVE};
use crate::plan::{CallPlan, Outgoing};
use ddss_core::{BucketLayout, EntryChange, EntryChangeKind, EntryState, SlotWord, Version};

impl ByteMap {
    /// Plans a change of an entry by the home. The pieces are the slot's word, the key and the value.
    pub(super) fn plan_change<'a>(
        &'a self,
        action: &'static str,
        (kind, expected): (EntryChangeKind, u64),
        bucket: u64,
        pieces: &'a [&'a [u8]],
    ) -> CallPlan<'a> {
        let (key_bytes, value_bytes) = (self.layout.key_bytes as u16, self.layout.value_bytes as u32);
        let change = EntryChange { kind, key_bytes, value_bytes, expected };
        self.table.segment().location().plan_entry_change(
            action,
            self.place(bucket, 0),
            change,
            Outgoing::Pieces(pieces),
        )
    }
}

#[twin]
impl ByteMap {
    /// Lets the home change an entry, and returns the state of the key before, and the version of its bucket.
    async fn change_at_home(
        &self,
        (action, time): (&'static str, Deadline),
        change: (EntryChangeKind, u64),
        (hash, key): (KeyHash, &[u8]),
        (expiry_ms, value): (u64, Option<&[u8]>),
    ) -> Result<(EntryState, Version), Error> {
        let word = SlotWord::new(hash.tag, expiry_ms).bytes();
        let pieces = [&word[..], key, value.unwrap_or_default()];
        let call = self.plan_change(action, change, hash.bucket, &pieces);
        self.table.segment().client().execute(time, call.returns(|completion, _| entry_changed(completion))).await
    }

    /// Writes an entry, whether its key is present or only if it is absent. Returns whether the key was present, and the
    /// version of the entry.
    pub(super) async fn put_entry(
        &self,
        time: Deadline,
        (key, value): (&[u8], &[u8]),
        kind: EntryChangeKind,
        expiry: Expiry,
    ) -> Result<(bool, Version), Error> {
        let (hash, content) = (self.hash(key), (expiry.set_ms(), Some(value)));
        match self.change_at_home((PUT, time), (kind, 0), (hash, key), content).await? {
            (EntryState::Absent, version) => Ok((false, version)),
            (EntryState::Present, version) => Ok((true, version)),
            _ => self.put_by_buckets(time, (key, value), kind, expiry).await,
        }
    }

    /// Writes an entry that the home did not, because it may lie in another bucket or needs room there.
    pub(super) async fn put_by_buckets(
        &self,
        time: Deadline,
        (key, value): (&[u8], &[u8]),
        kind: EntryChangeKind,
        expiry: Expiry,
    ) -> Result<(bool, Version), Error> {
        let decide = |old: Option<Entry<&[u8]>>| {
            if kind == EntryChangeKind::Write || old.is_none() { Change::Put(value.to_vec()) } else { Change::Keep }
        };
        let changed = self.change((PUT, time), key, expiry, decide).await?;
        Ok((changed.was_present, changed.entry.map_or(Version(0), |entry| entry.version)))
    }

    /// Writes an entry that has the version, and returns its next version.
    pub(super) async fn put_entry_if(
        &self,
        time: Deadline,
        (key, value): (&[u8], &[u8]),
        version: Version,
        expiry: Expiry,
    ) -> Result<Version, Error> {
        let change = || Change::PutIfUnchanged(value.to_vec());
        match self.change_if((PUT, time), key, version, expiry, change).await? {
            Some(Some(entry)) => Ok(entry.version),
            _ => Err(Reason::KeyAbsent { action: PUT, target: self.table.segment().name().to_owned() }.into()),
        }
    }

    /// Changes the entry of a key if it has that version. Returns the entry after it; `None` if the key is absent.
    pub(super) async fn change_if(
        &self,
        (action, time): (&'static str, Deadline),
        key: &[u8],
        version: Version,
        expiry: Expiry,
        change: impl Fn() -> Change,
    ) -> Result<Option<Option<Entry<Vec<u8>>>>, Error> {
        let mut other = None;
        let decide = |old: Option<Entry<&[u8]>>| {
            other = old.map(|old| old.version).filter(|found| *found != version);
            if old.is_some() && other.is_none() { change() } else { Change::Keep }
        };
        let changed = self.change((action, time), key, expiry, decide).await?;
        if let Some(found) = other {
            let target = self.table.segment().name().to_owned();
            return Err(Reason::OtherVersion { action, target, found }.into());
        }
        Ok(changed.was_present.then_some(changed.entry))
    }

    /// Replaces the entry in its own bucket if it is still the expected one, and returns its version. `None` if it is not.
    pub(crate) async fn replace_entry(
        &self,
        during: (&'static str, Deadline),
        (hash, key): (KeyHash, &[u8]),
        (old_word, old): (SlotWord, &[u8]),
        (expiry_ms, new): (u64, &[u8]),
    ) -> Result<Option<Version>, Error> {
        let expected = BucketLayout::digest(self.seed, old_word, old);
        let (change, content) = ((EntryChangeKind::Replace, expected), (expiry_ms, Some(new)));
        let (state, version) = self.change_at_home(during, change, (hash, key), content).await?;
        Ok((state == EntryState::Present).then_some(version))
    }

    /// Gives the entry of a key another expiry, and returns true if the key was present.
    pub(super) async fn touch_entry(&self, time: Deadline, key: &[u8], expiry: Expiry) -> Result<bool, Error> {
        const ACTION: &str = "touch";
        let change = (EntryChangeKind::Touch, 0);
        match self.change_at_home((ACTION, time), change, (self.hash(key), key), (expiry.set_ms(), None)).await?.0 {
            EntryState::Absent => Ok(false),
            EntryState::Present => Ok(true),
            EntryState::Elsewhere | EntryState::Changed => {
                let same = |old: Option<Entry<&[u8]>>| old.map_or(Change::Keep, |old| Change::Put(old.value.to_vec()));
                Ok(self.change((ACTION, time), key, expiry, same).await?.was_present)
            }
        }
    }

    /// Frees the slot of a key, and returns true if the key was present.
    pub(super) async fn remove_entry(&self, time: Deadline, key: &[u8]) -> Result<bool, Error> {
        let change = (EntryChangeKind::Remove, 0);
        match self.change_at_home((REMOVE, time), change, (self.hash(key), key), (0, None)).await?.0 {
            EntryState::Absent => Ok(false),
            EntryState::Present => Ok(true),
            EntryState::Elsewhere | EntryState::Changed => self.remove_by_buckets(time, key).await,
        }
    }

    /// Frees the slot of a key that may lie in another bucket.
    pub(super) async fn remove_by_buckets(&self, time: Deadline, key: &[u8]) -> Result<bool, Error> {
        Ok(self.change((REMOVE, time), key, Expiry::Keep, |_| Change::Remove).await?.was_present)
    }
}
