//! One logical shared memory for a cluster. A process names a segment; any process on any node reads and writes it.
//!
//! *The stop before:* your code. *The stop after:* `ddss-ipc`, where a request lies in this thread's ring until the
//! node's progress thread takes it.
//!
//! # Quick start
//!
//! Start a node with `ddssd`, then:
//!
//! ```
//! use ddss::{Client, Spec};
//!
//! # let node = ddssd::Ephemeral::start()?;
//! # let folder = node.folder();
//! // `Client::connect()` finds the node of this user, or the one that `DDSS_DIR` names.
//! let client = Client::builder().folder(folder).connect()?;
//! let scores = client.allocate("scores", Spec::new(4096))?;
//! scores.put(0, b"hello")?;
//! let value = scores.get(0..5)?;
//! assert_eq!(&value[..], b"hello");
//! println!("{} at {:?}", value.version(), value.timestamp());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On another node, [`Client::open`] finds the segment by its name.
//!
//! # Threads
//!
//! [`Client`] and [`Segment`] are cheap to clone and can be shared. Each thread that calls gets a ring pair of its own
//! (a *lane*) as long as there are enough ([`ClientBuilder::lanes`]); more threads than lanes take turns.
//!
//! # Tasks
//!
//! [`Client::to_async`] gives the same calls as futures, for any executor: [`AsyncClient`], [`AsyncSegment`].
//!
//! # How a call ends
//!
//! A call returns what it asked for, or an [`Error`] that says whether it certainly did nothing
//! ([`Error::Failed`]) or may have happened ([`Error::Indeterminate`]). Every call has a deadline
//! ([`ClientBuilder::timeout`], [`Segment::within`]).
//!
//! # Cleanup
//!
//! A segment lives until somebody [releases](Segment::release) it; dropping a handle does nothing to it. When the last
//! clone of a client is dropped, or its process dies in whatever way, its node frees what it had.
#![forbid(unsafe_code)]

mod api;
mod async_client;
mod builder;
mod call;
mod client;
mod deadline;
mod error;
mod segment;
mod session;
mod shards;
#[cfg(test)]
mod testing;
mod value;

pub use api::atomics::AtomicResult;
pub use api::batch::{Batch, BatchReply};
pub use api::lock::{LockGuard, LockOptions};
pub use api::metadata::SegmentList;
pub use api::typed::{Shared, SharedSlice, Typed};
pub use api::watch::{VersionIter, VersionStream};
pub use async_client::{AsyncBatch, AsyncClient, AsyncLockGuard, AsyncSegment};
pub use builder::ClientBuilder;
pub use client::Client;
pub use ddss_core::{
    BadArgument, DegradedReason, Failure, Listing, LockHolder, Model, Name, NodeId, Permissions, Placement, Principal,
    Refusal, ReplicationInfo, SegmentId, SegmentInfo, Spec, Storage, Timestamp, Version,
};
pub use ddss_ipc::{
    AttachError, FOLDER_VARIABLE, STRATEGY_VARIABLE, Strategy, UnknownStrategy, client_folder, default_folder,
};
pub use error::Error;
pub use segment::Segment;
pub use value::{Stamp, Value};
