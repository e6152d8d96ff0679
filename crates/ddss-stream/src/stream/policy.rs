//! Choice of a transport.

use crate::wire::WireConfig;

/// Transport of a stream at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// The kernel's TCP.
    Tcp,
    /// Shared memory of this node.
    SameNode,
    /// The Sockets Direct Protocol on TCP.
    Wire,
}

/// Choice of a transport. Both ends of a stream need one that fits: a peer on the wire and a peer on TCP do not understand each other.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum TransportPolicy {
    /// Shared memory if the peer is on this node and offers it, else TCP.
    #[default]
    Auto,
    /// TCP.
    Tcp,
    /// The Sockets Direct Protocol on TCP, with a checksum over each frame.
    Wire(WireConfig),
}
