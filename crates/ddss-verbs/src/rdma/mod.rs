//! RDMA adapters through rdma-core: InfiniBand, RoCE and iWARP, connected by rdma_cm.
//!
//! One protection domain a peer: a window is a registration in the domain of the peer that it is for, so its key means
//! nothing to anybody else and dies with the connection. What is moved here is registered in that domain, too, when it
//! is used with that peer for the first time.
//!
//! Two nodes that both speak this send each other frames (`frame.rs`): messages with a header that carries credits, so
//! that nobody ever sends into a receive queue that is empty; and atomics for the home's polling thread, which is the
//! arbiter of its words unless it was told to leave that to the adapter. Somebody else's iWARP is spoken to plainly.
//!
//! # What the types forbid
//!
//! This compiles:
//!
//! ```no_run
//! use ddss_verbs::rdma::{Rdma, RdmaConfig};
//! use ddss_verbs::{Events, Fabric, PeerId, SendMode, Work};
//!
//! fn greet(fabric: &mut Rdma, peer: PeerId, message: Vec<u8>) -> bool {
//!     let work = [Work::Send { peer, tag: 1, message: &message, mode: SendMode::default() }];
//!     fabric.post(&work).is_ok()
//! }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut fabric = Rdma::new(RdmaConfig::default())?;
//! let mut events = Events::new();
//! fabric.poll(&mut events);
//! // A fabric may move to the thread that is to drive it.
//! std::thread::spawn(move || fabric.poll(&mut Events::new()));
//! # Ok(())
//! # }
//! ```
//!
//! Queue pairs and completion queues have one owner: it cannot be doubled,
//!
//! ```compile_fail
//! # use ddss_verbs::rdma::Rdma;
//! fn double(fabric: &Rdma) -> Rdma {
//!     fabric.clone()
//! }
//! ```
//!
//! nor be used by two threads,
//!
//! ```compile_fail
//! # use ddss_verbs::{Fabric, rdma::Rdma};
//! fn share(fabric: &Rdma) {
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| fabric.capabilities());
//!     });
//! }
//! ```
//!
//! nor be posted to while somebody else looks at it.
//!
//! ```compile_fail
//! # use ddss_verbs::{Fabric, Work, rdma::Rdma};
//! fn at_once(fabric: &mut Rdma, work: &[Work<'_>]) {
//!     let descriptor = fabric.descriptor();
//!     let _ = fabric.post(work);
//!     println!("{descriptor:?}");
//! }
//! ```
//!
//! A message may not be given away before it was posted,
//!
//! ```compile_fail
//! # use ddss_verbs::{Fabric, PeerId, SendMode, Work, rdma::Rdma};
//! fn greet(fabric: &mut Rdma, peer: PeerId, message: Vec<u8>) {
//!     let work = [Work::Send { peer, tag: 1, message: &message, mode: SendMode::default() }];
//!     drop(message);
//!     let _ = fabric.post(&work);
//! }
//! ```
//!
//! what arrived is not kept beyond its list,
//!
//! ```compile_fail
//! # use ddss_verbs::{Fabric, Events, rdma::Rdma};
//! fn keep(fabric: &mut Rdma, events: &mut Events) {
//!     let first = events.get(0);
//!     fabric.poll(events);
//!     println!("{first:?}");
//! }
//! ```
//!
//! and nobody makes up the name of a peer or of memory.
//!
//! ```compile_fail
//! let peer = ddss_verbs::PeerId::new(0, 1);
//! ```
//!
//! ```compile_fail
//! let region = ddss_verbs::RegionId { index: 0, generation: 1 };
//! ```
//!
//! What types cannot forbid is counted and checked: memory that the adapter may touch is held by its operation until that has
//! ended, and every object by what was made of it, so that nothing has to be dropped in an order.

mod config;
mod connect;
mod devices;
mod error;
mod fabric;
mod frame;
mod peer;
mod peer_resources;
mod peer_table;
mod poll;
mod regions;
mod send_queue;

pub use config::{Framing, RdmaConfig};
pub use devices::{AdapterInfo, GidInfo, PortInfo, adapters};
pub use error::RdmaError;
pub use fabric::Rdma;
