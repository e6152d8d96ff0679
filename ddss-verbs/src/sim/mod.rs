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

pub use fabric::Sim;
pub use net::{SimConfig, SimNet};

/// The next number of a seed.
pub(crate) fn mix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *seed;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
