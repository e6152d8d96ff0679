//! Configuration of the RDMA fabric.

use std::net::IpAddr;
use std::time::Duration;

use crate::fabric::AtomicScope;
use crate::limits::MESSAGE_BYTES_DEFAULT;

/// Format of messages on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Framing {
    /// With the DDSS frame header: credits, immediate data, and atomics executed by the home's thread. The peer must
    /// be a DDSS node too.
    #[default]
    Ddss,
    /// Without a header, for a foreign peer such as another iWARP program. There are no credits, so a peer that sends
    /// faster than this node polls breaks its connection. With [`Ddss`](Self::Ddss), an iWARP peer that connects
    /// without the DDSS private data gets this format as well; over InfiniBand and RoCE such a peer cannot be
    /// recognized.
    Plain,
}

/// Configuration of an [`Rdma`](super::Rdma) fabric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RdmaConfig {
    /// Name of the adapter, as in `rdma link`.
    pub device: Option<String>,
    /// Address that selects the adapter. Connections start from it, too.
    pub address: Option<IpAddr>,
    /// Unit that executes atomics on words of this node. [`AtomicScope::Adapter`] needs an adapter with atomics.
    pub atomics: AtomicScope,
    /// Message format for peers.
    pub framing: Framing,
    /// Bytes of the longest message: a power of two from 512 to 65,536, the same on both sides. Each peer uses that
    /// much locked memory for each of 64 to 256 messages in each direction.
    pub message_bytes_max: usize,
    /// Reads and atomics in flight in each direction of a connection; the adapter's own limit applies as well.
    pub reads_outstanding_max: u8,
    /// Orders the reads of a batch with fences. An adapter may otherwise read memory in another order than requested,
    /// and a get relies on that order to prove that its value is consistent. A fence costs a round trip for each read.
    /// `None`: fences for adapters, but not for the kernel's Soft-RoCE and Soft-iWARP, which keep the order
    /// (Soft-iWARP rejects a fence on a read).
    pub fence_reads: Option<bool>,
    /// Limit for address resolution, connecting and being accepted.
    pub handshake_timeout: Duration,
    /// Time after which a peer is given up that completes nothing while operations are in flight.
    pub stall_timeout: Duration,
    /// Limit for completions of operations in flight after a connection ends.
    pub drain_timeout: Duration,
    /// Retransmission timeout of the adapter: 4.096 µs × 2 to the power of this, eight attempts in all (16: 0.27 s, 2
    /// s).
    pub ack_timeout: u8,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            device: None,
            address: None,
            atomics: AtomicScope::Thread,
            framing: Framing::Ddss,
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
            reads_outstanding_max: 128,
            fence_reads: None,
            handshake_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_millis(500),
            ack_timeout: 16,
        }
    }
}
