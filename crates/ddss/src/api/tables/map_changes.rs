//! Changes of a map that its home executes in one round trip.
//!
//! The home finds the entry in the bucket of its key. Where it may lie in another bucket, or finds no free slot, the home
//! does nothing and says so. Then the client goes bucket by bucket, as `map_buckets.rs` describes. A client
//! that replaces an entry names it by its digest, so changes of other keys of the bucket do not matter.

use crate::api::tables::map_handle::{ByteMap, Expiry, KeyHash};
use crate::async_client::AsyncSegment;
use crate::calls::calls;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::plan::{Decoder, Outgoing, PlannedCall};
use crate::value::first_word;
use ddss_core::{
    ArenaRange, BucketLayout, EntryChange, EntryChangeKind, EntryState, Operation, Payload, PutConditions, SlotWord,
};

impl SegmentLocation {
    /// Plans the change of an entry in the bucket at `offset`. The pieces are the slot's word, the key and the value.
    fn plan_entry_change<'a>(
        &'a self,
        action: &'static str,
        offset: u64,
        change: EntryChange,
        pieces: &'a [&'a [u8]],
    ) -> PlannedCall<'a, impl Decoder<EntryState>> {
        let conditions = PutConditions { entry: Some(change), ..self.put_conditions(None, None) };
        let (segment, from) = (self.id, Payload::Arena(ArenaRange::NOWHERE));
        let plan = self.plan(action, Operation::Put { segment, offset, from, conditions });
        plan.sends(Outgoing::Pieces(pieces)).returns(|completion, _| EntryState::of_word(first_word(completion)))
    }
}

calls! {
    impl ByteMap, ByteMap<AsyncSegment> {
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
            wait!(segment.client().run(time, call))
        }

        /// Writes an entry, whether its key is present or only if it is absent. Returns true if the key was absent.
        pub(super) async fn insert_entry(&self, key: &[u8], value: &[u8], kind: EntryChangeKind, expiry: Expiry)
            -> Result<bool, Error>
        {
            const ACTION: &str = "insert into";
            let (time, expiry_ms) = (self.table.segment().time().started(), expiry.set_ms());
            let (hash, content) = (self.hash(key), (expiry_ms, Some(value)));
            match wait!(self.change_at_home((ACTION, time), kind, (hash, key), content, 0))? {
                EntryState::Absent => return Ok(true),
                EntryState::Present => return Ok(false),
                EntryState::Elsewhere | EntryState::Changed => {}
            }
            let decide = |old: Option<&[u8]>| {
                (kind == EntryChangeKind::Write || old.is_none()).then(|| value.to_vec())
            };
            Ok(!wait!(self.change((ACTION, time), key, expiry, decide))?)
        }

        /// Replaces the entry in its own bucket if it is still the expected one. Returns false if it is not.
        pub(super) async fn replace_entry(
            &self,
            during: (&'static str, Deadline),
            (hash, key): (KeyHash, &[u8]),
            (old_word, old): (SlotWord, &[u8]),
            (expiry_ms, new): (u64, &[u8]),
        ) -> Result<bool, Error> {
            let (kind, content) = (EntryChangeKind::Replace, (expiry_ms, Some(new)));
            let expected = BucketLayout::digest(self.seed, old_word, old);
            let state = wait!(self.change_at_home(during, kind, (hash, key), content, expected))?;
            Ok(state == EntryState::Present)
        }

        /// Gives the entry of a key another expiry, and returns true if the key was present.
        pub(super) async fn touch_entry(&self, key: &[u8], expiry: Expiry) -> Result<bool, Error> {
            const ACTION: &str = "touch";
            let (time, hash) = (self.table.segment().time().started(), self.hash(key));
            let (kind, content) = (EntryChangeKind::Touch, (expiry.set_ms(), None));
            match wait!(self.change_at_home((ACTION, time), kind, (hash, key), content, 0))? {
                EntryState::Absent => Ok(false),
                EntryState::Present => Ok(true),
                EntryState::Elsewhere | EntryState::Changed => {
                    wait!(self.change((ACTION, time), key, expiry, |old| old.map(<[u8]>::to_vec)))
                }
            }
        }

        /// Frees the slot of a key, and returns true if the key was present.
        pub(super) async fn remove_entry(&self, key: &[u8]) -> Result<bool, Error> {
            const ACTION: &str = "remove from";
            let (time, hash) = (self.table.segment().time().started(), self.hash(key));
            let kind = EntryChangeKind::Remove;
            match wait!(self.change_at_home((ACTION, time), kind, (hash, key), (0, None), 0))? {
                EntryState::Absent => Ok(false),
                EntryState::Present => Ok(true),
                EntryState::Elsewhere | EntryState::Changed => wait!(self.remove_by_buckets((ACTION, time), hash, key)),
            }
        }
    }
}
