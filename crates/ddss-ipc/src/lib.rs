//! The road inside a node: shared memory, rings, queues, sleep and wake.
//!
//! *The stop before:* `ddss` writes a request into the calling thread's own [`Channel`].
//! *The stop after:* `ddssd`'s progress thread takes copies out of its [`IpcServer`], for the engine in `ddss-core`.
//!
//! ```text
//!        client process                                  daemon
//!   +------------------------+    hello, descriptors   +-------------------------+
//!   | Attachment::connect    | <---- Unix socket ----> | Reception (own thread)  |
//!   |                        |                         |     | Arrival           |
//!   |  Lane (one a thread)   |    one sealed memfd     |     v                   |
//!   |    submit  ---------------> request ring ----------> Station::poll         |
//!   |    reap   <-------------- completion ring <--------- Station::reply        |
//!   |    arena  <------------- payloads, both ways ------> Station::arena        |
//!   +------------------------+                         +-------------------------+
//!                      notice board: daemon writes, clients only read
//! ```
//!
//! ```
//! use ddss_core::NodeId;
//! use ddss_ipc::{Arrival, AttachOptions, Attachment, Reception, ReceptionConfig, Station, WaitClass, Waited};
//! use std::time::{Duration, Instant};
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("socket");
//! // The daemon: a station and a reception.
//! let mut station = Station::open(NodeId(1))?;
//! let reception = Reception::start(&path, ReceptionConfig::new(&station), station.inbox().sink())?;
//! let service = std::thread::spawn(move || -> Result<(), ddss_ipc::MemoryError> {
//!     let mut batch = Vec::with_capacity(64);
//!     loop {
//!         match station.arrival() {
//!             Some(Arrival::Attached(session)) => drop(station.adopt(session)?),
//!             Some(Arrival::Left(_)) => return Ok(()),
//!             None => {}
//!         }
//!         station.poll(64, &mut batch);
//!         for (lane, [word, question, ..]) in batch.drain(..) {
//!             station.reply(lane, &[word, question + 1, 0, 0, 0, 0, 0, 0]);
//!         }
//!         station.flush();
//!     }
//! });
//! // A client, usually in another process.
//! let attachment = Attachment::connect(&path, &AttachOptions::default())?;
//! let mut lane = attachment.take_lane().ok_or("all lanes are taken")?;
//! lane.submit([0, 41, 0, 0, 0, 0, 0, 0])?;
//! lane.ring();
//! assert_eq!(lane.wait(WaitClass::Polling, Instant::now() + Duration::from_secs(2)), Waited::Ready);
//! assert_eq!(lane.reap().map(|entry| entry[1]), Some(42));
//! drop((lane, attachment));
//! service.join().expect("the service did not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It does not know what an [`Entry`](ddss_core::Entry) means, what a segment is, or that there are other nodes.

#![cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "the models use a part of the crate"))]

mod client;
#[cfg(not(loom))]
mod handshake;
#[cfg(loom)]
#[doc(hidden)]
pub mod loom_model;
#[cfg(not(loom))]
mod paths;
mod server;
mod shm;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod strategy;
mod sync;
mod sys;
#[cfg(not(loom))]
mod trace_sampling;
mod transport;
mod wait;
pub use client::call_table::{CallId, CallStatus, CallTable, Notify};
pub use shm::slot_bitmap::SlotBitmap;

#[cfg(not(loom))]
pub use client::attachment::{AttachError, AttachOptions, Attachment};
#[cfg(not(loom))]
pub use client::channel::{Channel, ChannelFull};
#[cfg(not(loom))]
pub use paths::{FOLDER_VARIABLE, SOCKET_NAME, client_folder, default_folder, socket_name, status_name};
#[cfg(not(loom))]
pub use server::acceptor::{Acceptor, AcceptorConfig, ArrivalSink, UserLimit};
#[cfg(not(loom))]
pub use server::server::{IdleMode, Inbox, IpcServer, ProtocolViolation, RequestHandler, ServerCounts};
#[cfg(not(loom))]
pub use server::session::{Arrival, Credentials, Session};
#[cfg(not(loom))]
pub use shm::area_mapping::{AreaAccess, view};
#[cfg(not(loom))]
pub use shm::layout::LAYOUT_VERSION;
#[cfg(not(loom))]
pub use shm::status_page::{Life, STATUS_NAME, StatusReadError, process_began, read_all_statuses, read_status};
#[cfg(not(loom))]
pub use strategy::{STRATEGY_VARIABLE, Strategy, UnknownStrategy, WaitClass};
#[cfg(not(loom))]
pub use sys::{
    Access, Combiner, InheritedSocket, MemoryError, PoolGuard, Seqlock, SharedMemory, TryLockPool, exit_for_lost_files,
};
#[cfg(not(loom))]
pub use trace_sampling::{TracedRequest, clock_ns};
#[cfg(not(loom))]
pub use transport::channel_transport::WaitOutcome;
