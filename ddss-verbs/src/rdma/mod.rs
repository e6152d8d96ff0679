//! RDMA adapters through rdma-core: InfiniBand, RoCE and iWARP, connected by rdma_cm.
//!
//! One protection domain a peer: a window is a registration in the domain of the peer that it is for, so its key means
//! nothing to anybody else and dies with the connection. What is moved here is registered in that domain, too, when it
//! is used with that peer for the first time.
//!
//! Two nodes that both speak this send each other frames (`frame.rs`): messages with a header that carries credits, so
//! that nobody ever sends into a receive queue that is empty; and atomics for the home's polling thread, which is the
//! arbiter of its words unless it was told to leave that to the adapter. Somebody else's iWARP is spoken to plainly.

mod config;
mod control;
mod drive;
mod error;
mod fabric;
mod frame;
mod inspect;
mod local;
mod peer;
mod regions;
mod table;
mod work;

pub use config::{Framing, RdmaConfig};
pub use error::RdmaError;
pub use fabric::Rdma;
pub use inspect::{AdapterInfo, GidInfo, PortInfo, adapters};
