//! The header before every message (BSDH).

use crate::error::SdpError;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $mid:literal,)*) => {
        /// Id of a message, with the names of the specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum MessageKind {
            $($(#[$doc])* $name = $mid,)*
        }

        impl MessageKind {
            /// Every kind, in the order of ids.
            pub const ALL: &'static [MessageKind] = &[$(MessageKind::$name,)*];

            /// Returns the kind with this id.
            ///
            /// # Errors
            /// The id names no message.
            pub const fn from_mid(mid: u8) -> Result<MessageKind, SdpError> {
                match mid {
                    $($mid => Ok(MessageKind::$name),)*
                    _ => Err(SdpError::UnknownMessage(mid)),
                }
            }
        }
    };
}

kinds! {
    /// Connection request, in private data.
    Hello = 0x00,
    /// Answer to a connection request, in private data.
    HelloAck = 0x01,
    /// Half close: the sender writes no more.
    DisConn = 0x02,
    /// Reset.
    AbortConn = 0x03,
    /// Request to send the advertised bytes through the buffers.
    SendSm = 0x04,
    /// Completion of a write into advertised memory.
    RdmaWrCompl = 0x05,
    /// Completion of a read from advertised memory.
    RdmaRdCompl = 0x06,
    /// Change of the flow mode.
    ModeChange = 0x07,
    /// Withdrawal of a source advertisement.
    SrcAvailCancel = 0x08,
    /// Withdrawal of a sink advertisement.
    SinkAvailCancel = 0x09,
    /// Answer to the withdrawal of a sink advertisement.
    SinkAvailCancelAck = 0x0a,
    /// Request for larger receive buffers.
    ChRcvBuf = 0x0b,
    /// Answer to a request for larger receive buffers.
    ChRcvBufAck = 0x0c,
    /// Request to suspend the connection.
    SuspComm = 0x0d,
    /// Answer to a request to suspend the connection.
    SuspCommAck = 0x0e,
    /// Advertisement of memory to write to.
    SinkAvail = 0xfd,
    /// Advertisement of memory to read from; the first bytes may follow.
    SrcAvail = 0xfe,
    /// Bytes of the stream; without bytes, an update of credits.
    Data = 0xff,
}

impl MessageKind {
    /// Returns the id.
    #[must_use]
    pub const fn mid(self) -> u8 {
        self as u8
    }
}

/// Flags of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// The sender holds small writes back until this message is acknowledged. Only the enhanced plan has this flag.
    pub const ACK_WANTED: Flags = Flags(8);

    /// Returns true if every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the byte in the header.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Id of the message.
    pub kind: MessageKind,
    /// Flags. Unknown bits are retained and have no effect.
    pub flags: Flags,
    /// Receive buffers that the sender has posted now.
    pub bufs: u16,
    /// Bytes of the message, this header included.
    pub len: u32,
    /// Number of the message; the hello has number 0.
    pub mseq: u32,
    /// Number of the last message that the sender received.
    pub mseq_ack: u32,
}

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = self.kind.mid();
        out[1] = self.flags.bits();
        out[2..4].copy_from_slice(&self.bufs.to_be_bytes());
        out[4..8].copy_from_slice(&self.len.to_be_bytes());
        out[8..12].copy_from_slice(&self.mseq.to_be_bytes());
        out[12..16].copy_from_slice(&self.mseq_ack.to_be_bytes());
        out
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// The id names no message, or the length is less than a header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, SdpError> {
        let [mid, flags, b0, b1, l0, l1, l2, l3, s0, s1, s2, s3, a0, a1, a2, a3] = *bytes;
        let kind = MessageKind::from_mid(mid)?;
        let len = u32::from_be_bytes([l0, l1, l2, l3]);
        if (len as usize) < HEADER_BYTES {
            return Err(SdpError::MessageLength { mid, len });
        }
        Ok(Header {
            kind,
            flags: Flags(flags),
            bufs: u16::from_be_bytes([b0, b1]),
            len,
            mseq: u32::from_be_bytes([s0, s1, s2, s3]),
            mseq_ack: u32::from_be_bytes([a0, a1, a2, a3]),
        })
    }

    /// Returns the bytes behind the header.
    #[must_use]
    pub const fn body_bytes(&self) -> usize {
        (self.len as usize).saturating_sub(HEADER_BYTES)
    }
}
