//! State machine of one connection: bytes in, bytes and events out, without socket and clock.
//!
//! ```text
//! connecting side                          accepting side
//!   AwaitReply   request sent                AwaitRequest     nothing yet
//!     |                                      AwaitAccept      the owner was asked
//!     |                                      AwaitFirstFrame  reply sent; silent until a first frame arrives
//!   AwaitKeys    sealed: the owner has them    |
//!     |                                        |
//!   Open  <------------------------------->  Open
//!              Ended (from any stage): everything is reported, only the send queue may still drain
//! ```
//!
//! - [`handshake`] exchanges start frames, [`receive`] parses frames, and [`placement`] places tagged segments.
//!   [`requester`] sends posted work, [`responder`] answers the peer's reads and atomics, [`transmit`] lets both take
//!   turns, and [`terminate`] ends the connection and completes every operation.
//! - [`posted_work`], [`response`], [`arriving`] with its [`partial_segment`], [`sequences`] and [`context`] hold the state
//!   on which these act.

mod arriving;
mod context;
mod handshake;
mod partial_segment;
mod placement;
mod posted_work;
mod receive;
mod requester;
mod responder;
mod response;
mod sequences;
mod terminate;
mod transmit;

use std::net::SocketAddr;
use std::sync::Arc;

use super::send_queue::SendQueue;
use crate::id::{PeerId, RegionId};
use crate::iwarp::config::IwarpConfig;
use crate::iwarp::mpa::NegotiatedTerms;
use crate::memory::{RegionTable, Windows};
use crate::sealing::Sealing;

use arriving::Arriving;
use context::PeerRequest;
use partial_segment::PartialSegment;
use posted_work::PostedWork;
use response::Answers;
use sequences::Sequences;

pub(crate) use context::Context;
pub(crate) use responder::GATHERED_SNAPSHOT_BYTES;

/// Stage of a connection; the module documentation has the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    AwaitRequest,
    AwaitAccept,
    AwaitReply,
    AwaitKeys,
    AwaitFirstFrame,
    Open,
    Ended,
}

/// State of one connection.
pub(crate) struct Connection {
    id: PeerId,
    address: SocketAddr,
    stage: Stage,
    config: Arc<IwarpConfig>,
    peer_request: Option<PeerRequest>,
    terms: NegotiatedTerms,
    /// True after the owner received *connected* and may post.
    connected: bool,
    /// True if the next step reports *connected* to the owner.
    has_unreported_connect: bool,
    /// True if nothing but the start frames travels in the clear.
    is_sealed: bool,
    /// Ciphers of an accepting side that has not accepted yet.
    sealing: Option<Sealing>,
    send_queue: SendQueue,
    pub(crate) windows: Windows,

    /// Posted work until its completion.
    work: PostedWork,
    /// Requests of the peer.
    answers: Answers,
    /// Bytes that are arriving.
    arriving: Arriving,
    /// Sequence numbers of the next messages, by queue.
    sent: Sequences,
    expected: Sequences,
}

impl Connection {
    fn new(id: PeerId, address: SocketAddr, stage: Stage, config: Arc<IwarpConfig>, seed: u32) -> Self {
        let terms = NegotiatedTerms {
            crc: config.crc,
            markers_out: false,
            markers_in: config.markers,
            ird: config.reads_inbound,
            ord: config.reads_outbound,
            ready: None,
        };
        Self {
            id,
            address,
            stage,
            config,
            peer_request: None,
            terms,
            connected: false,
            has_unreported_connect: false,
            is_sealed: false,
            sealing: None,
            send_queue: SendQueue::default(),
            windows: Windows::default(),
            work: PostedWork::new(seed),
            answers: Answers::default(),
            arriving: Arriving::default(),
            sent: Sequences::default(),
            expected: Sequences::default(),
        }
    }

    /// Gives the connection a new id, in another fabric.
    pub(crate) fn rename(&mut self, id: PeerId) {
        self.id = id;
    }

    pub(crate) fn id(&self) -> PeerId {
        self.id
    }

    /// Returns the peer's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns true if the owner received *connected*.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn send_queue(&self) -> &SendQueue {
        &self.send_queue
    }

    /// Closes a window. A write that is arriving is no error of the peer: the rest of it is discarded. Only a later
    /// use of the key ends the connection.
    pub(crate) fn withdraw(&mut self, key: u32, memory: &mut RegionTable) {
        self.windows.withdraw(key);
        if self.arriving.open_write == Some(key) {
            self.arriving.withdrawn_write = Some(key);
        }
        if let Some(region) = self.arriving.partial.as_mut().and_then(|partial| partial.withdraw(key)) {
            memory.release(region);
        }
    }

    /// Frees buffers that a quiet connection does not need.
    pub(crate) fn shrink_buffers(&mut self) {
        self.send_queue.shrink_buffers();
    }

    /// Returns the place of the next stream bytes, if they are payload that needs no check: region, offset, length.
    pub(crate) fn direct_target(&self) -> Option<(RegionId, u64, usize)> {
        self.arriving.partial.as_ref().and_then(PartialSegment::direct_target)
    }
}
