//! State of a connection without its bytes: message numbers, credits, half close, advertisements.

use crate::codec::{Body, Flags, HEADER_BYTES, Header};
use crate::engine::handshake::Terms;
use crate::engine::pending::PendingMessages;
use crate::engine::zero_copy::ZeroCopy;
use crate::error::SdpError;
use crate::limits::{CREDITS_RESERVED, MESSAGE_BYTES_MAX};
use crate::plan::{FlowControl, Plan};

/// Number of posted buffers that a stream without credits announces.
const BUFFERS_UNCOUNTED: u16 = u16::MAX;

/// Half closes and resets.
#[derive(Default)]
pub(crate) struct CloseState {
    /// The application writes no more.
    pub(crate) is_write_closed: bool,
    /// The half close of this side has left.
    pub(crate) is_disconnect_sent: bool,
    /// The peer writes no more.
    pub(crate) is_peer_closed: bool,
    /// The stream was reset by either side.
    pub(crate) is_reset: bool,
}

/// State of a connection without its bytes.
pub(crate) struct Control {
    pub(crate) plan: Plan,
    pub(crate) pending: PendingMessages,
    pub(crate) close: CloseState,
    pub(crate) zero_copy: ZeroCopy,
    /// Payload of the largest message to the peer.
    pub(crate) peer_payload: u32,
    next_mseq: u32,
    /// Last message that the peer has acknowledged.
    acknowledged: u32,
    /// Last message of the peer.
    received: u32,
    credits: u32,
    /// Credits that the peer has, by the last message sent to it.
    peer_credits: u32,
    pub(crate) acknowledgement: Acknowledgement,
}

/// Acknowledgement that the peer waits for, until a message carries it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledgement {
    None,
    /// The next message carries it.
    Owed,
    /// The application waits for the peer, so that it writes nothing: a message of its own carries it.
    Due,
}

impl Control {
    pub(crate) fn new(terms: &Terms, posted: u16) -> Control {
        Control {
            plan: terms.plan,
            pending: PendingMessages::default(),
            close: CloseState::default(),
            zero_copy: ZeroCopy::default(),
            peer_payload: terms.peer_receive_bytes - HEADER_BYTES as u32,
            next_mseq: 1,
            acknowledged: 0,
            received: 0,
            credits: u32::from(terms.peer_buffers),
            peer_credits: u32::from(posted),
            acknowledgement: Acknowledgement::None,
        }
    }

    /// Returns true if every message sent was acknowledged.
    pub(crate) fn is_all_acknowledged(&self) -> bool {
        self.unacknowledged() == 0
    }

