//! The state machine of one connection: bytes in, bytes and events out. No socket, no clock.
//!
//! ```text
//! connecting side                accepting side
//!   Reply    request sent          Request  nothing yet
//!     |                            Asked    the owner was asked
//!     |                            First    reply sent; silent until a first frame comes
//!   Open  <----------------------> Open
//!            Ended (from anywhere): everything told, only the outbox may still drain
//! ```
//!
//! - [`start`] is the handshake, [`receive`] takes frames apart ([`partial`]: those that are not whole yet), [`request`]
//!   sends what was posted, [`respond`] answers the peer's reads and atomics, [`finish`] ends it and tells every operation
//!   how it ended.

mod handshake;
mod placement;
mod receive;
mod requester;
mod responder;
mod terminate;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use super::send_queue::SendQueue;
use crate::events::{CloseReason, Events};
use crate::fabric::{PeerId, RegionId};
use crate::iwarp::config::IwarpConfig;
use crate::iwarp::mpa::NegotiatedTerms;
use crate::memory::{Registry, Windows};
use crate::terminate_code::TerminateCode;

use handshake::PeerRequest;
use placement::PartialSegment;
use requester::{Backlog, PendingAtomic, PendingRead, Receipt};
use responder::{Response, Source, Stream};

pub(crate) use responder::GATHERED_SNAPSHOT_BYTES;

/// Messages that are few: what a get from afar asks for.
const LITTLE_MAX: usize = 3;

/// What a step may touch besides the connection.
pub(crate) struct Context<'a> {
    pub(crate) memory: &'a mut Registry,
    pub(crate) events: &'a mut Events,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Request,
    Asked,
    Reply,
    First,
    Open,
    Ended,
}

/// Why a step could not be done: the connection ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionError {
    /// Tell the peer what it did.
    Fault(TerminateCode),
    /// Just close.
    Close(CloseReason),
}

impl From<TerminateCode> for ConnectionError {
    fn from(fault: TerminateCode) -> Self {
        ConnectionError::Fault(fault)
    }
}

/// See the module.
pub(crate) struct Connection {
    id: PeerId,
    address: SocketAddr,
    stage: Stage,
    config: Arc<IwarpConfig>,
    asked: Option<PeerRequest>,
    terms: NegotiatedTerms,
    /// The owner knows it as connected, so it may post.
    connected: bool,
    /// The owner is to be told so at the next step.
    announce: bool,
    outbox: SendQueue,
    pub(crate) windows: Windows,

    // What was posted here.
    backlog: Backlog,
    receipts: VecDeque<Receipt>,
    reads: VecDeque<PendingRead>,
    atomics: VecDeque<PendingAtomic>,
    sink_key: u32,
    atomic_id: u32,
    send_sequence: u32,
    request_sequence: u32,

    // What the peer asked for.
    responses: VecDeque<Response>,
    streaming: Option<Stream>,
    respond_next: bool,
    reply_sequence: u32,

