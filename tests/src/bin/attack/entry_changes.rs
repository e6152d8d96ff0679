//! Invalid changes of map entries.

use ddss_core::{BucketLayout, EntryChange, EntryChangeKind, SlotWord, Spec};

/// A change that a home must refuse, or the valid one that it must make.
pub(crate) struct WrongChange {
    pub(crate) what: &'static str,
    pub(crate) offset: u64,
    pub(crate) change: EntryChange,
    pub(crate) payload: Vec<u8>,
}

fn layout() -> BucketLayout {
    BucketLayout::new(8, 24).expect("sizes of a map")
}

/// Returns the specification of a map of three buckets.
pub(crate) fn map() -> Spec {
    Spec::table(4, layout().row_bytes() as u32)
}

/// Returns a valid insert into the first bucket.
pub(crate) fn good_change() -> WrongChange {
    let change = EntryChange { kind: EntryChangeKind::Insert, key_bytes: 8, value_bytes: 24, expected: 0 };
    let payload = [&SlotWord::new(5, 0).bytes()[..], &[6; 8], &[7; 24]].concat();
    WrongChange { what: "a good change", offset: layout().row_bytes() as u64, change, payload }
}

/// Returns changes that reach beyond a bucket, or name no entry.
pub(crate) fn wrong_changes() -> Vec<WrongChange> {
    let row = layout().row_bytes() as u64;
    let at = |what, offset| WrongChange { what, offset, ..good_change() };
    let sized = |what, key_bytes, value_bytes| {
        let change = EntryChange { key_bytes, value_bytes, ..good_change().change };
        WrongChange { what, change, ..good_change() }
    };
    let with = |what, payload: &[u8]| WrongChange { what, payload: payload.to_vec(), ..good_change() };
    let payload = good_change().payload;
    vec![
        at("the description of the map", 0),
        at("the middle of a bucket", row + 8),
        at("behind the last bucket", 4 * row),
        at("the last bytes of the table", 4 * row - 40),
        at("an offset that wraps", u64::MAX - 7),
        sized("larger values", 8, 32),
        sized("larger keys", 24, 24),
        sized("the largest entries", 1024, 65_536),
        with("a short payload", &payload[..39]),
        with("a long payload", &[&payload[..], &[0; 8]].concat()),
        with("no value", &payload[..16]),
        with("the word of a free slot", &[&[0; 8][..], &payload[8..]].concat()),
        with(
            "a word without its first bit",
            &[&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &payload[8..]].concat(),
        ),
    ]
}
