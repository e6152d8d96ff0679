//! Asynchronous calls: the types of the crate's root under equal names, with `async` methods.
//!
//! [`Client::connect`] and [`Client::aio`](crate::Client::aio) return the client. Values, options and errors are those of the root. A method's
//! documentation here is its first paragraph; the link behind it leads to the blocking twin, with all details and examples.
//!
//! ```
//! # let node = ddssd::EphemeralNode::start()?;
//! # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use ddss::aio;
//!
//! let client: aio::Client = client.aio()?;
//! let scores: aio::Segment = client.segment("scores").allocate(4096).await?;
//! scores.put(0, b"hello").await?;
//! assert_eq!(&scores.get(0..5).await?[..], b"hello");
//! # Ok::<(), ddss::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The futures run on any executor: tokio, a bare `block_on`, or another. Each asynchronous client has one small thread
//! (the reactor). It handles deadlines, and completions that no task collected by polling.
//!
//! * *Concurrency:* up to 52 calls of one client are in flight; further calls wait in order. Waits for a lock or a
//!   version are limited by the daemon only (65,536 for each client).
//! * *Dropped futures:* a call whose future is dropped continues in the daemon: a put, also one of a batch, may or may not
//!   take effect. Its memory is not reused until the daemon has completed the call. A get copies its bytes at the end of the
//!   call, so that a dropped future leaves the destination unchanged. A dropped call that asks for a lock gives it back, and
//!   a dropped unlock still unlocks.
//! * *Reads in place* of segments of this node end without waiting. After 128 of them, or 512 KiB, a task yields once to the
//!   other tasks of its thread.
//! * *Watches and lists* are streams, with a method `next`.
//! * *Handles* of one form convert into the other without a call:
//!
//! ```
//! # let node = ddssd::EphemeralNode::start()?;
//! # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
//! # let segment = client.segment("scores").allocate(64)?;
//! let for_tasks = ddss::aio::Segment::from(&segment);
//! assert_eq!(ddss::Segment::from(&for_tasks).id(), segment.id());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cursor;
mod held_lock;
mod list;
mod name_watch;
mod unfold;
mod watch;

#[path = "../api/mod.rs"]
mod api;

use ddss_twin::{keep as only_aio, link as twin, skip as only_blocking};

pub use crate::async_client::client::Client;
pub use api::*;
pub use cursor::{Reader, Writer};
pub(crate) use held_lock::HeldLock;
pub use list::List;
pub(crate) use list::{list_map, list_segments};
pub(crate) use name_watch::NameWatch;
pub use watch::Watch;
pub(crate) use watch::{watch_map, watch_rows, watch_versions};
