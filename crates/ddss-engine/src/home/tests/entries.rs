//! Tests of changes of a map's entries: the daemon's search is an argument.

use crate::action::{Action, CommitSource, PeerAction, RangeSet};
use crate::home::tests::{A, NOW, Parts};
use crate::state::lock_queue::PendingOp;
use EntryChangeKind::{Insert, Remove, Replace, Touch, Write};
use ddss_core::{
    BucketLayout, BucketSearch, EntryChange, EntryChangeKind, EntryState, Failure, Message, Outcome, PutConditions,
    Range, SegmentId, SlotWord, Spec, TableLayout, Timestamp, Version,
};

const KEY_BYTES: u16 = 8;
const VALUE_BYTES: u32 = 24;
/// Digest of the entry that a replacement expects.
const EXPECTED: u64 = 99;

fn layout() -> BucketLayout {
    BucketLayout::new(KEY_BYTES.into(), VALUE_BYTES as usize).expect("sizes of a map")
}

/// Makes a node with a map of three buckets.
fn map() -> (Parts, SegmentId) {
    Parts::with(Spec::table(4, layout().row_bytes() as u32))
}

/// Submits a change of an entry in bucket 2, and returns the buffer with its bytes.
fn submit(parts: &mut Parts, id: SegmentId, kind: EntryChangeKind) -> crate::BufferId {
    let expected = if kind == Replace { EXPECTED } else { 0 };
    let change = EntryChange { kind, key_bytes: KEY_BYTES, value_bytes: VALUE_BYTES, expected };
    let buffer = parts.output.store(&vec![7; change.payload_bytes() as usize]);
    let (offset, source) = (2 * layout().row_bytes() as u64, CommitSource::Buffer(buffer));
    let conditions = PutConditions { entry: Some(change), ..PutConditions::default() };
    let parts_of_it = RangeSet::One { offset, bytes: change.payload_bytes() };
    let op = PendingOp::Put { parts: parts_of_it, source, conditions };
    assert_eq!(parts.submit(id, A, 9, op), Ok(()));
    let actions = parts.actions();
    assert!(matches!(actions[..], [Action::FindEntry { offset: at, .. }] if at == offset), "{actions:?}");
    buffer
}

/// Makes a change whose search had that result. Returns state and version of the answer, and the ranges of its commit.
fn change(kind: EntryChangeKind, found: BucketSearch) -> (EntryState, u64, Option<Vec<Range>>) {
    let (mut parts, id) = map();
    let buffer = submit(&mut parts, id, kind);
    parts.home().operations().entry_found(NOW, 2 * 5, Timestamp(77), Some(found));
    let (mut ranges, mut answer) = (None, None);
    while let Some(action) = parts.output.next_action() {
        match action {
            Action::CommitRecord { parts: written, source, version, .. } => {
                assert_eq!(version, Version(6));
                assert_eq!(source == CommitSource::Word(0), kind == Remove, "{source:?}");
                ranges = Some(parts.output.ranges_of(&written).to_vec());
                if let CommitSource::Buffer(buffer) = source {
                    parts.output.drop_buffer(&buffer);
                }
            }
            Action::Peer(PeerAction::Send {
                message: Message::Ended { outcome: Outcome::Done, version, word, .. },
                ..
            }) => {
                answer = Some((EntryState::of_word(word), version.0));
            }
            other => panic!("{other:?}"),
        }
    }
    let next = [parts.output.store(b"one"), parts.output.store(b"two")];
    assert!(next.contains(&buffer), "the bytes of the change are not freed");
    let (state, version) = answer.expect("each change is answered");
    (state, version, ranges)
}

#[test]
fn search_decides_the_state_the_version_and_the_place_of_a_change() {
    // If this broke, a key would be inserted twice, or an entry of another key would be overwritten.
    let row = 2 * layout().row_bytes() as u64;
    let written = |slot| {
        let head = Range { offset: row + layout().head_at(slot) as u64, bytes: 16 };
        Some(vec![head, Range { offset: row + layout().value_at(slot) as u64, bytes: VALUE_BYTES }])
    };
    let freed = |slot| Some(vec![Range { offset: row + layout().head_at(slot) as u64, bytes: 8 }]);
    let live =
        BucketSearch { entry: Some((4, SlotWord::new(1, 0))), free: Some(2), digest: EXPECTED, ..Default::default() };
    assert_eq!(change(Write, live), (EntryState::Present, 6, written(4)));
    assert_eq!(change(Insert, live), (EntryState::Present, 5, None));
    assert_eq!(change(Remove, live), (EntryState::Present, 6, freed(4)));
    // The clock of the tests is at 1 ms: this entry has expired, and its slot is used again.
    let expired = BucketSearch { entry: Some((4, SlotWord::new(1, 1))), ..live };
    assert_eq!(change(Write, expired), (EntryState::Absent, 6, written(4)));
    assert_eq!(change(Insert, expired), (EntryState::Absent, 6, written(4)));
    assert_eq!(change(Remove, expired), (EntryState::Absent, 6, freed(4)));
    let absent = BucketSearch { entry: None, ..live };
    assert_eq!(change(Write, absent), (EntryState::Absent, 6, written(2)));
    assert_eq!(change(Insert, absent), (EntryState::Absent, 6, written(2)));
    assert_eq!(change(Remove, absent), (EntryState::Absent, 5, None));
    let full = BucketSearch { free: None, ..absent };
    assert_eq!(change(Write, full), (EntryState::Elsewhere, 5, None));
    assert_eq!(change(Insert, full), (EntryState::Elsewhere, 5, None));
    assert_eq!(change(Remove, full), (EntryState::Absent, 5, None));
    let linked = BucketSearch { is_linked: true, ..absent };
    for kind in [Write, Insert, Remove, Replace, Touch] {
        assert_eq!(change(kind, linked), (EntryState::Elsewhere, 5, None));
    }
}

