//! RDMA adapters through rdma-core: InfiniBand, RoCE and iWARP, connected by rdma_cm.
//!
//! Each peer has its own protection domain: a window is a registration in the domain of its peer. The key therefore
//! means nothing to other peers and dies with the connection. Memory for local transfers is registered in that domain,
//! too, when it is first used with that peer.
//!
//! Two DDSS nodes send each other frames (`frame.rs`) with a header that carries credits, so that no sender overruns a
//! receive queue. Frames also carry atomics for the home's polling thread, which executes them unless the
//! configuration leaves them to the adapter. Foreign iWARP peers get plain messages.
//!
//! `fabric` implements the trait, `connect` the handshakes and `poll` the event loop. Each `peer` has a
//! `send_queue` and its `peer_resources`; `regions` holds registered memory. `devices` lists adapters,
//! `adapter_selection` selects one.
//!
//! # Misuse that does not compile
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
//! // A fabric may move to the thread that drives it.
//! std::thread::spawn(move || fabric.poll(&mut Events::new()));
//! # Ok(())
//! # }
//! ```
//!
//! Queue pairs and completion queues have one owner: a fabric cannot be cloned,
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
//! nor be posted to while it is borrowed.
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
//! A message must live until it is posted,
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
//! an event does not outlive its list,
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
//! and ids of peers and memory cannot be forged.
//!
//! ```compile_fail
//! let peer = ddss_verbs::PeerId::new(0, 1);
//! ```
//!
//! ```compile_fail
//! let region = ddss_verbs::RegionId { index: 0, generation: 1 };
//! ```
//!
//! Reference counts cover the rest: an operation in flight holds the memory that the adapter may access, and each
//! object holds the objects that it was made from. The order of drops therefore does not matter.

mod adapter_selection;
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
