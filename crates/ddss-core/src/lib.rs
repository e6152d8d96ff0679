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

mod admission;
mod argument_error;
mod clock;
mod codec;
pub mod engine;
mod failure;
mod ids;
pub mod limits;
mod model;
mod peer;
mod rate_limiter;
mod request;
mod shard;
pub mod status;

pub use admission::select_eviction;
pub use argument_error::BadArgument;
pub use clock::HybridClock;
pub use failure::{Failure, Outcome};
pub use ids::{ChannelId, ClientId, NodeId, RequestId, SegmentId, Timestamp, Version};
pub use model::coherence::{GetRules, LockDependency, Model};
pub use model::record::Record;
pub use model::segment::{Access, Audience, Header, Name, Permissions, Principal, SnapshotCheck};
pub use model::spec::{Placement, Spec, Storage};
pub use peer::hello::{HelloError, PeerHello};
pub use peer::message::{Message, OfferReply, Refusal, RemoteWindow, ReplicaAck, SegmentInfo};
pub use rate_limiter::RateLimiter;
pub use request::completion::{Completion, OpenedSegment};
pub use request::listing::{DegradedReason, ListPage, ListQuery, Listing, LockHolder, ReplicationInfo};
pub use request::operation::{
    ArenaRange, AtomicOp, LockRequest, LockToken, Operation, Payload, PermissionUpdate, PutConditions, ReadOptions,
};
pub use request::ranges::{Range, Ranges};
pub use request::request::{BadRequest, Request};
pub use shard::Shard;

/// One slot of a ring as eight words, exactly one cache line.
///
/// The low half of the first word belongs to the ring (its sequence); the rest belongs to who submits.
pub type Entry = [u64; 8];
