//! Asynchronous calls: [`AsyncClient`] and [`AsyncSegment`] have the methods of [`Client`](crate::Client) and
//! [`Segment`](crate::Segment) under the same names, as `async fn`.
//!
//! The futures run on any executor: tokio, a bare `block_on`, or another. Each asynchronous client has one small thread
//! (the reactor). It handles deadlines, and completions that no task collected by polling.
//!
//! * *Concurrency:* up to 52 calls of one client are in flight; further calls wait in order. Waits for a lock or a
//!   version are limited by the daemon only (65,536 for each client).
//! * *Dropped futures:* a call whose future is dropped continues in the daemon (a put may or may not take effect). Its
//!   memory is not reused until the daemon has completed the call.
//! * *Reads in place* of segments of this node end without waiting. After 128 of them, or 512 KiB, a task yields once to the
//!   other tasks of its thread.
//!
//! The macro `calls!` defines the methods of both columns:
//!
//! | blocking | asynchronous |
//! | --- | --- |
//! | [`Client`](crate::Client) | [`AsyncClient`]; its blocking client: [`AsyncClient::blocking`] |
//! | [`Segment`](crate::Segment) | [`AsyncSegment`] |
//! | [`LockGuard`](crate::LockGuard) | [`AsyncLockGuard`] |
//! | [`Batch`](crate::Batch) | [`AsyncBatch`] |
//! | [`VersionIter`](crate::VersionIter), an iterator | [`VersionStream`](crate::VersionStream), a stream |
//! | [`NameIter`](crate::NameIter), an iterator | [`NameStream`](crate::NameStream), a stream |
//! | [`SegmentList`](crate::SegmentList), an iterator | all entries at once: [`AsyncClient::list`] |
//! | `Shared<T>` | `Shared<T, AsyncSegment>`; `new_async`, `allocate_async` and `open_async` for `new`, `allocate` and `open` |
//! | `SharedSlice<T>` | `SharedSlice<T, AsyncSegment>`, as above |
//!
//! ```
//! # let node = ddssd::EphemeralNode::start()?;
//! # let client = ddss::Client::builder().folder(node.folder()).connect()?;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let client = client.to_async()?;
//! let scores = client.allocate("scores", ddss::Spec::new(4096)).await?;
//! scores.put(0, b"hello").await?;
//! assert_eq!(&scores.get(0..5).await?[..], b"hello");
//! # Ok::<(), ddss::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backpressure;
mod batch;
mod budget;
mod call;
mod client;
mod lock;
mod pause;
mod reactor;
mod reconnect;
mod segment;
mod shared_channel;
pub(crate) mod tasks;
pub(crate) mod wait;

pub use batch::AsyncBatch;
pub use client::AsyncClient;
pub use lock::AsyncLockGuard;
pub use segment::AsyncSegment;
