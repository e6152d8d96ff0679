//! Sealed messages after a handshake: encrypted, ordered, and each accepted once.
//!
//! Each direction has its own counter, so a message that is lost, duplicated, altered or from another connection does
//! not open.

use snow::TransportState;
use std::fmt;

/// Bytes that a seal adds.
pub const SEAL_BYTES: usize = 16;

/// A message does not open: it is not from the other end of this connection, or out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message does not open under the key of its connection")]
pub struct SealError;

/// One end of an authenticated connection.
pub struct Channel(TransportState);

impl Channel {
    pub(crate) fn new(state: TransportState) -> Self {
        Self(state)
    }

    /// Seals the next message into `sealed`, and returns its length.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) -> Result<usize, SealError> {
        self.0.write_message(plain, sealed).map_err(|_| SealError)
    }

    /// Opens the next message into `plain`, and returns its length.
    pub fn open(&mut self, sealed: &[u8], plain: &mut [u8]) -> Result<usize, SealError> {
        self.0.read_message(sealed, plain).map_err(|_| SealError)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel(..)")
    }
}
