//! Tests of iWARP on the wire, against an independent implementation and Wireshark.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../wire/mod.rs"]
mod wire;

mod foreign_messages;
mod handshakes;
mod markers;
mod peer_failures;
mod read_limits;
mod sealed;
mod slow_peers;
mod violations;
mod wire_format;
mod wireshark;
