//! Settings of streams on the wire.

use std::time::Duration;

use ddss_sdp::{Plan, StreamConfig};

use super::engine::capabilities;
use crate::limits::WIRE_HANDSHAKE_MAX;

/// Settings of a stream on the wire.
#[derive(Clone, Copy, Debug)]
pub struct WireConfig {
    /// Way in which the stream moves its bytes. Both sides get the basic one if either wants it.
    pub plan: Plan,
    /// True if the frames that this side receives have markers, as iWARP asks for on TCP.
    pub markers: bool,
    /// True if frames have checksums. Off only if both sides say so.
    pub checksums: bool,
    /// True if the socket gets all messages of a call at once. False: a system call for each message of the basic plan, as a fabric takes
    /// them one by one. The enhanced plan has frames side by side in one ring, and always sends them at once.
    pub batching: bool,
    /// Buffers; and `no_delay`, which is on: each write leaves at once. Off, small writes wait while the peer has not acknowledged what was
    /// written before. They leave with its acknowledgement, or before this side waits for anything. A program that sets this off calls
    /// `flush` when it has nothing more to write.
    pub stream: StreamConfig,
    /// Maximum time until the peer has answered the hello.
    pub handshake_max: Duration,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self {
            plan: Plan::of(&capabilities()),
            markers: true,
            checksums: true,
            batching: true,
            // A message of a private buffer has to fit one frame.
            stream: StreamConfig { buffer_bytes_max: 63 << 10, no_delay: true, ..StreamConfig::default() },
            handshake_max: WIRE_HANDSHAKE_MAX,
        }
    }
}

impl WireConfig {
    /// Sets the basic plan, that of the specification.
    #[must_use]
    pub fn basic(self) -> Self {
        Self { plan: Plan::basic(), ..self }
    }

    /// Sets the basic plan with reads in place: see [`WireStream::write_zero_copy`](super::WireStream::write_zero_copy).
    #[must_use]
    pub fn zero_copy(self) -> Self {
        Self { plan: Plan { zero_copy: true, ..Plan::basic() }, ..self }
    }
}
