//! The road inside a node: shared memory, rings, queues, sleep and wake.
//!
//! *The stop before:* `ddss` writes a request into the calling thread's own [`Lane`].
//! *The stop after:* `ddssd`'s progress thread takes copies out of its [`Station`], for the engine in `ddss-core`.
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

mod calls;
#[cfg(loom)]
#[doc(hidden)]
pub mod model;
mod park;
mod ring;
mod slots;
mod sync;
pub use calls::{CallId, Calls, Ended, Found};
pub use slots::SlotMap;

#[cfg(not(loom))]
mod attachment;
#[cfg(not(loom))]
mod board;
#[cfg(not(loom))]
mod caller;
#[cfg(not(loom))]
mod door;
#[cfg(not(loom))]
mod follow;
#[cfg(not(loom))]
mod lane;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod ledger;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod place;
#[cfg(not(loom))]
mod queues;
#[cfg(not(loom))]
mod reception;
#[cfg(not(loom))]
mod rings;
#[cfg(not(loom))]
mod road;
#[cfg(not(loom))]
mod sentry;
#[cfg(not(loom))]
mod service_lane;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod station;
#[cfg(not(loom))]
mod status;
#[cfg(not(loom))]
mod strategy;
#[cfg(not(loom))]
mod sweep;
mod sys;
#[cfg(not(loom))]
mod view;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod wire;

#[cfg(not(loom))]
pub use attachment::{AttachError, AttachOptions, Attachment};
#[cfg(not(loom))]
pub use follow::{Followed, clock_ns};
#[cfg(not(loom))]
pub use lane::{Lane, LaneFull};
#[cfg(not(loom))]
pub use layout::LAYOUT_VERSION;
#[cfg(not(loom))]
pub use place::{FOLDER_VARIABLE, SOCKET_NAME, client_folder, default_folder, socket_name, status_name};
#[cfg(not(loom))]
pub use reception::{ArrivalSink, PerUser, Reception, ReceptionConfig};
#[cfg(not(loom))]
pub use road::Waited;
#[cfg(not(loom))]
pub use session::{Arrival, Credentials, Session};
#[cfg(not(loom))]
pub use station::{Answerer, Idling, Inbox, Offence, Station, StationCounts};
#[cfg(not(loom))]
pub use status::{Life, STATUS_NAME, StatusReadError, process_began, read_all_statuses, read_status};
#[cfg(not(loom))]
pub use strategy::{STRATEGY_VARIABLE, Strategy, UnknownStrategy, WaitClass};
#[cfg(not(loom))]
pub use sys::{Access, Claimed, Claims, Desk, Framed, Inherited, MemoryError, SharedMemory, exit_for_lost_files};
#[cfg(not(loom))]
pub use view::{Views, view};
