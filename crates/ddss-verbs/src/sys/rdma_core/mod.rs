//! rdma-core, opened at run time: safe types around devices, protection domains, queues and connections.
//!
//! ```text
//!  Adapter ◄── Domain ◄── Registered (a range of a Mapping, which it keeps)
//!     ▲           ▲            ▲
//!     │           └── Queue ───┘  holds the operations in flight until they complete
//!     ├── Completions ◄─┘ │
//!     └── Channel ◄┘      ▼
//!                     Endpoint ──► CmEventChannel (events of connections)
//! ```
//!
//! Every arrow is an `Arc`, so no object is returned to the library before the objects made from it. No type here is
//! tied to a thread; the libraries may be called from any thread. [`library`] loads the functions, [`abi`] declares
//! the structures, [`in_flight`] tracks posted operations, and [`async_events`] records errors of queues.

mod abi;
mod adapter;
mod async_events;
mod cm_event_channel;
mod cm_events;
mod endpoint;
mod in_flight;
mod library;
mod memory;
mod queue;

pub(crate) use adapter::{Adapter, AdapterAttributes, AsyncNotice, PortState};
pub(crate) use cm_event_channel::CmEventChannel;
pub(crate) use cm_events::{CmEventKind, ConnectionEvent};
pub(crate) use endpoint::{ConnectParameters, Endpoint};
pub(crate) use in_flight::{FailureCause, FinishedWork};
pub(crate) use library::Unavailable;
pub(crate) use memory::{Access, Domain, Registered};
pub(crate) use queue::{Channel, Completions, Queue, QueueDepths, ReceivedMessage, Request};
