//! Data flow between processes on several nodes: a slow node costs its share of the speed and no more.
//!
//! A [`Queue`] carries messages from its [`Producer`]s to its [`Consumer`]s. A message goes to a consumer that asks for one, so
//! that each gets as many as it can process. It stays with its producer until it is acknowledged: if its consumer dies, another
//! one gets it, flagged. Messages travel one-sided into the memory of their consumer; DDSS names the queue, decides who joins and
//! notices deaths.
//!
//! ```no_run
//! use ddss_river::{Queue, QueueOptions};
//! let client = ddss::Client::connect()?;
//! let queue = Queue::open(&client, "frames", QueueOptions::new())?;
//! if std::env::args().nth(1).as_deref() == Some("put") {
//!     let producer = queue.producer()?;
//!     for number in 0..1000_u32 {
//!         producer.put(&number.to_le_bytes())?;
//!     }
//!     queue.close()?;
//! } else {
//!     let mut consumer = queue.consumer()?;
//!     while let Some(message) = consumer.take()? {
//!         println!("{:?}", &message[..]);
//!         message.acknowledge();
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`UnitQueue`] lists work units in a table of the cluster. Workers claim them; the list survives each process.
//!
//! A [`Flow`](flow::Flow) joins modules by queues and lists, and runs them in several processes.
//!
//! [`Files`] loads and reads collections, whose parts lie on two [`FileServer`]s each.
//!
//! The engines are in `ddss-river-core`, the members are those of `ddss-group`. This crate joins them: `state` is what callers and
//! the service thread share, `link` the service thread, `queue` the calls of a queue, `units` those of a
//! unit queue, `files` the mirrored files, and `flow` the flows.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod error;
mod files;
pub mod flow;
mod link;
mod queue;
mod state;
mod units;

pub use ddss_river_core::Guarantee;
pub use error::QueueError;
pub use files::{
    CollectionChunk, CollectionInfo, CollectionReader, Damage, FileServer, Files, FilesOptions, UnorderedReader,
};
pub use queue::{Consumer, MemberWork, Message, Producer, Queue, QueueInfo, QueueMember, QueueOptions, QueueStatus};
pub use units::{Unit, UnitInfo, UnitOptions, UnitQueue, UnitStatus};

/// Calls that are futures, for any executor: [`Producer::aio`] and [`Consumer::aio`].
pub mod aio {
    pub use crate::queue::{AsyncConsumer as Consumer, AsyncProducer as Producer};
}
