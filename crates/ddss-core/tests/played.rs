//! The engine against whatever bytes say. `fuzz/fuzz_targets/engine.rs` looks for them; here they are random.

mod play;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    // If this failed, a client or a node that lies could make a daemon write where it must not, or end.
    #[test]
    fn no_bytes_lead_the_engine_out_of_its_memory(data in proptest::collection::vec(any::<u8>(), 0..3000)) {
        play::play(&data);
    }
}

// If this failed, something would be back that was found once: among it two nodes that describe a segment to each other without end.
#[test]
fn what_was_found_once_is_no_more() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/engine");
    let mut played = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        play::play(&std::fs::read(entry.unwrap().path()).unwrap());
        played += 1;
    }
    assert!(played > 10, "{played}");
}
