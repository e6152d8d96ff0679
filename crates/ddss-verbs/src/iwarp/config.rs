//! What one side wants; what the two agree on is in [`Terms`](super::mpa::NegotiatedTerms).

use std::time::Duration;

use crate::limits::READS_OUTSTANDING_DEFAULT;

/// The revision of MPA's start frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581: read limits are negotiated, and both sides may send first.
    Two,
}

/// How an [`Iwarp`](super::Iwarp) behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IwarpConfig {
    /// Ask for CRC32c on every frame. If either side asks, both use it.
    ///
    /// With it, payload is copied into a private buffer while the checksum is made, so that a process that changes
    /// the memory meanwhile cannot make it wrong. Without it, large payload goes between socket and memory uncopied.
    pub crc: bool,
    /// Ask for markers in what we receive. They cost both sides; adapters may need them, we do not.
    pub markers: bool,
    /// The revision in which we connect. Who connects to us is answered in his own.
    pub revision: Revision,
    /// Reads and atomics of a peer that we work on at the same time.
    pub reads_inbound: u16,
    /// Reads and atomics that we have under way to one peer at the same time; the peer's own limit counts too.
    pub reads_outbound: u16,
    /// Connecting, and the start frames, take so long at the most.
    pub handshake_timeout: Duration,
    /// A peer that takes nothing for so long while something waits for it is given up. What it takes is what TCP says of it, and
    /// a receiver tells of new room in large steps: one that takes less than a megabyte a second is silent for a second at a time.
    pub stall_timeout: Duration,
    /// The last bytes of a closed connection may take so long.
    pub linger_timeout: Duration,
}

impl Default for IwarpConfig {
    fn default() -> Self {
        Self {
            crc: true,
            markers: false,
            revision: Revision::Two,
            reads_inbound: READS_OUTSTANDING_DEFAULT,
            reads_outbound: READS_OUTSTANDING_DEFAULT,
            handshake_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(10),
            linger_timeout: Duration::from_millis(500),
        }
    }
}
