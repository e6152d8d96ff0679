//! Fuzzes one SDP stream, basic or enhanced, with calls and messages that the input describes.
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run sdp_stream -- -max_total_time=60`
#![no_main]

#[path = "../../crates/ddss-sdp/tests/play/mod.rs"]
mod play;

libfuzzer_sys::fuzz_target!(|data: &[u8]| play::play(data));
