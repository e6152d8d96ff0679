//! Client library of DDSS, one logical shared memory for a cluster.
//!
//! A process allocates a named segment; any process on any node reads and writes it.
//!
//! This crate is the API of applications. It holds no segment data and no network code: `ddss-ipc` carries a request to
//! the node's progress thread, and the daemon `ddssd` does the rest. The main types are [`Client`], [`Segment`] and
//! [`LockGuard`].
//!
//! # Quick start
//!
//! Start a node with `ddssd`, then:
//!
//! ```
//! use ddss::{Client, ConnectOptions};
//!
//! # let node = ddssd::EphemeralNode::start()?;
//! # let directory = node.directory();
//! // `Client::connect()` finds the node of this user, or the one that `DDSS_DIR` names.
//! let client = Client::connect_with(ConnectOptions::new().directory(directory))?;
//! let scores = client.segment("scores").allocate(4096)?;
//! scores.put(0, b"hello")?;
//! let value = scores.get(0..5)?;
//! assert_eq!(&value[..], b"hello");
//! println!("{} at {:?}", value.version(), value.stamp.timestamp);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On another node, [`open`](Named::open) finds the segment by its name.
//!
//! # Values
//!
//! | handle | [`Spec::new`] counts | what has a version |
//! | --- | --- | --- |
//! | [`Segment`]; [`Word`], [`Cell<T>`](Cell) and [`Array<T>`](Array) in it | bytes | the segment |
//! | [`Table<T>`](Table) of [`Row`]s | rows | each row |
//! | [`Map<K, V>`](Map) | keys | each entry |
//!
//! - New bytes are zero. `T`, `K` and `V` are [`Encoding`]s: types that derive `zerocopy`'s `FromBytes`, `IntoBytes` and
//!   `Immutable` (numbers, arrays, structs with `repr(C)`), `[u8]`, `str`, or `Postcard<T>`.
//! - A put is atomic, and `put_if` names the version that it replaces: another one there
//!   [is a conflict](Error::is_conflict). `update` repeats itself until none came between.
//! - A [lock](Segment::lock) of a segment or a [row](Row::lock) has a lease, which [`LockOptions::keep_alive`] renews. Puts of
//!   others wait. Its [`LockGuard`] has the calls of what it locks; they fail once the lock is lost. Dropping it unlocks.
//! - An entry of a map may expire ([`EntryOptions::ttl`]): `update` keeps that, `touch` moves it, a plain put ends it.
//! - A [`Watch`] yields the present state first (of a map: each entry), then newer ones, and ends with its segment. One that
//!   lags skips versions, never the newest. `next` waits for as long as it takes; `next_within` returns `None` at its time.
//! - [`Reader`] and [`Writer`] stream large values; a [`Batch`] sends many calls together, each with its own outcome.
//!
//! # Threads and tasks
//!
//! [`Client`] and [`Segment`] are cheap to clone and can be shared. Each calling thread uses a ring pair of its own (a
//! *channel*) as long as there are enough ([`ConnectOptions::channels`]); more threads than channels take turns. The module
//! [`aio`] has the same types with asynchronous calls, for any executor. [`Client::aio`] returns its client.
//!
//! # Outcomes
//!
//! A call returns its result, or an [`Error`] whose [kind](Error::kind) names the reason. The call certainly did nothing,
//! unless the error [is indeterminate](Error::is_indeterminate). Every call has a deadline ([`ConnectOptions::timeout`],
//! [`Segment::with_timeout`]).
//!
//! # Cleanup
//!
//! A segment lives until it is [released](Segment::release); dropping a handle does not affect it. When the last clone
//! of a client is dropped, or its process dies, its node frees the client's resources.
#![forbid(unsafe_code)]
#![allow(clippy::duplicate_mod, reason = "the files of `api` are compiled twice")]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

pub mod aio;
mod async_client;
mod batch;
mod blocking;
mod call;
mod client;
mod connect;
mod deadline;
mod encoding;
mod error;
mod lease;
mod location;
mod map;
mod options;
mod plan;
mod reactor;
mod segment_info;
mod session;
mod shards;
mod spec;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod value;

pub use batch::{Batch, MapTarget, Replies, Target, Ticket};
pub use blocking::*;
pub use client::Client;
pub use connect::ConnectOptions;
pub use ddss_core::{
    DegradedReason, Limit, LockHolder, Model, NodeId, Placement, ReplicationInfo, SegmentId, Storage, Timestamp,
    Version,
};
pub use ddss_ipc::Strategy;
#[cfg(feature = "postcard")]
pub use encoding::Postcard;
pub use encoding::{Encoding, Plain};
pub use error::{Error, ErrorKind, LimitReached};
pub use map::entry::Entry;
pub use map::known_entries::MapEvent;
pub use options::{EntryOptions, GetOptions, LockOptions, PutOptions};
pub use segment_info::{LockInfo, Permissions, RowEvent, SegmentEvent, SegmentInfo};
pub use spec::{Mode, Spec};
pub use value::{Atomic, AtomicResult, Stamp, Token, Update, Value, Versioned, Written};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
