//! Violations of the protocol by a client.

use ddss_core::{ChannelId, ClientId};

/// Violations of the protocol that no correct client commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// The request ring holds an invalid sequence.
    #[error("channel {} of {} holds sequence {found}, expected {awaited}", channel.index, channel.client)]
    Sequence {
        /// Channel of the violation.
        channel: ChannelId,
        /// Sequence in the slot.
        found: u32,
        /// Sequence that is expected.
        awaited: u32,
    },
    /// The message queue lacks announced messages, holds malformed ones, or was removed.
    #[error("the message queue of channel {} of {} is corrupt or removed", channel.index, channel.client)]
    Queue {
        /// Channel of the violation.
        channel: ChannelId,
    },
}

impl ProtocolViolation {
    /// Returns the client that violated the protocol.
    pub fn client(&self) -> ClientId {
        let (Self::Sequence { channel, .. } | Self::Queue { channel }) = self;
        channel.client
    }
}