    // What arrives.
    position: u64,
    partial: Option<PartialSegment>,
    /// The last segment was a large one with a place of its own.
    large: bool,
    /// The key of a write of which segments are still to come.
    writing: Option<u32>,
    /// The same, if its window was withdrawn meanwhile: the rest of that write goes nowhere.
    orphaned: Option<u32>,
    ulpdu: Vec<u8>,
    message: Vec<u8>,
    message_opcode: u8,
    expected_send: u32,
    expected_request: u32,
    expected_reply: u32,
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
            asked: None,
            terms,
            connected: false,
            announce: false,
            outbox: SendQueue::default(),
            windows: Windows::default(),
            backlog: Backlog::default(),
            receipts: VecDeque::new(),
            reads: VecDeque::new(),
            atomics: VecDeque::new(),
            sink_key: seed | 1,
            atomic_id: seed,
            send_sequence: 1,
            request_sequence: 1,
            responses: VecDeque::new(),
            streaming: None,
            respond_next: false,
            reply_sequence: 1,
            position: 0,
            partial: None,
            large: false,
            writing: None,
            orphaned: None,
            ulpdu: Vec::new(),
            message: Vec::new(),
            message_opcode: 0,
            expected_send: 1,
            expected_request: 1,
            expected_reply: 1,
        }
    }

    /// Another fabric takes it over, and names it so.
    pub(crate) fn rename(&mut self, id: PeerId) {
        self.id = id;
    }

    pub(crate) fn id(&self) -> PeerId {
        self.id
    }

    /// The other side's.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether the owner knows it as connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn outbox(&self) -> &SendQueue {
        &self.outbox
    }

    /// The peer may not use that window any more. A write that has begun to arrive is no mistake of the peer: what is
    /// still to come of it is thrown away. Only a later use of the key ends the connection.
    pub(crate) fn withdraw(&mut self, key: u32, memory: &mut Registry) {
        self.windows.withdraw(key);
        if self.writing == Some(key) {
            self.orphaned = Some(key);
        }
        if let Some(region) = self.partial.as_mut().and_then(|partial| partial.withdraw(key)) {
            memory.release(region);
        }
    }

    /// It has become quiet: gives back what it does not need now.
    pub(crate) fn relax(&mut self) {
        self.outbox.relax();
    }

    /// The socket took so many bytes of the outbox.
    pub(crate) fn sent(&mut self, count: usize, cx: &mut Context<'_>) {
        self.outbox.sent(count, cx.memory);
        self.acknowledge(cx);
    }

    /// Whether the next step will encode something for certain, once there is room.
    pub(crate) fn has_more(&self) -> bool {
        self.stage == Stage::Open && (self.streaming.is_some() || !self.responses.is_empty())
    }

    /// Whether there is at most one large message to encode, and few small ones, so that it pays to send its start before its
    /// end is encoded.
    pub(crate) fn has_little(&self) -> bool {
        let (waiting, streaming) = (self.waiting(), usize::from(self.streaming.is_some()));
        waiting + streaming <= 1 || waiting <= LITTLE_MAX && self.large() + streaming <= 1
    }

    /// Whether something is still to be encoded, and all of it is small.
    pub(crate) fn ends_soon(&self) -> bool {
        self.streaming.is_none() && (1..=LITTLE_MAX).contains(&self.waiting()) && self.large() == 0
    }

    fn waiting(&self) -> usize {
        self.responses.len() + self.backlog.queue.len()
    }

    fn large(&self) -> usize {
        let answers = self.responses.iter().filter(|response| response.is_large());
        answers.count() + self.backlog.queue.iter().filter(|queued| queued.is_large()).count()
    }

    /// Encodes while less than `limit` bytes wait: answers and own work take turns, message by message. What is not sent at
    /// once has to be [taken in](Self::take_in) before anybody changes memory.
    pub(crate) fn pump(&mut self, limit: usize, cx: &mut Context<'_>) {
        if self.announce {
            self.tell_connected(cx);
        }
        if self.stage != Stage::Open {
            return;
        }
        while self.outbox.has_room(limit) {
            if self.streaming.is_some() {
                self.stream(Some(limit), Source::InPlace, cx.memory);
                continue;
            }
            self.respond_next = !self.respond_next;
            let answered = self.respond_next && self.respond(cx);
            let moved = answered || self.request(cx) || self.respond(cx);
            if !moved {
                break;
            }
        }
    }

    /// Whether there is nothing to send and nothing to tell.
    pub(crate) fn idle(&self) -> bool {
        self.outbox.is_empty() && !self.has_more() && !self.announce && !self.can_go_on()
    }

    /// Where the next bytes of the stream go, if they need not be looked at: region, offset, length.
    pub(crate) fn direct(&self) -> Option<(RegionId, u64, usize)> {
        self.partial.as_ref().and_then(PartialSegment::direct)
    }
}
