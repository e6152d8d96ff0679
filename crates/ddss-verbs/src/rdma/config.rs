//! What an owner may choose.

use std::net::IpAddr;
use std::time::Duration;

use crate::fabric::AtomicScope;

/// What messages look like on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Framing {
    /// With our header: credits, immediates, atomics at the home's thread. The other side is one of us, too.
    #[default]
    Ours,
    /// As they are, for a peer that is not: user-space iWARP, or somebody else's program. There are no credits, so a peer
    /// that sends more than is polled for breaks its connection. With [`Ours`](Self::Ours), one that connects to us over
    /// iWARP without our private data is spoken to like this, too; over InfiniBand and RoCE nobody can tell.
    Plain,
}

/// How an [`Rdma`](super::Rdma) behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RdmaConfig {
    /// The adapter by name, as in `rdma link`.
    pub device: Option<String>,
    /// The adapter that has this address. Connections start from it, too.
    pub address: Option<IpAddr>,
    /// Who executes atomics on words of this node. [`AtomicScope::Adapter`] asks for an adapter that can.
    pub atomics: AtomicScope,
    /// How peers are spoken to.
    pub framing: Framing,
    /// Reads and atomics that may be under way in each direction of a connection; the adapter's own limit counts too.
    pub reads: u8,
    /// Whether each read of a batch waits for the one before it: an adapter may otherwise look at memory in another order
    /// than it was asked to, and a get proves by that order that its value is whole. It costs a round trip for each read. By
    /// itself it is so for adapters, and not for the kernel's Soft-RoCE and Soft-iWARP, which keep the order (and Soft-iWARP takes no fence on a read).
    pub fence_reads: Option<bool>,
    /// Finding the way, connecting and being accepted take so long at the most.
    pub handshake_timeout: Duration,
    /// A peer that ends nothing for so long while something is under way is given up.
    pub stall_timeout: Duration,
    /// What is under way when a connection ends may take so long to come back.
    pub drain_timeout: Duration,
    /// The adapter sends again after 4.096 µs × 2 to the power of this, eight times in all (16: 0.27 s, 2 s).
    pub ack_timeout: u8,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            device: None,
            address: None,
            atomics: AtomicScope::Thread,
            framing: Framing::Ours,
            reads: 128,
            fence_reads: None,
            handshake_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_millis(500),
            ack_timeout: 16,
        }
    }
}
