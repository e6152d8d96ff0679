//! Fuzzes one iWARP connection against a peer whose bytes are the input.
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run iwarp_stream -- -max_total_time=60`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ddss_verbs::fuzzing::stream(data));
