//! The road inside a node: shared memory, rings, queues, sleep and wake.
//!
//! *The stop before:* `ddss` writes a request into the calling thread's own [`Lane`].
//! *The stop after:* `ddssd`'s progress thread takes copies out of its [`Station`] and feeds them to the engine in
//! `ddss-core`.
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
//! This crate does not know what an [`Entry`](ddss_core::Entry) means, what a segment is, or that there are other
//! nodes.

mod sync;

mod park;
mod place;
mod ring;

#[cfg(not(loom))]
mod attachment;
#[cfg(not(loom))]
mod board;
#[cfg(not(loom))]
mod door;
#[cfg(not(loom))]
mod lane;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod reception;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod station;
#[cfg(not(loom))]
mod strategy;
#[cfg(not(loom))]
mod sweep;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod wire;

#[cfg(not(loom))]
pub use attachment::{AttachError, AttachOptions, Attachment};
#[cfg(not(loom))]
pub use lane::{Lane, LaneFull, Waited};
#[cfg(not(loom))]
pub use layout::LAYOUT_VERSION;
#[cfg(not(loom))]
pub use place::{FOLDER_VARIABLE, SOCKET_NAME, default_folder};
pub use reception::{ArrivalSink, Reception, ReceptionConfig};
#[cfg(not(loom))]
pub use session::{Arrival, Credentials, Session};
#[cfg(not(loom))]
pub use station::{Inbox, Offence, Station, StationCounts};
#[cfg(not(loom))]
pub use strategy::{STRATEGY_VARIABLE, Strategy, UnknownStrategy, WaitClass};
#[cfg(not(loom))]
pub use sys::{Access, MemoryError, SharedMemory};
