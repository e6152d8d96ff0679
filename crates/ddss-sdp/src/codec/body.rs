//! Bodies of messages.

use crate::codec::{HEADER_BYTES, Header, MessageKind};
use crate::error::SdpError;
use crate::limits::MESSAGE_BYTES_MIN;

/// Bytes of an advertisement.
pub const SOURCE_BYTES: usize = 16;

const _: () = assert!(MESSAGE_BYTES_MIN as usize > HEADER_BYTES + SOURCE_BYTES);
/// Bytes of a sink advertisement at most: the specification adds a word that this crate does not use.
const SINK_BYTES_MAX: usize = 20;
const WORD_BYTES: usize = 4;

/// Memory that a peer may read from or write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Bytes of the memory, those that follow in the message included.
    pub len: u32,
    /// Key of the memory.
    pub rkey: u32,
    /// Address of the first byte.
    pub vaddr: u64,
}

impl Advertisement {
    /// Encodes the advertisement.
    #[must_use]
    pub fn encode(&self) -> [u8; SOURCE_BYTES] {
        let mut out = [0; SOURCE_BYTES];
        out[..4].copy_from_slice(&self.len.to_be_bytes());
        out[4..8].copy_from_slice(&self.rkey.to_be_bytes());
        out[8..].copy_from_slice(&self.vaddr.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8; SOURCE_BYTES]) -> Advertisement {
        let [l0, l1, l2, l3, r0, r1, r2, r3, vaddr @ ..] = *bytes;
        Advertisement {
            len: u32::from_be_bytes([l0, l1, l2, l3]),
            rkey: u32::from_be_bytes([r0, r1, r2, r3]),
            vaddr: u64::from_be_bytes(vaddr),
        }
    }
}

/// Body of a message of an open stream. Payload stays where it is; the body has its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Half close.
    DisConn,
    /// Reset.
    AbortConn,
    /// Request to send the advertised bytes through the buffers.
    SendSm,
    /// Bytes that were written into advertised memory.
    RdmaWrCompl(u32),
    /// Bytes that were read from advertised memory.
    RdmaRdCompl(u32),
    /// Change of the flow mode.
    ModeChange(u32),
    /// Withdrawal of a source advertisement.
    SrcAvailCancel,
    /// Withdrawal of a sink advertisement.
    SinkAvailCancel,
    /// Answer to a withdrawal.
    SinkAvailCancelAck,
    /// Receive buffer that the sender would like, header included.
    ChRcvBuf(u32),
    /// Payload of the receive buffers from now on.
    ChRcvBufAck(u32),
    /// Request to suspend the connection.
    SuspComm(u32),
    /// Answer to a request to suspend the connection.
    SuspCommAck,
    /// Memory to write to.
    SinkAvail(Advertisement),
    /// Memory to read from, and the number of its first bytes that follow.
    SrcAvail(Advertisement, usize),
    /// Number of bytes that follow.
    Data(usize),
}

