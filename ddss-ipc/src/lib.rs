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

mod park;
mod ring;
mod sync;

#[cfg(loom)]
#[doc(hidden)]
pub mod model;

/// What talks to the kernel has no place in a model.
macro_rules! outside_the_model {
    ($($item:item)*) => { $(#[cfg(not(loom))] $item)* };
}

outside_the_model! {
    mod attachment;
    mod board;
    mod core_turn;
    mod door;
    mod lane;
    mod layout;
    mod ledger;
    mod link;
    mod queues;
    mod reception;
    mod rings;
    mod road;
    mod service_lane;
    mod session;
    mod socket;
    mod station;
    mod strategy;
    mod sweep;
    mod sys;
    mod watch;
    mod wire;

    pub use attachment::{AttachError, AttachOptions, Attachment};
    pub use lane::{Lane, LaneFull};
    pub use layout::LAYOUT_VERSION;
    pub use reception::{ArrivalSink, Reception, ReceptionConfig};
    pub use road::Waited;
    pub use session::{Arrival, Credentials, Session};
    pub use station::{Idling, Inbox, Offence, Station, StationCounts};
    pub use strategy::{STRATEGY_VARIABLE, Strategy, UnknownStrategy, WaitClass};
    pub use sys::{Access, MemoryError, SharedMemory};
}
