//! Events of a fabric, borrowed from one buffer so that the data path does not allocate.

use std::io;
use std::net::SocketAddr;

use crate::id::PeerId;
use crate::terminate_code::TerminateCode;

/// Something that happened on a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A peer requests a connection; answer with `accept` or `reject` before the deadline.
    ConnectRequest {
        /// The new peer.
        peer: PeerId,
        /// Address of the peer.
        address: SocketAddr,
        /// Private data of the request.
        hello: &'a [u8],
    },
    /// The [admission filter](crate::AdmissionFilter) admitted a peer. Take its
    /// [token](crate::Fabric::take_admission_token), then answer as for a connect request.
    Admitted {
        /// The new peer.
        peer: PeerId,
        /// Address of the peer.
        address: SocketAddr,
    },
    /// A connection is established.
    Connected {
        /// The peer.
        peer: PeerId,
        /// Private data of the accepting side; empty on the accepting side itself.
        hello: &'a [u8],
    },
    /// A connection ended or was never established. The last event of this peer.
    Closed {
        /// The peer.
        peer: PeerId,
        /// Reason.
        reason: CloseReason,
        /// Reason text of the other side, with [`CloseReason::Rejected`].
        hello: &'a [u8],
    },
    /// An operation completed.
    Done {
        /// The peer.
        peer: PeerId,
        /// Tag of the posted work.
        tag: u64,
        /// Previous value of the word for atomics, else 0.
        outcome: Result<u64, WorkError>,
    },
    /// A message arrived. Every write that the peer posted before it is in memory.
    Message {
        /// The peer.
        peer: PeerId,
        /// The message.
        bytes: &'a [u8],
        /// True if the sender requested a solicited event.
        solicited: bool,
        /// Key of the local window that the message invalidated.
        invalidated: Option<u32>,
    },
    /// Eight bytes of immediate data arrived, in order with the messages.
    Immediate {
        /// The peer.
        peer: PeerId,
        /// The bytes.
        data: [u8; 8],
        /// True if the sender requested a solicited event.
        solicited: bool,
    },
}

/// Error of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// Certainly not executed: the connection ended before the operation left this node.
    #[error("not executed: the connection ended before")]
    NotExecuted,
    /// Certainly not executed: the peer named the operation and the reason.
    #[error("not executed: refused by the peer: {0}")]
    Refused(TerminateCode),
    /// Possibly executed: the connection ended while the operation was in flight.
    #[error("outcome unknown: the connection ended while the operation was in flight")]
    Indeterminate,
    /// An abandoned read; local memory is not touched any more.
    #[error("the read was abandoned")]
    Abandoned,
}

impl WorkError {
    /// Returns true if the operation certainly did nothing at the peer.
    #[must_use]
    pub fn is_definite(self) -> bool {
        matches!(self, WorkError::NotExecuted | WorkError::Refused(_))
    }
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The local side called `close` or `reject`.
    #[error("closed locally")]
    Local,
    /// The peer closed the connection in order.
    #[error("closed by the peer")]
    ClosedByPeer,
    /// The connection could not be established.
    #[error("cannot connect: {0}")]
    Unreachable(io::ErrorKind),
    /// The peer rejected the request.
    #[error("rejected by the peer")]
    Rejected,
    /// The connection broke.
    #[error("lost: {0}")]
    Lost(io::ErrorKind),
    /// The deadline passed: the connection was not established in time, or the peer accepted no bytes for too long.
    #[error("the deadline passed")]
    TimedOut,
    /// The peer violated the protocol and was sent a terminate message.
    #[error("protocol violation by the peer: {0}")]
    ProtocolViolation(TerminateCode),
    /// The peer reports a protocol violation of this side.
    #[error("terminated by the peer: {0}")]
    Terminated(TerminateCode),
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    bytes: u32,
}

