//! A network within one process: virtual time, a seed, and faults on demand.
//!
//! A [`SimNet`] makes nodes; each [`Sim`] is a [`Fabric`](crate::Fabric). Nothing moves by itself: time goes by with
//! [`SimNet::advance`], and what is due happens in the polls. The same seed and the same calls give the same run.
//!
//! What may differ from one moment to the next on a real network differs here: each packet has its own delay (in
//! order on one connection, in any order between connections), reads and writes larger than a snapshot are torn into
//! pieces that are taken and placed at different times, connections can be cut and nodes killed with packets
//! under way.

mod fabric;
mod net;
mod peer;
mod random;

pub use fabric::Sim;
pub use net::{SimConfig, SimNet};
pub(crate) use random::mix;
