//! The error of this crate.

/// Error of a stream. After any error of a received message the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SdpError {
    /// A hello is shorter than its fields, or longer than private data can be.
    #[error("cannot read a hello of {0} bytes: close the connection")]
    HelloLength(usize),
    /// A hello has another protocol version.
    #[error("cannot speak protocol version {0:#04x}: use plain TCP with this peer")]
    Version(u8),
    /// A field of a hello has a value that the protocol does not permit.
    #[error("cannot accept a hello with {0} {1}: close the connection")]
    HelloField(&'static str, u32),
    /// The first byte of a message names no message.
    #[error("cannot read message id {0:#04x}: close the connection")]
    UnknownMessage(u8),
    /// A message that this stream never permits.
    #[error("cannot accept message id {0:#04x} in this state: close the connection")]
    UnexpectedMessage(u8),
    /// The length field of a message does not fit its id or the bytes that arrived.
    #[error("cannot read message id {mid:#04x} with length {len}: close the connection")]
    MessageLength {
        /// Message id.
        mid: u8,
        /// Length field, or the bytes that arrived if there is no complete header.
        len: u32,
    },
    /// A message number is not the next one.
    #[error("cannot accept message {got} after message {last}: close the connection")]
    Sequence {
        /// Number of the message before.
        last: u32,
        /// Number of this message.
        got: u32,
    },
    /// The peer acknowledges a message that was not sent, or takes an acknowledgement back.
    #[error("cannot accept an acknowledgement of message {0}: close the connection")]
    Acknowledgement(u32),
    /// The peer sent more messages than it had credits for.
    #[error("cannot accept a message without a free receive buffer: close the connection")]
    NoBuffer,
    /// The peer sent data after it closed its direction.
    #[error("cannot accept data after a half close: close the connection")]
    DataAfterClose,
    /// The peer completed more bytes than were advertised, or advertised no bytes.
    #[error("cannot accept {0} advertised bytes: close the connection")]
    AdvertisedBytes(u32),
    /// The length field of a frame is outside the limits.
    #[error("cannot read a frame of {0} bytes: close the connection")]
    FrameLength(usize),
    /// The header of a frame is not that of the next message.
    #[error("cannot read a frame whose header is not that of send {0}: close the connection")]
    FrameHeader(u32),
    /// A read response is malformed, or is not that of the request.
    #[error("cannot accept a read response that does not continue the request: close the connection")]
    ReadResponse,
    /// A read request names memory that is not advertised.
    #[error("cannot serve a read of memory with key {0} that is not advertised: close the connection")]
    ReadRequest(u32),
    /// A marker does not point to the start of its frame.
    #[error("cannot accept the marker at stream position {0}: close the connection")]
    Marker(u64),
    /// A frame has a wrong checksum.
    #[error("cannot accept the frame at stream position {0}, its checksum is wrong: close the connection")]
    Checksum(u64),
    /// The peer reset the stream, or this side aborted it.
    #[error("stream reset: connect again")]
    Reset,
    /// This side has closed its direction.
    #[error("cannot write after shutdown")]
    WriteClosed,
    /// The plan has no zero copy, or an advertisement is outstanding.
    #[error("cannot advertise memory now: write through the buffers")]
    CannotAdvertise,
    /// There is no advertised memory of this length to read.
    #[error("cannot complete a read of {0} bytes that is not in progress")]
    NoSource(u32),
    /// A setting is outside its limits.
    #[error("cannot use {0} {1}: see the limits")]
    Config(&'static str, usize),
}
