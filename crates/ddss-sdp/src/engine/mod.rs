//! Engine of one stream: bytes and messages in, messages and bytes out.

mod basic;
mod control;
mod enhanced;
mod handshake;
mod pending;
mod private_buffers;
mod zero_copy;

pub use basic::{BasicStream, Outgoing};
pub use enhanced::EnhancedStream;
pub use handshake::{Addresses, StreamConfig, Terms, accept, connect, finish_connect};
pub use zero_copy::{Source, ZeroCopyOutcome};
