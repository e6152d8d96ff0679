//! The same calls as futures: [`AsyncClient`] and [`AsyncSegment`] have the methods of [`Client`](crate::Client) and
//! [`Segment`](crate::Segment) under the same names, and each is `async`.
//!
//! They run on any executor: on tokio, on a bare `block_on`, on your own. One small thread per asynchronous client
//! waits for completions that no task was quick enough to see by itself, and for deadlines.
//!
//! * *Many at once:* up to 64 calls of one client are under way; more wait for their turn, in order.
//! * *Dropped futures:* a call whose future is dropped goes on in the daemon (a put may or may not happen). Its memory
//!   is used by nobody else until the daemon has said that it ended.
//!
//! ```no_run
//! use ddss::{Client, Spec};
//! # async fn example() -> Result<(), ddss::Error> {
//! let client = Client::connect()?.to_async()?;
//! let scores = client.allocate("scores", Spec::new(4096)).await?;
//! scores.put(0, b"hello").await?;
//! assert_eq!(&scores.get(0..5).await?[..], b"hello");
//! # Ok(())
//! # }
//! ```

mod call;
mod client;
mod lock;
mod more;
mod reactor;
mod road;
mod segment;

pub use client::AsyncClient;
pub use lock::AsyncLocked;
pub use segment::AsyncSegment;
