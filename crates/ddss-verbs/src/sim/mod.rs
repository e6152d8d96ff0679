//! A network within one process: virtual time, a seed, and fault injection.
//!
//! A [`SimNet`] makes nodes; each [`Sim`] is a [`Fabric`](crate::Fabric). Time passes only with [`SimNet::advance`],
//! and due events happen in the polls. The same seed and the same calls give the same run.
//!
//! The simulation varies what a real network varies. Each packet has its own delay (in order on one connection, in any
//! order between connections). Reads and writes larger than a snapshot are torn into pieces that are taken and placed
//! at different times. Connections can be cut and nodes killed with packets in flight.
//!
//! `state` holds the packets, `peer` the connections and `fabric` the nodes; `net` makes nodes and faults.

mod fabric;
mod net;
mod peer;
mod state;

pub use fabric::Sim;
pub use net::SimNet;
pub use state::SimConfig;
