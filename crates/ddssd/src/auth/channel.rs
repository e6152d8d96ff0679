//! What is said after a handshake, sealed: encrypted, in order, each word once. One direction counts for itself,
//! so a message that is lost, doubled, altered or from another connection does not open.

use snow::TransportState;
use std::fmt;

/// Bytes that a seal adds.
pub(crate) const SEAL_BYTES: usize = 16;

/// A message did not open: it was not said by the other end of this connection, or not in this place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message does not open under the key of its connection")]
pub(crate) struct SealError;

/// One end of an authenticated connection.
pub(crate) struct Channel(TransportState);

impl Channel {
    pub(super) fn new(state: TransportState) -> Self {
        Self(state)
    }

    /// Seals the next message into `sealed`; says how long it is.
    pub(crate) fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) -> Result<usize, SealError> {
        self.0.write_message(plain, sealed).map_err(|_| SealError)
    }

    /// Opens the next message into `plain`; says how long it is.
    pub(crate) fn open(&mut self, sealed: &[u8], plain: &mut [u8]) -> Result<usize, SealError> {
        self.0.read_message(sealed, plain).map_err(|_| SealError)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel(..)")
    }
}
