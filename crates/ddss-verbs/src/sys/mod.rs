//! The unsafe part of the crate. [`mapping`] accesses shared memory, [`socket`] reads into and writes from it, [`crc`]
//! sums it with vector instructions, and [`rdma_core`] wraps the adapter libraries.

pub(crate) mod crc;
mod mapping;
#[cfg(feature = "rdma")]
pub(crate) mod rdma_core;
mod socket;

pub(crate) use mapping::Mapping;
pub(crate) use socket::{Part, receive_into, send_parts, set_low_water};
