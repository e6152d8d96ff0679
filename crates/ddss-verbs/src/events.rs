//! What a fabric tells: events, lent from one buffer so that nothing is allocated on the data path.

use std::io;
use std::net::SocketAddr;

use crate::fabric::PeerId;
use crate::terminate_code::TerminateCode;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Somebody wants to connect; answer with `accept` or `reject` before the deadline.
    Asked {
        /// The new peer.
        peer: PeerId,
        /// Where it comes from.
        address: SocketAddr,
        /// What it said.
        hello: &'a [u8],
    },
    /// The [guard](crate::AdmissionFilter) let somebody in; take his [pass](crate::Fabric::take_pass), and answer as one who asked.
    Admitted {
        /// The new peer.
        peer: PeerId,
        /// Where it comes from.
        address: SocketAddr,
    },
    /// A connection stands.
    Connected {
        /// The peer.
        peer: PeerId,
        /// What the other side said when it accepted (empty on the side that accepted).
        hello: &'a [u8],
    },
    /// A connection is gone, or never came to be. The last event of this peer.
    Closed {
        /// The peer.
        peer: PeerId,
        /// Why.
        reason: CloseReason,
        /// With [`CloseReason::Rejected`], what the other side said.
        hello: &'a [u8],
    },
    /// One operation ended.
    Done {
        /// The peer.
        peer: PeerId,
        /// The tag it was posted with.
        tag: u64,
        /// For atomics, what was in memory before; else 0.
        outcome: Result<u64, WorkError>,
    },
    /// A message arrived. Every write that the peer posted before it is in memory.
    Message {
        /// The peer.
        peer: PeerId,
        /// The message.
        bytes: &'a [u8],
        /// It asked for attention.
        solicited: bool,
        /// The window of ours that it withdrew.
        invalidated: Option<u32>,
    },
    /// Eight bytes arrived, in order with the messages.
    Immediate {
        /// The peer.
        peer: PeerId,
        /// The bytes.
        data: [u8; 8],
        /// They asked for attention.
        solicited: bool,
    },
}

/// Why an operation did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// It certainly did nothing: the connection ended before its turn came.
    #[error("did nothing: the connection ended before")]
    NotDone,
    /// It certainly did nothing: the peer named it and said why.
    #[error("did nothing: the peer refused it: {0}")]
    Refused(TerminateCode),
    /// It may have happened: the connection ended in between.
    #[error("may have happened: the connection ended in between")]
    Unknown,
    /// A read that was abandoned; local memory is not touched any more.
    #[error("the read was abandoned")]
    Abandoned,
}

impl WorkError {
    /// Whether the operation certainly did nothing at the peer.
    #[must_use]
    pub fn certain(self) -> bool {
        matches!(self, WorkError::NotDone | WorkError::Refused(_))
    }
}

/// Why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// `close` or `reject` was called here.
    #[error("closed here")]
    Local,
    /// The peer closed it in order.
    #[error("closed by the peer")]
    Gone,
    /// It could not be established.
    #[error("could not be connected: {0}")]
    Unreachable(io::ErrorKind),
    /// The peer said no.
    #[error("rejected by the peer")]
    Rejected,
    /// The connection broke.
    #[error("lost: {0}")]
    Lost(io::ErrorKind),
    /// It did not come to be in time, or took nothing for too long.
    #[error("the deadline passed")]
    Late,
    /// The peer made a mistake that we told it about.
    #[error("the peer broke the protocol: {0}")]
    Broken(TerminateCode),
    /// The peer says that we made a mistake.
    #[error("terminated by the peer: {0}")]
    Terminated(TerminateCode),
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    bytes: u32,
}

#[derive(Clone, Copy)]
enum Entry {
    Asked { peer: PeerId, address: SocketAddr, hello: Span },
    Admitted { peer: PeerId, address: SocketAddr },
    Connected { peer: PeerId, hello: Span },
    Closed { peer: PeerId, reason: CloseReason, hello: Span },
    Done { peer: PeerId, tag: u64, outcome: Result<u64, WorkError> },
    Message { peer: PeerId, bytes: Span, solicited: bool, invalidated: Option<u32> },
    Immediate { peer: PeerId, data: [u8; 8], solicited: bool },
}

/// The events of one or more polls. Keep it and [`clear`](Self::clear) it: it grows to what is needed and stays there.
#[derive(Default)]
pub struct Events {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Events {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Vec::with_capacity(256), bytes: Vec::with_capacity(16 << 10) }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets them and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// The event at a position. `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Event<'_>> {
        self.entries.get(index).map(|entry| self.view(*entry))
    }

    /// In the order in which they happened.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        self.entries.iter().map(|entry| self.view(*entry))
    }

    fn view(&self, entry: Entry) -> Event<'_> {
        match entry {
            Entry::Asked { peer, address, hello } => Event::Asked { peer, address, hello: self.slice(hello) },
            Entry::Admitted { peer, address } => Event::Admitted { peer, address },
            Entry::Connected { peer, hello } => Event::Connected { peer, hello: self.slice(hello) },
            Entry::Closed { peer, reason, hello } => Event::Closed { peer, reason, hello: self.slice(hello) },
            Entry::Done { peer, tag, outcome } => Event::Done { peer, tag, outcome },
            Entry::Message { peer, bytes, solicited, invalidated } => {
                Event::Message { peer, bytes: self.slice(bytes), solicited, invalidated }
            }
            Entry::Immediate { peer, data, solicited } => Event::Immediate { peer, data, solicited },
        }
    }

    fn slice(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..span.bytes as usize]
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = u32::try_from(self.bytes.len()).expect("a poll is budgeted to far less than 4 GiB of messages");
        self.bytes.extend_from_slice(bytes);
        Span { start, bytes: bytes.len() as u32 }
    }

    pub(crate) fn asked(&mut self, peer: PeerId, address: SocketAddr, hello: &[u8]) {
        let hello = self.keep(hello);
        self.entries.push(Entry::Asked { peer, address, hello });
    }

    pub(crate) fn admitted(&mut self, peer: PeerId, address: SocketAddr) {
        self.entries.push(Entry::Admitted { peer, address });
    }

    pub(crate) fn connected(&mut self, peer: PeerId, hello: &[u8]) {
        let hello = self.keep(hello);
        self.entries.push(Entry::Connected { peer, hello });
    }

    pub(crate) fn closed(&mut self, peer: PeerId, reason: CloseReason, hello: &[u8]) {
        let hello = self.keep(hello);
        self.entries.push(Entry::Closed { peer, reason, hello });
    }

    pub(crate) fn done(&mut self, peer: PeerId, tag: u64, outcome: Result<u64, WorkError>) {
        self.entries.push(Entry::Done { peer, tag, outcome });
    }

    pub(crate) fn message(&mut self, peer: PeerId, bytes: &[u8], solicited: bool, invalidated: Option<u32>) {
        let bytes = self.keep(bytes);
        self.entries.push(Entry::Message { peer, bytes, solicited, invalidated });
    }

    pub(crate) fn immediate(&mut self, peer: PeerId, data: [u8; 8], solicited: bool) {
        self.entries.push(Entry::Immediate { peer, data, solicited });
    }
}
