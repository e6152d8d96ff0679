//! Why there is no fabric over an adapter.

use std::io;
use std::net::IpAddr;

use crate::sys::rdma_core::Unavailable;

/// A fabric over an adapter could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// No library, or no device.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// None of the devices has this name.
    #[error("there is no rdma device {wanted}; there is {there}")]
    NoSuchDevice {
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: String,
    },
    /// None of the devices has this address.
    #[error("{address} is not the address of an rdma device; there is {there}")]
    NoSuchAddress {
        /// What was asked for.
        address: IpAddr,
        /// What there is.
        there: String,
        /// What the connection manager said.
        #[source]
        source: io::Error,
    },
    /// The device is there, and its link is not.
    #[error("the link of rdma device {0} is down")]
    LinkDown(String),
    /// The adapter was to execute atomics, and has none.
    #[error("rdma device {0} has no atomics: leave them to the thread")]
    NoAtomics(String),
    /// Reads were to wait for each other, and the adapter does not take that.
    #[error("rdma device {0} takes no fence on a read, and keeps the order by itself: leave fences off")]
    NoFences(String),
    /// The system refused something.
    #[error("cannot {what} on rdma device {device}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Where.
        device: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}
