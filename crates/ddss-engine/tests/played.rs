//! The engine against arbitrary bytes: random here, searched for by `fuzz/fuzz_targets/engine.rs`.

mod play;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    // If this failed, a malicious client or node could make a daemon write where it must not, or end.
    #[test]
    fn engine_stays_in_its_memory_for_any_input(data in proptest::collection::vec(any::<u8>(), 0..3000)) {
        play::play(&data);
    }
}

// If this failed, an earlier bug would be back: among them two nodes that describe a segment to each other without end.
#[test]
fn regression_inputs_pass() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/engine");
    let mut played = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        play::play(&std::fs::read(entry.unwrap().path()).unwrap());
        played += 1;
    }
    assert!(played > 10, "{played}");
}
