//! The unsafe part: mapped memory, sockets that read into and write from it, and adapters that do so by themselves.

pub(crate) mod crc;
mod mapping;
#[cfg(feature = "rdma")]
pub(crate) mod rdma_core;
mod socket;

pub(crate) use mapping::Mapping;
pub(crate) use socket::{Part, receive_into, send_parts, set_low_water};