#[derive(Clone, Copy)]
enum BufferedEvent {
    ConnectRequest { peer: PeerId, address: SocketAddr, hello: Span },
    Admitted { peer: PeerId, address: SocketAddr },
    Connected { peer: PeerId, hello: Span },
    Closed { peer: PeerId, reason: CloseReason, hello: Span },
    Done { peer: PeerId, tag: u64, outcome: Result<u64, WorkError> },
    Message { peer: PeerId, bytes: Span, solicited: bool, invalidated: Option<u32> },
    Immediate { peer: PeerId, data: [u8; 8], solicited: bool },
}

/// Events of one or more polls. Reuse the buffer and [`clear`](Self::clear) it: its capacity grows to the peak and
/// stays there.
#[derive(Default)]
pub struct Events {
    entries: Vec<BufferedEvent>,
    bytes: Vec<u8>,
}

impl Events {
    /// Returns an empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Vec::with_capacity(256), bytes: Vec::with_capacity(16 << 10) }
    }

    /// Returns the number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all events and keeps the capacity.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Returns the event at a position. `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Event<'_>> {
        self.entries.get(index).map(|entry| self.view(*entry))
    }

    /// Iterates over the events in order of occurrence.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        self.entries.iter().map(|entry| self.view(*entry))
    }

    fn view(&self, entry: BufferedEvent) -> Event<'_> {
        match entry {
            BufferedEvent::ConnectRequest { peer, address, hello } => {
                Event::ConnectRequest { peer, address, hello: self.slice(hello) }
            }
            BufferedEvent::Admitted { peer, address } => Event::Admitted { peer, address },
            BufferedEvent::Connected { peer, hello } => Event::Connected { peer, hello: self.slice(hello) },
            BufferedEvent::Closed { peer, reason, hello } => Event::Closed { peer, reason, hello: self.slice(hello) },
            BufferedEvent::Done { peer, tag, outcome } => Event::Done { peer, tag, outcome },
            BufferedEvent::Message { peer, bytes, solicited, invalidated } => {
                Event::Message { peer, bytes: self.slice(bytes), solicited, invalidated }
            }
            BufferedEvent::Immediate { peer, data, solicited } => Event::Immediate { peer, data, solicited },
        }
    }

    fn slice(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..span.bytes as usize]
    }

    fn store(&mut self, bytes: &[u8]) -> Span {
        let start = u32::try_from(self.bytes.len()).expect("a poll is budgeted to far less than 4 GiB of messages");
        self.bytes.extend_from_slice(bytes);
        Span { start, bytes: bytes.len() as u32 }
    }

    pub(crate) fn push_connect_request(&mut self, peer: PeerId, address: SocketAddr, hello: &[u8]) {
        let hello = self.store(hello);
        self.entries.push(BufferedEvent::ConnectRequest { peer, address, hello });
    }

    pub(crate) fn push_admitted(&mut self, peer: PeerId, address: SocketAddr) {
        self.entries.push(BufferedEvent::Admitted { peer, address });
    }

    pub(crate) fn push_connected(&mut self, peer: PeerId, hello: &[u8]) {
        let hello = self.store(hello);
        self.entries.push(BufferedEvent::Connected { peer, hello });
    }

    pub(crate) fn push_closed(&mut self, peer: PeerId, reason: CloseReason, hello: &[u8]) {
        let hello = self.store(hello);
        self.entries.push(BufferedEvent::Closed { peer, reason, hello });
    }

    pub(crate) fn push_done(&mut self, peer: PeerId, tag: u64, outcome: Result<u64, WorkError>) {
        self.entries.push(BufferedEvent::Done { peer, tag, outcome });
    }

    pub(crate) fn push_message(&mut self, peer: PeerId, bytes: &[u8], solicited: bool, invalidated: Option<u32>) {
        let bytes = self.store(bytes);
        self.entries.push(BufferedEvent::Message { peer, bytes, solicited, invalidated });
    }

    pub(crate) fn push_immediate(&mut self, peer: PeerId, data: [u8; 8], solicited: bool) {
        self.entries.push(BufferedEvent::Immediate { peer, data, solicited });
    }
}
