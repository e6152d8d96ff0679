//! A call of a batch on one entry of a map.
//!
//! The home executes nearly all of them in one request. Where the entry may lie in another bucket, or finds no free slot in its
//! own, `api/tables/map_batch.rs` ends the call.

use super::put_call::PutCall;
use super::reply::BatchReply;
use super::target::MapPlace;
use crate::error::Error;
use crate::error::reason::Reason;
use crate::location::SegmentLocation;
use crate::location::entry_change::entry_changed;
use crate::map::bucket::Bucket;
use crate::map::entry::{Entry, Expiry, GET, KeyHash, PUT, REMOVE, now_ms};
use crate::map::shape::MapShape;
use crate::plan::{CallPlan, Outgoing};
use crate::value::Written;
use ddss_core::{Completion, EntryChange, EntryChangeKind, EntryState, SlotWord, Version};

/// A call on one entry of a map, with the bytes that it sends.
pub(crate) struct MapCall {
    pub(crate) location: SegmentLocation,
    pub(crate) shape: MapShape,
    pub(crate) kind: MapCallKind,
    pub(crate) hash: KeyHash,
    /// Word of the slot and key; behind them the value of a put.
    bytes: Vec<u8>,
}

/// Kind of a call on an entry.
#[derive(Clone, Copy)]
pub(crate) enum MapCallKind {
    Get,
    /// Writes the entry, or only inserts it.
    Put(EntryChangeKind, Expiry),
    /// Writes the entry if it has this version: first a read, then a put on condition of the bucket's version.
    PutIf(Version, Expiry),
    Remove,
}

/// Next step of a call after a completion.
pub(super) enum MapStep {
    Done(BatchReply),
    /// This put ends it.
    Put(PutCall),
    /// The home did nothing: the entry may lie in another bucket, or needs room there. The copy is that of its own bucket.
    Elsewhere(Option<Bucket>),
}

impl MapCallKind {
    /// Returns the attempted action, for errors.
    pub(super) const fn action(self) -> &'static str {
        match self {
            Self::Get => GET,
            Self::Put(..) | Self::PutIf(..) => PUT,
            Self::Remove => REMOVE,
        }
    }
}

impl MapCall {
    pub(super) fn new(place: &MapPlace<'_>, kind: MapCallKind, key: &[u8], value: &[u8]) -> Self {
        let expiry_ms = match kind {
            MapCallKind::Put(_, expiry) | MapCallKind::PutIf(_, expiry) => expiry.set_ms(),
            MapCallKind::Get | MapCallKind::Remove => 0,
        };
        let hash = place.shape.hash(key);
        let bytes = [&SlotWord::new(hash.tag, expiry_ms).bytes()[..], key, value].concat();
        Self { location: place.location.clone(), shape: place.shape.clone(), kind, hash, bytes }
    }

    /// Returns the word of the slot, with the key behind it.
    fn head(&self) -> &[u8] {
        &self.bytes[..SlotWord::BYTES + self.shape.layout.key_bytes]
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.head()[SlotWord::BYTES..]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes[self.head().len()..]
    }

    /// Reads in place if that is possible.
    pub(super) fn read_locally(&self) -> Option<BatchReply> {
        let MapCallKind::Get = self.kind else { return None };
        self.shape.get_in_place::<[u8]>(&self.location, self.hash, self.key()).map(|entry| self.found(entry))
    }

    pub(super) fn plan(&self) -> CallPlan<'_> {
        let (place, layout) = (self.shape.place(self.hash.bucket, 0), self.shape.layout);
        let kind = match self.kind {
            MapCallKind::Get | MapCallKind::PutIf(..) => {
                return self.location.plan_get(place, layout.read_bytes(), None);
            }
            MapCallKind::Put(kind, _) => kind,
            MapCallKind::Remove => EntryChangeKind::Remove,
        };
        let (key_bytes, value_bytes) = (layout.key_bytes as u16, layout.value_bytes as u32);
        let change = EntryChange { kind, key_bytes, value_bytes, expected: 0 };
        self.location.plan_entry_change(self.kind.action(), place, change, Outgoing::Bytes(&self.bytes))
    }

    /// Returns the next step after a completion of the call.
    pub(super) fn step(&self, completion: &Completion, bytes: Vec<u8>) -> Result<MapStep, Error> {
        let bucket = |bytes| Bucket::new(self.shape.layout, bytes, completion.version);
        let (state, version) = match self.kind {
            MapCallKind::Get => {
                let bucket = bucket(bytes);
                let found = self.shape.look_up(&bucket, self.key()).map(|entry| self.found(owned(entry)));
                return Ok(found.map_or_else(|| MapStep::Elsewhere(Some(bucket)), MapStep::Done));
            }
            MapCallKind::PutIf(version, _) => return self.put_if(&bucket(bytes), version),
            MapCallKind::Put(..) | MapCallKind::Remove => entry_changed(completion),
        };
        match state {
            EntryState::Absent => self.changed(false, version).map(MapStep::Done),
            EntryState::Present => self.changed(true, version).map(MapStep::Done),
            EntryState::Elsewhere | EntryState::Changed => Ok(MapStep::Elsewhere(None)),
        }
    }

    /// Returns the put of an entry that has the version, in its own bucket.
    fn put_if(&self, bucket: &Bucket, version: Version) -> Result<MapStep, Error> {
        let (KeyHash { tag, bucket: number }, layout) = (self.hash, self.shape.layout);
        let Some(slot) = bucket.slot_of(tag, self.key()) else {
            return if bucket.is_linked(tag) { Ok(MapStep::Elsewhere(None)) } else { Err(self.absent()) };
        };
        if bucket.word(slot).is_none_or(|word| word.is_expired(now_ms())) {
            return Err(self.absent());
        }
        if bucket.version != version {
            let (action, target, found) = (PUT, self.location.name.to_string(), bucket.version);
            return Err(Reason::OtherVersion { action, target, found }.into());
        }
        let place = |at| self.shape.place(number, at);
        let parts = [(place(layout.head_at(slot)), self.head()), (place(layout.value_at(slot)), self.value())];
        let parts = if self.value().is_empty() { &parts[..1] } else { &parts[..] };
        PutCall::new(&self.location, parts, Some(version)).map(MapStep::Put)
    }

    fn absent(&self) -> Error {
        Reason::KeyAbsent { action: PUT, target: self.location.name.to_string() }.into()
    }

    /// Returns the reply of a get.
    pub(crate) fn found(&self, entry: Option<Entry<Vec<u8>>>) -> BatchReply {
        BatchReply::Entry(self.location.name.clone(), entry)
    }

    /// Returns the reply of a change, or its refusal. `version` is that of the entry.
    pub(crate) fn changed(&self, was_present: bool, version: Version) -> Result<BatchReply, Error> {
        match self.kind {
            MapCallKind::Put(EntryChangeKind::Insert, _) if was_present => {
                Err(Reason::KeyExists { action: PUT, target: self.location.name.to_string() }.into())
            }
            MapCallKind::Remove => Ok(BatchReply::Removed(was_present)),
            _ => Ok(BatchReply::Written(Written { is_new: !was_present, version })),
        }
    }
}

/// Copies the value of an entry.
pub(crate) fn owned(entry: Option<Entry<&[u8]>>) -> Option<Entry<Vec<u8>>> {
    entry.map(|entry| entry.with_value(entry.value.to_vec()))
}
