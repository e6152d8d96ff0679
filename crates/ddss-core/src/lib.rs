//! Vocabulary of DDSS: types and codecs that clients, daemons, the engine and the simulator share.
//!
//! Nothing in this crate does I/O, starts a thread, reads a clock or draws a random number. It decides nothing (see the crate
//! `ddss-engine`), is not a client library (see the crate `ddss-client`) and moves no bytes itself.
//!
//! | module | content |
//! | --- | --- |
//! | `request` | [`Request`], [`Operation`] and [`Completion`]: a client and its daemon |
//! | `peer` | [`Message`] and [`PeerHello`]: the engines of two nodes |
//! | `model` | [`Spec`], [`Model`], [`Permissions`], [`Header`]: segments |
//! | [`status`] | the page of counters that a daemon publishes |
//! | [`limits`] | every bound of the system |
//!
//! A request's path: `ddss-ipc` hands over an [`Entry`] from a client's ring, [`Request::decode`] makes a valid request of
//! it, the engine decides, and `ddss-verbs` moves bytes between nodes.
//!
//! ```
//! use ddss_core::{Operation, Request, RequestId};
//! let request = Request::new(RequestId(7), Operation::Null);
//! assert_eq!(Request::decode(&request.encode()), Ok(request));
//! ```
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod argument_error;
mod clock;
mod codec;
mod failure;
mod ids;
mod limit;
pub mod limits;
mod model;
mod peer;
mod request;
mod shard;
pub mod status;

pub use argument_error::BadArgument;
pub use clock::HybridClock;
pub use codec::listing::{DegradedReason, ListPage, ListQuery, Listing, LockHolder, ReplicationInfo};
pub use failure::{Failure, Outcome};
pub use ids::{ChannelId, ClientId, NodeId, RequestId, SegmentId, Timestamp, Version};
pub use limit::Limit;
pub use model::address::{OWN_AREA, area_of, offset_of, start_of};
pub use model::bucket::{BucketLayout, BucketLink, BucketSearch, SlotWord};
pub use model::coherence::{GetRules, LockDependency, Model};
pub use model::map::{BucketGarbage, MapLayout, Orphans};
pub use model::ranges::{Range, Ranges};
pub use model::record::Record;
pub use model::segment::{Access, Audience, Header, Name, PermissionUpdate, Permissions, Principal, SnapshotCheck};
pub use model::spec::{Placement, Spec, Storage};
pub use model::table::{ANY_ROW, RecordPlace, TableLayout};
pub use peer::hello::{HelloError, PeerHello};
pub use peer::message::{Message, RemoteWindow, SegmentInfo};
pub use peer::replica_reply::{OfferReply, Refusal, ReplicaAck};
pub use request::completion::{Completion, OpenedSegment};
pub use request::entry_change::{EntryChange, EntryChangeKind, EntryState};
pub use request::inline_request::InlinePut;
pub use request::operation::{
    ArenaRange, AtomicOp, LockRequest, LockToken, Operation, Part, Payload, PutConditions, ReadOptions, UploadId,
};
pub use request::request::{BadRequest, Request};
pub use request::row_list::RowList;
pub use shard::Shard;

/// One slot of a ring as eight words, exactly one cache line.
///
/// The low half of the first word belongs to the ring (its sequence), the rest to the submitter.
pub type Entry = [u64; 8];
