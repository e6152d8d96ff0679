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
