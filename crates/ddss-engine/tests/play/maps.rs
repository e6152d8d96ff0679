//! Changes of a map's entries, with arbitrary results of the searches.

use ddss_core::{
    ArenaRange, BucketGarbage, BucketLayout, BucketSearch, EntryChange, EntryChangeKind, Model, Operation, Orphans,
    Payload, PutConditions, Range, SegmentId, SlotWord, Spec, TableLayout,
};
use ddss_engine::GarbageSearch;

/// Layout of the maps among the tables.
fn layout() -> BucketLayout {
    BucketLayout::new(8, 8).expect("sizes of a map")
}

/// Returns the specification of a table, which may be a map.
pub(super) fn random_table(word: u64) -> Spec {
    let row_bytes = if word.is_multiple_of(9) { layout().row_bytes() as u32 } else { 1 + word as u32 % 600 };
    Spec::table(1 + word % 70, row_bytes)
}

/// Returns a change of an entry, mostly in a bucket and of the right size.
pub(super) fn entry_put(segment: SegmentId, word: u64, range: ArenaRange, requested_model: Option<Model>) -> Operation {
    let kind = match word / 3 % 5 {
        0 => EntryChangeKind::Write,
        1 => EntryChangeKind::Insert,
        2 => EntryChangeKind::Replace,
        3 => EntryChangeKind::Touch,
        _ => EntryChangeKind::Remove,
    };
    let expected = if kind == EntryChangeKind::Replace { word % 2 } else { 0 };
    let BucketLayout { key_bytes, value_bytes, .. } = layout();
    let change = EntryChange { kind, key_bytes: key_bytes as u16, value_bytes: value_bytes as u32, expected };
    let bytes = if range.slot == 7 { range.bytes } else { change.payload_bytes() };
    let offset = if range.slot == 6 { word } else { word % 4 * layout().row_bytes() as u64 };
    let conditions = PutConditions { entry: Some(change), requested_model, ..PutConditions::default() };
    Operation::Put { segment, offset, from: Payload::Arena(ArenaRange { bytes, ..range }), conditions }
}

/// Returns the bytes that a search for an entry may read.
pub(super) fn bucket_bytes(change: EntryChange) -> u64 {
    change.layout().expect("the engine has checked the sizes").row_bytes() as u64
}

/// Returns any result of a search that a daemon may report.
pub(super) fn random_search(change: EntryChange, word: u64) -> Option<BucketSearch> {
    let slots = change.layout().expect("the engine has checked the sizes").slots;
    let found = BucketSearch {
        entry: SlotWord::of(word >> 3).map(|found| (word as usize % slots, found)).filter(|_| !word.is_multiple_of(2)),
        free: (!word.is_multiple_of(3)).then_some(word as usize % slots),
        is_linked: word.is_multiple_of(5),
        digest: word / 5 % 2,
        expiry_ms: word % 3,
    };
    (!word.is_multiple_of(7)).then_some(found)
}

/// Returns any result of a search for garbage that a daemon may report: in any bucket of those, with any words of slots.
pub(super) fn random_garbage(
    (layout, rows): (TableLayout, u64),
    (first, end): (u64, u64),
    word: u64,
) -> Option<GarbageSearch> {
    assert!(first <= end && end < rows, "no bucket is out of the table");
    let mut garbage = BucketGarbage::default();
    let (row, next) = layout.bounds(1);
    let range = |at: u64| Range { offset: at % ((next - row) / 8) * 8, bytes: 8 };
    (1..word % 4).for_each(|at| garbage.ranges.push(range(word / at)));
    garbage.entries = garbage.ranges.len() as u32;
    if word.is_multiple_of(5) {
        let ranges = [range(word)].into_iter().collect();
        garbage.orphans = Some(Orphans { owner: first.min(end), ranges });
    }
    let looked = if end > first { end - 1 - word % (end - first) } else { end };
    let (state, owner_state) = (word >> 8, word >> 16);
    let (expiry_ms, bytes) = (word % 3, (word % (40 << 10)) as usize);
    let search = GarbageSearch { begin: end, end: looked, state, owner_state, garbage, expiry_ms, bytes };
    (!word.is_multiple_of(11) && end > first).then_some(search)
}
