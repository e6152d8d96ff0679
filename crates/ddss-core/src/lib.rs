//! Words and decisions of DDSS: what the other crates talk about, and the engine that decides.
//!
//! *The stop before:* `ddss-ipc` hands over an [`Entry`] that came out of a client's ring; [`Request::decode`] makes
//! a request of it that cannot be wrong.
//! *The stop after:* `ddss-verbs` moves the bytes that the [engine] asked for.
//!
//! Nothing in here does I/O, starts a thread, reads a clock or draws a random number. Time and events are
//! arguments, actions are return values, so the same code runs under `ddssd`, under the simulator and under a
//! fuzzer.
//!
//! ```
//! use ddss_core::{Operation, Request, RequestId};
//! let request = Request::new(RequestId(7), Operation::Null);
//! assert_eq!(Request::decode(&request.encode()), Ok(request));
//! ```
#![forbid(unsafe_code)]

pub mod engine;
pub mod limits;
pub mod status;

mod bad_argument;
mod clock;
mod completion;
mod door;
mod failure;
mod hello;
mod ids;
mod listing;
mod message;
mod model;
mod operation;
mod pace;
mod plane;
mod ranges;
mod record;
mod request;
mod segment;
mod small;
mod spec;
mod wire;

pub use bad_argument::BadArgument;
pub use clock::HybridClock;
pub use completion::{Completion, Opened};
pub use door::makes_room;
pub use failure::{Failure, Outcome};
pub use hello::{HelloError, PeerHello};
pub use ids::{ClientId, LaneId, NodeId, RequestId, SegmentId, Timestamp, Version};
pub use listing::{DegradedReason, Listing, LockHolder, Mirroring, Page, Query};
pub use message::{Facts, Have, Message, Refusal, RemoteWindow, Stored};
pub use model::{GetRules, Minds, Model};
pub use operation::{ArenaRange, Change, LockToken, LockWish, Look, Operation, Payload, Permit, Terms};
pub use pace::Pace;
pub use plane::Plane;
pub use ranges::{Range, Ranges};
pub use record::Record;
pub use request::{Refused, Request};
pub use segment::{Audience, Header, Identity, Name, Permissions, Proof, Wish};
pub use spec::{Placement, Spec, Storage};

/// One slot of a ring as eight words, exactly one cache line.
///
/// The low half of the first word belongs to the ring (its sequence); the rest belongs to who submits.
pub type Entry = [u64; 8];
