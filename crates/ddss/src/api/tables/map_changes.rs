//! Changes of a map that its home executes in one round trip.
//!
//! The home finds the entry in the bucket of its key. Where it may lie in another bucket, or finds no free slot, the home
//! does nothing and says so. Then the client goes bucket by bucket, as `map_buckets.rs` describes. A client
//! that replaces an entry names it by its digest, so changes of other keys of the bucket do not matter.

use super::map_handle::ByteMap;
use super::twin;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::map::entry::{Expiry, KeyHash};
use ddss_core::{BucketLayout, EntryChange, EntryChangeKind, EntryState, SlotWord};

#[twin]
impl ByteMap {
    /// Lets the home change an entry, and returns the state of the key before.
    async fn change_at_home(
        &self,
        (action, time): (&'static str, Deadline),
        kind: EntryChangeKind,
        (hash, key): (KeyHash, &[u8]),
        (expiry_ms, value): (u64, Option<&[u8]>),
        expected: u64,
    ) -> Result<EntryState, Error> {
        let (key_bytes, value_bytes) = (self.layout.key_bytes as u16, self.layout.value_bytes as u32);
        let change = EntryChange { kind, key_bytes, value_bytes, expected };
        let word = SlotWord::new(hash.tag, expiry_ms).bytes();
        let pieces = [&word[..], key, value.unwrap_or_default()];
        let (segment, offset) = (self.table.segment(), self.place(hash.bucket, 0));
        let call = segment.location().plan_entry_change(action, offset, change, &pieces);
        segment.client().run(time, call).await
    }

    /// Writes an entry, whether its key is present or only if it is absent. Returns true if the key was absent.
    pub(crate) async fn insert_entry(
        &self,
        key: &[u8],
        value: &[u8],
        kind: EntryChangeKind,
        expiry: Expiry,
    ) -> Result<bool, Error> {
        const ACTION: &str = "insert into";
        let (time, expiry_ms) = (self.table.segment().time().started(), expiry.set_ms());
        let (hash, content) = (self.hash(key), (expiry_ms, Some(value)));
        match self.change_at_home((ACTION, time), kind, (hash, key), content, 0).await? {
            EntryState::Absent => return Ok(true),
            EntryState::Present => return Ok(false),
            EntryState::Elsewhere | EntryState::Changed => {}
        }
        let decide = |old: Option<&[u8]>| (kind == EntryChangeKind::Write || old.is_none()).then(|| value.to_vec());
        Ok(!self.change((ACTION, time), key, expiry, decide).await?)
    }

    /// Replaces the entry in its own bucket if it is still the expected one. Returns false if it is not.
    pub(crate) async fn replace_entry(
        &self,
        during: (&'static str, Deadline),
        (hash, key): (KeyHash, &[u8]),
        (old_word, old): (SlotWord, &[u8]),
        (expiry_ms, new): (u64, &[u8]),
    ) -> Result<bool, Error> {
        let (kind, content) = (EntryChangeKind::Replace, (expiry_ms, Some(new)));
        let expected = BucketLayout::digest(self.seed, old_word, old);
        let state = self.change_at_home(during, kind, (hash, key), content, expected).await?;
        Ok(state == EntryState::Present)
    }

    /// Gives the entry of a key another expiry, and returns true if the key was present.
    pub(crate) async fn touch_entry(&self, key: &[u8], expiry: Expiry) -> Result<bool, Error> {
        const ACTION: &str = "touch";
        let (time, hash) = (self.table.segment().time().started(), self.hash(key));
        let (kind, content) = (EntryChangeKind::Touch, (expiry.set_ms(), None));
        match self.change_at_home((ACTION, time), kind, (hash, key), content, 0).await? {
            EntryState::Absent => Ok(false),
            EntryState::Present => Ok(true),
            EntryState::Elsewhere | EntryState::Changed => {
                self.change((ACTION, time), key, expiry, |old| old.map(<[u8]>::to_vec)).await
            }
        }
    }

    /// Frees the slot of a key, and returns true if the key was present.
    pub(crate) async fn remove_entry(&self, key: &[u8]) -> Result<bool, Error> {
        const ACTION: &str = "remove from";
        let (time, hash) = (self.table.segment().time().started(), self.hash(key));
        let kind = EntryChangeKind::Remove;
        match self.change_at_home((ACTION, time), kind, (hash, key), (0, None), 0).await? {
            EntryState::Absent => Ok(false),
            EntryState::Present => Ok(true),
            EntryState::Elsewhere | EntryState::Changed => self.remove_by_buckets((ACTION, time), hash, key).await,
        }
    }
}