    /// Returns the number of messages that the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u32 {
        self.next_mseq.wrapping_sub(1).wrapping_sub(self.acknowledged)
    }

    pub(crate) fn credits(&self) -> u32 {
        self.credits
    }

    /// Returns an error if the application may not write.
    pub(crate) fn check_writable(&self) -> Result<(), SdpError> {
        match self.close {
            CloseState { is_reset: true, .. } => Err(SdpError::Reset),
            CloseState { is_write_closed: true, .. } => Err(SdpError::WriteClosed),
            _ => Ok(()),
        }
    }

    /// Closes the direction of this side behind the data that waits.
    pub(crate) fn shutdown(&mut self) {
        if !self.close.is_write_closed && !self.close.is_reset {
            self.close.is_write_closed = true;
            self.pending.disconnect = true;
        }
    }

    /// Resets the stream.
    pub(crate) fn abort(&mut self) {
        if !self.close.is_reset {
            self.close.is_reset = true;
            self.close.is_write_closed = true;
            self.pending = PendingMessages { abort: true, ..PendingMessages::default() };
        }
    }

    /// Returns true if both directions are closed.
    pub(crate) fn is_finished(&self) -> bool {
        self.close.is_reset || self.close.is_disconnect_sent && self.close.is_peer_closed
    }

    /// Returns true if a message with payload may leave.
    pub(crate) fn may_send_data(&self) -> bool {
        self.has_credits(CREDITS_RESERVED)
    }

    /// Takes the message without payload that leaves before any data. `is_data_sent`: nothing of the stream waits.
    pub(crate) fn next_pending(&mut self, is_data_sent: bool) -> Option<Body> {
        if !self.has_credits(1) {
            return None;
        }
        let body = self.pending.peek(is_data_sent, self.zero_copy.is_advertised())?;
        self.pending.remove(body);
        self.close.is_disconnect_sent |= body == Body::DisConn;
        Some(body)
    }

    /// Takes a credit and the next number for a message.
    pub(crate) fn header(&mut self, body: &Body, flags: Flags, posted: u16) -> Header {
        let mseq = self.next_mseq;
        self.next_mseq = mseq.wrapping_add(1);
        if self.plan.flow_control == FlowControl::Credits {
            self.credits -= 1;
        }
        if matches!(body, Body::SrcAvail(..)) {
            self.zero_copy.advertised(mseq);
        }
        let mut header = Header { kind: body.kind(), flags, bufs: 0, len: 0, mseq, mseq_ack: 0 };
        let (_, fixed) = body.encode_fixed();
        self.refresh(&mut header, fixed + body.payload_bytes(), posted);
        header
    }

    /// Updates the fields of a header that may change until the message leaves.
    pub(crate) fn refresh(&mut self, header: &mut Header, body_bytes: usize, posted: u16) {
        header.len = (HEADER_BYTES + body_bytes) as u32;
        header.mseq_ack = self.received;
        self.acknowledgement = Acknowledgement::None;
        header.bufs = if self.plan.flow_control == FlowControl::Credits { posted } else { BUFFERS_UNCOUNTED };
        self.peer_credits = u32::from(posted);
    }

    /// Handles a message of the peer; its payload is the caller's. Nothing changes if the header is wrong.
    pub(crate) fn receive(&mut self, header: &Header, body: &Body) -> Result<(), SdpError> {
        if header.mseq != self.received.wrapping_add(1) {
            return Err(SdpError::Sequence { last: self.received, got: header.mseq });
        }
        let unacknowledged = self.unacknowledged();
        let progress = header.mseq_ack.wrapping_sub(self.acknowledged);
        if progress > unacknowledged {
            return Err(SdpError::Acknowledgement(header.mseq_ack));
        }
        self.received = header.mseq;
        if header.flags.contains(Flags::ACK_WANTED) && self.acknowledgement == Acknowledgement::None {
            self.acknowledgement = Acknowledgement::Owed;
        }
        self.acknowledged = header.mseq_ack;
        self.peer_credits = self.peer_credits.saturating_sub(1);
        self.credits = u32::from(header.bufs).saturating_sub(unacknowledged - progress);
        if self.close.is_reset { Ok(()) } else { self.receive_body(header, body) }
    }

    fn receive_body(&mut self, header: &Header, body: &Body) -> Result<(), SdpError> {
        match *body {
            Body::Data(0) => {}
            Body::Data(_) => {
                self.check_data()?;
            }
            Body::SrcAvail(memory, inline) => {
                self.check_data()?;
                self.zero_copy.offered(memory, inline as u32, &mut self.pending)?;
                if !self.plan.zero_copy {
                    self.zero_copy.decline(&mut self.pending);
                }
            }
            Body::DisConn => {
                if self.close.is_peer_closed || self.zero_copy.forbids_data() {
                    return Err(SdpError::UnexpectedMessage(body.kind().mid()));
                }
                self.close.is_peer_closed = true;
            }
            Body::AbortConn => {
                self.close.is_reset = true;
                self.close.is_write_closed = true;
                self.pending = PendingMessages::default();
            }
            Body::SendSm => self.zero_copy.refused(header.mseq_ack),
            Body::RdmaRdCompl(bytes) => self.zero_copy.completed(bytes, header.mseq_ack)?,
            Body::SrcAvailCancel => self.zero_copy.withdrawn(&mut self.pending),
            Body::ChRcvBufAck(payload) => {
                let largest = MESSAGE_BYTES_MAX - HEADER_BYTES as u32;
                self.peer_payload = self.peer_payload.max(payload.min(largest));
            }
            // This side never writes into advertised memory, and every mode that it permits works the same way.
            Body::SinkAvail(_) | Body::SinkAvailCancelAck | Body::ModeChange(_) => {}
            Body::SinkAvailCancel => self.pending.sink_cancel_ack = true,
            // The owner of the buffers answers.
            Body::ChRcvBuf(_) => {}
            Body::RdmaWrCompl(_) | Body::SuspComm(_) | Body::SuspCommAck => {
                return Err(SdpError::UnexpectedMessage(body.kind().mid()));
            }
        }
        Ok(())
    }

    fn check_data(&self) -> Result<(), SdpError> {
        if self.close.is_peer_closed {
            return Err(SdpError::DataAfterClose);
        }
        if self.zero_copy.forbids_data() {
            return Err(SdpError::UnexpectedMessage(Body::Data(1).kind().mid()));
        }
        Ok(())
    }

    fn has_credits(&self, above: u32) -> bool {
        self.plan.flow_control == FlowControl::Receiver || self.credits > above
    }

    /// Returns true if an empty message would give the peer enough credits to be worth one of this side's.
    pub(crate) fn is_credit_update_due(&self, posted: u16) -> bool {
        if self.plan.flow_control == FlowControl::Receiver || self.credits == 0 || self.is_finished() {
            return false;
        }
        let mut least = self.peer_credits;
        if least > CREDITS_RESERVED {
            least += least / 2;
        }
        least < u32::from(posted)
    }
}
