//! Arguments and errors of a connection's steps.

use crate::events::{CloseReason, Events};
use crate::iwarp::mpa::Enhanced;
use crate::memory::RegionTable;
use crate::terminate_code::TerminateCode;

/// Memory and events that a step may touch besides the connection.
pub(crate) struct Context<'a> {
    pub(crate) memory: &'a mut RegionTable,
    pub(crate) events: &'a mut Events,
}

/// Error of a step that ends the connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionError {
    /// Ends with a terminate message to the peer.
    Fault(TerminateCode),
    /// Ends without a terminate message.
    Close(CloseReason),
}

impl From<TerminateCode> for ConnectionError {
    fn from(fault: TerminateCode) -> Self {
        ConnectionError::Fault(fault)
    }
}

/// The peer's request, until the owner has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRequest {
    pub(super) markers: bool,
    pub(super) crc: bool,
    pub(super) revision: u8,
    pub(super) enhanced: Option<Enhanced>,
}
