//! Errors of creating a fabric over an adapter.

use std::io;
use std::net::IpAddr;

use crate::sys::rdma_core::Unavailable;

/// Error of creating a fabric over an adapter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// The library is missing, or there is no device.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// No device has this name.
    #[error("no rdma device {requested}; available: {available}")]
    NoSuchDevice {
        /// Requested name.
        requested: String,
        /// Existing devices.
        available: String,
    },
    /// No device has this address.
    #[error("{address} is not the address of an rdma device; available: {available}")]
    NoSuchAddress {
        /// Requested address.
        address: IpAddr,
        /// Existing devices.
        available: String,
        /// Error of the connection manager.
        #[source]
        source: io::Error,
    },
    /// The device exists, but its link is down.
    #[error("the link of rdma device {0} is down")]
    LinkDown(String),
    /// The limit of messages in the configuration is not permitted.
    #[error("message_bytes_max of {0} is no power of two from 512 to 65536")]
    MessageLimit(usize),
    /// The adapter has no atomics, but the configuration needs them.
    #[error("rdma device {0} has no atomics; leave them to the thread")]
    NoAtomics(String),
    /// The adapter rejects fences on reads, but the configuration needs them.
    #[error("rdma device {0} rejects fences on reads and keeps the order without them; disable fences")]
    NoFences(String),
    /// A system call failed.
    #[error("cannot {what} on rdma device {device}")]
    System {
        /// Attempted operation.
        what: &'static str,
        /// Device.
        device: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
}