impl Body {
    /// Decodes the body behind `header`. `fixed` holds at least the first 16 bytes of the body, or the whole body.
    ///
    /// # Errors
    /// The length does not fit the kind, or the kind belongs to private data.
    pub fn decode(header: &Header, fixed: &[u8]) -> Result<Body, SdpError> {
        let (kind, bytes) = (header.kind, header.body_bytes());
        let wrong = Err(SdpError::MessageLength { mid: kind.mid(), len: header.len });
        let (least, most) = match kind {
            MessageKind::Hello | MessageKind::HelloAck => return Err(SdpError::UnexpectedMessage(kind.mid())),
            MessageKind::DisConn
            | MessageKind::AbortConn
            | MessageKind::SendSm
            | MessageKind::SrcAvailCancel
            | MessageKind::SinkAvailCancel
            | MessageKind::SinkAvailCancelAck
            | MessageKind::SuspCommAck => (0, 0),
            MessageKind::RdmaWrCompl
            | MessageKind::RdmaRdCompl
            | MessageKind::ModeChange
            | MessageKind::ChRcvBuf
            | MessageKind::ChRcvBufAck
            | MessageKind::SuspComm => (WORD_BYTES, WORD_BYTES),
            MessageKind::SinkAvail => (SOURCE_BYTES, SINK_BYTES_MAX),
            MessageKind::SrcAvail => (SOURCE_BYTES, usize::MAX),
            MessageKind::Data => (0, usize::MAX),
        };
        if bytes < least || bytes > most || fixed.len() < least {
            return wrong;
        }
        let word = fixed.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        let memory = fixed.first_chunk().map(Advertisement::decode);
        Ok(match kind {
            MessageKind::DisConn => Body::DisConn,
            MessageKind::AbortConn => Body::AbortConn,
            MessageKind::SendSm => Body::SendSm,
            MessageKind::RdmaWrCompl => Body::RdmaWrCompl(word),
            MessageKind::RdmaRdCompl => Body::RdmaRdCompl(word),
            MessageKind::ModeChange => Body::ModeChange(word),
            MessageKind::SrcAvailCancel => Body::SrcAvailCancel,
            MessageKind::SinkAvailCancel => Body::SinkAvailCancel,
            MessageKind::SinkAvailCancelAck => Body::SinkAvailCancelAck,
            MessageKind::ChRcvBuf => Body::ChRcvBuf(word),
            MessageKind::ChRcvBufAck => Body::ChRcvBufAck(word),
            MessageKind::SuspComm => Body::SuspComm(word),
            MessageKind::SuspCommAck => Body::SuspCommAck,
            MessageKind::Data => Body::Data(bytes),
            MessageKind::SinkAvail | MessageKind::SrcAvail => {
                let Some(memory) = memory else { return wrong };
                match kind {
                    MessageKind::SrcAvail => Body::SrcAvail(memory, bytes - SOURCE_BYTES),
                    _ => Body::SinkAvail(memory),
                }
            }
            MessageKind::Hello | MessageKind::HelloAck => return wrong,
        })
    }

    /// Returns the kind.
    #[must_use]
    pub const fn kind(&self) -> MessageKind {
        match self {
            Body::DisConn => MessageKind::DisConn,
            Body::AbortConn => MessageKind::AbortConn,
            Body::SendSm => MessageKind::SendSm,
            Body::RdmaWrCompl(_) => MessageKind::RdmaWrCompl,
            Body::RdmaRdCompl(_) => MessageKind::RdmaRdCompl,
            Body::ModeChange(_) => MessageKind::ModeChange,
            Body::SrcAvailCancel => MessageKind::SrcAvailCancel,
            Body::SinkAvailCancel => MessageKind::SinkAvailCancel,
            Body::SinkAvailCancelAck => MessageKind::SinkAvailCancelAck,
            Body::ChRcvBuf(_) => MessageKind::ChRcvBuf,
            Body::ChRcvBufAck(_) => MessageKind::ChRcvBufAck,
            Body::SuspComm(_) => MessageKind::SuspComm,
            Body::SuspCommAck => MessageKind::SuspCommAck,
            Body::SinkAvail(_) => MessageKind::SinkAvail,
            Body::SrcAvail(..) => MessageKind::SrcAvail,
            Body::Data(_) => MessageKind::Data,
        }
    }

    /// Encodes the part of the body before the payload; returns it with its length.
    #[must_use]
    pub fn encode_fixed(&self) -> ([u8; SOURCE_BYTES], usize) {
        let mut out = [0; SOURCE_BYTES];
        match *self {
            Body::RdmaWrCompl(word)
            | Body::RdmaRdCompl(word)
            | Body::ModeChange(word)
            | Body::ChRcvBuf(word)
            | Body::ChRcvBufAck(word)
            | Body::SuspComm(word) => {
                out[..WORD_BYTES].copy_from_slice(&word.to_be_bytes());
                (out, WORD_BYTES)
            }
            Body::SinkAvail(memory) | Body::SrcAvail(memory, _) => (memory.encode(), SOURCE_BYTES),
            _ => (out, 0),
        }
    }

    /// Returns the bytes of the payload.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        match *self {
            Body::Data(bytes) | Body::SrcAvail(_, bytes) => bytes,
            _ => 0,
        }
    }
}
