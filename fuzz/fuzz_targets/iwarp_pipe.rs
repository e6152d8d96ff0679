//! Two iWARP connections that talk, cut into pieces of any size.
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run iwarp_pipe -- -max_total_time=60`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ddss_verbs::fuzzing::pipe(data));
