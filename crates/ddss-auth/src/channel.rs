//! Sealed messages after a handshake: encrypted, ordered, and each accepted once.
//!
//! Each direction has its own counter, so a message that is lost, duplicated, altered or from another connection does
//! not open.

use crate::frame::{FrameOpener, FrameSealer, FrameSecrets, SealError};
use snow::TransportState;
use std::fmt;

/// Bytes that a seal adds.
pub const SEAL_BYTES: usize = 16;

/// One end of an authenticated connection.
pub struct Channel {
    state: TransportState,
    /// Until they are taken.
    frames: Option<FrameSecrets>,
}

impl Channel {
    pub(crate) fn new(state: TransportState, frames: FrameSecrets) -> Self {
        Self { state, frames: Some(frames) }
    }

    /// Returns the keys for the frames that carry this connection's bytes, once: a second pair would repeat nonces.
    pub fn take_frame_keys(&mut self) -> Option<(FrameSealer, FrameOpener)> {
        self.frames.take()?.derive()
    }

    /// Seals the next message into `sealed`, and returns its length.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) -> Result<usize, SealError> {
        self.state.write_message(plain, sealed).map_err(|_| SealError)
    }

    /// Opens the next message into `plain`, and returns its length.
    pub fn open(&mut self, sealed: &[u8], plain: &mut [u8]) -> Result<usize, SealError> {
        self.state.read_message(sealed, plain).map_err(|_| SealError)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel(..)")
    }
}
