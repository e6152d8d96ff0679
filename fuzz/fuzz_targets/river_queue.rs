//! Fuzzes both ends of a queue with calls, connections and messages of a peer, in an order that the input chooses.
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run river_queue -- -max_total_time=60`
#![no_main]

#[path = "../../crates/ddss-river-core/tests/play/mod.rs"]
mod play;

libfuzzer_sys::fuzz_target!(|data: &[u8]| play::play(data));
