//! The same calls as futures: [`AsyncClient`] and [`AsyncSegment`] have the methods of [`Client`](crate::Client) and
//! [`Segment`](crate::Segment) under the same names, and each is `async`.
//!
//! They run on any executor: on tokio, on a bare `block_on`, on your own. One small thread per asynchronous client
//! waits for completions that no task was quick enough to see by itself, and for deadlines.
//!
//! * *Many at once:* up to 60 calls of one client are under way; more wait for their turn, in order.
//! * *Dropped futures:* a call whose future is dropped goes on in the daemon (a put may or may not happen). Its memory
//!   is used by nobody else until the daemon has said that it ended.
//!
//! A test (`tests/parity.rs`) sees that both sides of this table offer the same:
//!
//! | what blocks | what is awaited |
//! | --- | --- |
//! | [`Client`](crate::Client) | [`AsyncClient`]; what it is attached to: [`AsyncClient::blocking`] |
//! | [`Segment`](crate::Segment) | [`AsyncSegment`] |
//! | [`Locked`](crate::LockGuard) | [`AsyncLockGuard`] |
//! | [`Batch`](crate::Batch) | [`AsyncBatch`] |
//! | [`Versions`](crate::VersionIter), an iterator | [`AsyncVersions`](crate::VersionStream), a stream |
//! | [`Listings`](crate::SegmentList), an iterator | all of them at once: [`AsyncClient::list`] |
//! | `Shared<T>` | `Shared<T, AsyncSegment>`; `of`, `make` and `find` for `new`, `allocate` and `open` |
//! | `SharedSlice<T>` | `SharedSlice<T, AsyncSegment>`, as above |
//!
//! ```
//! # let node = ddssd::Ephemeral::start()?;
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
mod call;
mod client;
mod dispatcher;
mod lock;
mod reactor;
mod reconnect;
mod segment;
mod segment_ops;
mod sleep;
mod typed;

pub use batch::AsyncBatch;
pub use client::AsyncClient;
pub use lock::AsyncLockGuard;
pub use segment::AsyncSegment;
