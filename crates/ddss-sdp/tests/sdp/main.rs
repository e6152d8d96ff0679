//! Tests of the codec and the engine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where something is not as it should be")]

#[path = "../play/mod.rs"]
mod play;
#[path = "../reading/mod.rs"]
mod reading;

mod basic_simulation;
mod codec;
mod common;
mod enhanced_simulation;
mod frames;
mod hostile;
mod ledger;
mod plan;
mod segments;
mod wireshark;
mod zero_copy;
