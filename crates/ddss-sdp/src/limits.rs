//! Every limit of a stream, and the relations between them.

/// Bytes of the largest message of private buffers, header included.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 10;
/// Bytes of the smallest receive buffer that a peer may announce. A message without payload always fits.
pub const MESSAGE_BYTES_MIN: u32 = 128;
/// Bytes of a receive buffer at first.
pub const MESSAGE_BYTES_DEFAULT: u32 = 32 << 10;
/// Private buffers of one direction at most.
pub const BUFFERS_MAX: u16 = 1024;
/// Private buffers of one direction at least: two are reserved for messages without payload.
pub const BUFFERS_MIN: u16 = 4;
/// Private buffers of one direction if nothing else is configured.
pub const BUFFERS_DEFAULT: u16 = 64;
/// Credits that payload never uses. The last one is for messages that give credits.
pub const CREDITS_RESERVED: u32 = 2;
/// Time for which a small message waits for an acknowledgement, in milliseconds.
pub const NAGLE_MS: u64 = 100;
/// Time after which the caller withdraws an advertisement that has no outcome, in milliseconds.
pub const ADVERTISEMENT_MS: u64 = 1000;
/// Bytes of an integrated buffer if nothing else is configured.
pub const RING_BYTES_DEFAULT: usize = 256 << 10;
/// Bytes of an integrated buffer at most.
pub const RING_BYTES_MAX: usize = 16 << 20;
/// Payload of one frame of the integrated buffer. The distance in a marker has 16 bits, so the frame stays below
/// 64 KiB with its markers.
pub const FRAME_PAYLOAD_MAX: usize = 63 << 10;
/// Bytes in front of the open frame from which it is left open. A socket rarely takes more at once, and a frame that is
/// sealed for each try would be summed for each try.
pub const SEAL_AHEAD_BYTES: u64 = 64 << 10;
/// Bytes of held writes from which on the stream checks whether the acknowledgement has arrived.
pub const HELD_LOOK_BYTES: usize = 4 << 10;
/// Private data of a connection request at most (MPA).
pub const PRIVATE_DATA_MAX: usize = 512;

const _: () = assert!(MESSAGE_BYTES_MIN <= MESSAGE_BYTES_DEFAULT && MESSAGE_BYTES_DEFAULT <= MESSAGE_BYTES_MAX);
const _: () = assert!(BUFFERS_MIN as u32 > CREDITS_RESERVED && BUFFERS_MIN <= BUFFERS_DEFAULT);
const _: () = assert!(BUFFERS_DEFAULT <= BUFFERS_MAX);
