//! rdma-core, opened at run time: what is unsafe about devices, protection domains, queues and connections, behind types
//! that cannot be used wrongly.
//!
//! ```text
//!  Adapter ◄── Domain ◄── Registered (a range of a Mapping, which it keeps)
//!     ▲           ▲            ▲
//!     │           └── Queue ───┘  holds what is in flight until it has ended
//!     ├── Completions ◄─┘ │
//!     └── Channel ◄┘      ▼
//!                     Endpoint ──► Hub (events of connections)
//! ```
//!
//! Every arrow is an `Arc`, so nothing is given back to the library before what was made of it. No type here is tied to a
//! thread; the libraries themselves may be called from any.

mod abi;
mod adapter;
mod async_events;
mod cm_events;
mod endpoint;
mod in_flight;
mod library;
mod memory;
mod queue;

pub(crate) use adapter::{Adapter, AdapterFacts, AsyncNotice, PortFacts};
pub(crate) use cm_events::{CmEventChannel, CmEventKind, ConnectionEvent};
pub(crate) use endpoint::{ConnectParameters, Endpoint};
pub(crate) use in_flight::{FailureCause, FinishedWork};
pub(crate) use library::Unavailable;
pub(crate) use memory::{Access, Domain, Registered};
pub(crate) use queue::{Arrived, Channel, Completions, Depths, Queue, Request};
