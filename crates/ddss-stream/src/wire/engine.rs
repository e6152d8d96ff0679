//! Engines of both plans behind one set of calls: stream bytes in, bytes of the socket out, and back.

use ddss_sdp::{
    Capabilities, CopyLedger, EnhancedStream, Framing, Place, Plan, SdpError, StreamConfig, Terms, ZeroCopyOutcome,
};

use super::basic::BasicOverFrames;
use super::socket_memory::{Incoming, Outgoing, ReadCall};

/// Returns where iWARP in user space carries out its work.
#[must_use]
pub const fn capabilities() -> Capabilities {
    Capabilities {
        checksum: Place::Processor,
        demultiplexing: Place::Kernel,
        markers: Place::Software,
        segmentation: Place::Software,
        send_queue: Place::Software,
        flow_control: Place::Kernel,
        remote_reads: Place::Software,
    }
}

/// Engine of one stream.
pub(super) enum Engine {
    Enhanced(Box<EnhancedStream>),
    Basic(Box<BasicOverFrames>),
}

impl Engine {
    /// Makes the engine that both sides agreed on.
    pub(super) fn new(
        config: &StreamConfig,
        batching: bool,
        terms: &Terms,
        outbound: Framing,
        inbound: Framing,
    ) -> Result<Self, SdpError> {
        if terms.plan.is_enhanced() {
            return Ok(Self::Enhanced(Box::new(EnhancedStream::new(config, terms, outbound, inbound)?)));
        }
        Ok(Self::Basic(Box::new(BasicOverFrames::new(config, batching, terms, outbound, inbound)?)))
    }

    pub(super) fn plan(&self) -> Plan {
        match self {
            Self::Enhanced(stream) => stream.plan(),
            Self::Basic(basic) => basic.plan(),
        }
    }

    /// Takes stream bytes; returns how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, SdpError> {
        match self {
            Self::Enhanced(stream) => stream.write(bytes),
            Self::Basic(basic) => basic.write(bytes),
        }
    }

    /// Gives stream bytes: `Some(0)` at the end, `None` if there are none yet.
    pub(super) fn read(&mut self, call: &mut ReadCall<'_>) -> Result<Option<usize>, SdpError> {
        match self {
            Self::Enhanced(stream) => stream.read(call.out),
            Self::Basic(basic) => basic.read(call),
        }
    }

    /// Takes the memory of a call to read away from the engine.
    pub(super) fn end_borrow(&mut self, memory: &[u8]) {
        if let Self::Basic(basic) = self {
            basic.end_borrow(memory);
        }
    }

    /// Ends a read of the peer's memory with what has arrived: the peer is gone. Returns false if there is none.
    pub(super) fn peer_ended(&mut self) -> bool {
        if let Self::Basic(basic) = self { basic.peer_ended() } else { false }
    }

    /// Advertises memory that the call has borrowed. `Ok(None)`: the plan has no zero copy; `Some(false)`: not now.
    pub(super) fn advertise(&mut self, bytes: u32) -> Result<Option<bool>, SdpError> {
        match self {
            Self::Enhanced(_) => Ok(None),
            Self::Basic(basic) => basic.advertise(bytes),
        }
    }

    /// Takes the outcome of an advertisement. The peer reads nothing more of the memory.
    pub(super) fn take_outcome(&mut self) -> Option<ZeroCopyOutcome> {
        match self {
            Self::Enhanced(_) => None,
            Self::Basic(basic) => basic.take_outcome(),
        }
    }

    /// Withdraws an advertisement. The outcome follows.
    pub(super) fn withdraw(&mut self) {
        if let Self::Basic(basic) = self {
            basic.withdraw();
        }
    }

    /// Returns the bytes that left from advertised memory.
    pub(super) fn served(&self) -> u64 {
        match self {
            Self::Enhanced(_) => 0,
            Self::Basic(basic) => basic.served(),
        }
    }

    /// Returns bytes for the socket; [`sent`](Self::sent) follows. `memory` is that of the advertisement, if this call made it.
    /// `may_hold`: the call only writes, so a small message may wait for an acknowledgement.
    pub(super) fn outgoing<'a>(&'a mut self, memory: Option<&'a [u8]>, may_hold: bool) -> Outgoing<'a> {
        match self {
            Self::Enhanced(stream) => {
                Outgoing::of_frames(if may_hold { stream.outgoing_after_write() } else { stream.outgoing() })
            }
            Self::Basic(basic) => basic.outgoing(memory),
        }
    }

    /// Returns true if the socket may hold an acknowledgement that lets a held message leave.
    pub(super) fn take_look(&mut self) -> bool {
        if let Self::Enhanced(stream) = self { stream.take_look() } else { false }
    }

    /// Returns true if there are bytes for the socket. `has_memory`: this call made the advertisement.
    pub(super) fn wants_send(&mut self, has_memory: bool) -> bool {
        match self {
            Self::Enhanced(stream) => stream.outgoing().iter().any(|part| !part.is_empty()),
            Self::Basic(basic) => basic.wants_send(has_memory),
        }
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        match self {
            Self::Enhanced(stream) => stream.sent(bytes),
            Self::Basic(basic) => basic.sent(bytes),
        }
    }

    /// Returns memory for bytes of the socket. `place` is that of the call, if a read fills it.
    pub(super) fn incoming<'a>(&'a mut self, place: Option<&'a mut [u8]>) -> Incoming<'a> {
        match self {
            Self::Enhanced(stream) => Incoming::Frames(stream.receive_room()),
            Self::Basic(basic) => basic.incoming(place),
        }
    }

    /// Returns true if there is memory for bytes of the socket. `has_place`: a read fills the memory of this call.
    pub(super) fn wants_receive(&mut self, has_place: bool) -> bool {
        match self {
            Self::Enhanced(stream) => !stream.receive_room().is_empty(),
            Self::Basic(basic) => basic.wants_receive(has_place),
        }
    }

    /// Handles bytes that the socket wrote into [`incoming`](Self::incoming).
    pub(super) fn received(&mut self, bytes: usize, place: Option<&mut [u8]>) -> Result<(), SdpError> {
        match self {
            Self::Enhanced(stream) => stream.received(bytes),
            Self::Basic(basic) => basic.received(bytes, place),
        }
    }

    pub(super) fn shutdown(&mut self) {
        match self {
            Self::Enhanced(stream) => stream.shutdown(),
            Self::Basic(basic) => basic.shutdown(),
        }
    }

    /// Returns true if anything that was written has not left.
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Self::Enhanced(stream) => stream.has_outgoing(),
            Self::Basic(basic) => basic.has_unsent(),
        }
    }

    /// Returns the milliseconds until a small message that waits has to leave.
    pub(super) fn wait_ms(&self) -> Option<u64> {
        match self {
            Self::Enhanced(_) => None,
            Self::Basic(basic) => basic.wait_ms(),
        }
    }

    /// Returns the copies of stream bytes by this process, those into and out of frames included.
    pub(super) fn ledger(&self) -> CopyLedger {
        match self {
            Self::Enhanced(stream) => stream.ledger(),
            Self::Basic(basic) => basic.ledger(),
        }
    }

    /// Returns the messages sent so far.
    pub(super) fn messages(&self) -> u32 {
        match self {
            Self::Enhanced(stream) => stream.messages(),
            Self::Basic(basic) => basic.messages(),
        }
    }
}
