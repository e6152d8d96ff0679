//! Words and decisions of DDSS: what the other crates talk about, and the engine that decides.
//!
//! *The stop before:* `ddss-ipc` hands over an [`Entry`] that came out of a client's ring.
//! *The stop after:* `ddss-verbs` moves the bytes that the engine asked for.
//!
//! Nothing in here does I/O, starts a thread, reads a clock or draws a random number. Time and events are
//! arguments, actions are return values, so the same code runs under `ddssd`, under the
//! simulator and under a fuzzer.
#![forbid(unsafe_code)]

pub mod limits;

mod ids;

pub use ids::{ClientId, LaneId, NodeId, RequestId, SegmentId, Timestamp, Version};

/// One slot of a ring as eight words, exactly one cache line.
///
/// The low half of the first word belongs to the ring (its sequence); the rest belongs to who submits.
pub type Entry = [u64; 8];
