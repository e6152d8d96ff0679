//! The unsafe part: mapped memory, and sockets that read into and write from it.

pub(crate) mod crc;
mod mapping;
mod socket;

pub(crate) use mapping::Mapping;
pub(crate) use socket::{Part, receive_into, send_parts};
