//! Fuzzes two engines with clients and messages that the input describes.
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run engine -- -max_total_time=60`
#![no_main]

#[path = "../../crates/ddss-engine/tests/play/mod.rs"]
mod play;

libfuzzer_sys::fuzz_target!(|data: &[u8]| play::play(data));
