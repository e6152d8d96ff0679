//! Configuration of one side. [`NegotiatedTerms`](super::mpa::NegotiatedTerms) holds the result of the negotiation.

use std::time::Duration;

use crate::limits::{MESSAGE_BYTES_DEFAULT, READS_OUTSTANDING_DEFAULT};

/// Revision of the MPA start frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581: read limits are negotiated, and both sides may send first.
    Two,
}

/// Configuration of an [`Iwarp`](super::Iwarp) fabric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IwarpConfig {
    /// Requests CRC32c on every frame. If either side requests it, both use it.
    ///
    /// With CRC, payload is copied to a private buffer while its checksum is computed, so that a process that changes
    /// the memory meanwhile cannot invalidate it. Without CRC, large payload moves between socket and memory without a
    /// copy.
    pub crc: bool,
    /// Requests markers in received frames. They cost both sides; some adapters need them, this implementation does
    /// not.
    pub markers: bool,
    /// Revision of outgoing connection requests. An incoming request is answered in its own revision.
    pub revision: Revision,
    /// Bytes of the longest message, sent or received: a power of two from 512 to 65,536. A longer one of the peer ends the
    /// connection, so both sides need the same limit.
    pub message_bytes_max: usize,
    /// Reads and atomics of a peer that are executed at the same time.
    pub reads_inbound: u16,
    /// Reads and atomics in flight to one peer at the same time; the peer's own limit applies as well.
    pub reads_outbound: u16,
    /// Limit for connecting and the start frames.
    pub handshake_timeout: Duration,
    /// Time after which a peer is given up that accepts no bytes while some wait for it. TCP reports progress, and a
    /// receiver announces new window space in large steps: one that accepts less than a megabyte a second is silent
    /// for a second at a time.
    pub stall_timeout: Duration,
    /// Limit for the last bytes of a closed connection.
    pub linger_timeout: Duration,
}

impl Default for IwarpConfig {
    fn default() -> Self {
        Self {
            crc: true,
            markers: false,
            revision: Revision::Two,
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
            reads_inbound: READS_OUTSTANDING_DEFAULT,
            reads_outbound: READS_OUTSTANDING_DEFAULT,
            handshake_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(10),
            linger_timeout: Duration::from_millis(500),
        }
    }
}
