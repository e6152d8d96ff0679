//! Tests of whole fabrics: the conformance suite, and properties of one implementation.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../suite/mod.rs"]
mod suite;

mod acceptor;
mod conformance;
mod exclusive_memory;
mod many_connections;
mod message_limits;
mod process_streams;
mod simulated_network;
mod sleep_wakeup;
mod zero_copy;