#[test]
fn replacement_needs_the_expected_entry_and_a_touch_needs_any() {
    // If this broke, an update would overwrite another change, or fail because a neighbour changed.
    let row = 2 * layout().row_bytes() as u64;
    let head = Range { offset: row + layout().head_at(4) as u64, bytes: 16 };
    let value = Range { offset: row + layout().value_at(4) as u64, bytes: VALUE_BYTES };
    let found = |expiry_ms, digest| BucketSearch {
        entry: Some((4, SlotWord::new(1, expiry_ms))),
        free: Some(2),
        digest,
        ..BucketSearch::default()
    };
    assert_eq!(change(Replace, found(0, EXPECTED)), (EntryState::Present, 6, Some(vec![head, value])));
    assert_eq!(change(Replace, found(0, EXPECTED + 1)), (EntryState::Changed, 5, None));
    assert_eq!(change(Touch, found(0, 0)), (EntryState::Present, 6, Some(vec![head])));
    for kind in [Replace, Touch] {
        assert_eq!(change(kind, found(1, EXPECTED)), (EntryState::Absent, 5, None), "an expired entry");
        let absent = BucketSearch { entry: None, ..found(0, EXPECTED) };
        assert_eq!(change(kind, absent), (EntryState::Absent, 5, None));
    }
}

#[test]
fn change_of_a_damaged_bucket_or_without_a_word_does_nothing() {
    // If this broke, a client could write a slot that all searches take for a free one.
    let found = Some(BucketSearch { free: Some(0), ..BucketSearch::default() });
    for (state, found, failure) in [(11, found, Failure::Damaged), (10, None, Failure::Malformed)] {
        let (mut parts, id) = map();
        let buffer = submit(&mut parts, id, Insert);
        parts.home().operations().entry_found(NOW, state, Timestamp(77), found);
        let failed = Outcome::Failed(failure);
        assert!(matches!(
            parts.actions()[..],
            [Action::Peer(PeerAction::Send { message: Message::Ended { outcome, .. }, .. })] if outcome == failed
        ));
        assert_eq!(parts.output.store(b"next"), buffer);
    }
}

#[test]
fn only_buckets_of_a_map_with_such_entries_are_changed() {
    // If this broke, a client could write across the border of a bucket, or over the description of a map.
    let row = layout().row_bytes() as u64;
    let change = EntryChange { kind: Insert, key_bytes: KEY_BYTES, value_bytes: VALUE_BYTES, expected: 0 };
    let refuse = |spec: Spec, offset: u64, bytes: u32, change: EntryChange| {
        let (mut parts, id) = Parts::with(spec);
        let (source, conditions) =
            (CommitSource::Word(0), PutConditions { entry: Some(change), ..PutConditions::default() });
        let op = PendingOp::Put { parts: RangeSet::One { offset, bytes }, source, conditions };
        let ended = parts.submit(id, A, 9, op);
        assert_eq!(parts.actions().len(), usize::from(ended.is_ok()));
        ended
    };
    let (spec, bytes) = (Spec::table(4, row as u32), change.payload_bytes());
    assert_eq!(refuse(spec, row, bytes, change), Ok(()));
    for offset in [0, row + 8, 2 * row - 8] {
        assert!(refuse(spec, offset, bytes, change).is_err(), "{offset}");
    }
    assert_eq!(refuse(spec, 4 * row, bytes, change), Err(Failure::OutOfRange));
    assert_eq!(refuse(spec, row, bytes - 1, change), Err(Failure::Malformed));
    let larger = EntryChange { value_bytes: VALUE_BYTES + 8, ..change };
    assert_eq!(refuse(spec, row, larger.payload_bytes(), larger), Err(Failure::Unsupported));
    let other = Spec::table(4, row as u32 + TableLayout::ROW_UNIT);
    assert_eq!(refuse(other, row + 8, bytes, change), Err(Failure::Unsupported));
    assert_eq!(refuse(Spec::new(4096), 0, bytes, change), Err(Failure::Unsupported));
}
