//! Every limit of a fabric, and the relations between them.

/// Peers of one fabric, connected or connecting.
pub const PEERS_MAX: usize = 2048;
/// Default for the bytes of the longest message of a fabric: what nodes send each other.
pub const MESSAGE_BYTES_DEFAULT: usize = 512;
/// Bytes of the longest message that a fabric can be configured for: one private buffer of a stream.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a message in one segment; a longer one takes several.
pub const MESSAGE_SEGMENT_BYTES: usize = 32 << 10;
/// Bytes of private data that the two ends exchange while they connect.
pub const HELLO_BYTES_MAX: usize = 256;
/// Peers with an unanswered connect request.
pub const HALF_OPEN_MAX: usize = 64;
/// Closed connections whose last bytes (such as a terminate message) are still being sent.
pub const LINGERING_MAX: usize = 64;
/// Regions of registered memory.
pub const REGIONS_MAX: usize = 4096;
/// Windows of one peer at the same time.
pub const WINDOWS_PER_PEER_MAX: usize = 1 << 16;
/// Operations posted to one peer and not yet encoded; the next one is answered `Busy`.
pub const BACKLOG_MAX: usize = 1024;
/// Bytes of messages that are posted to one peer and not yet encoded; the next message is answered `Busy`.
pub const BACKLOG_MESSAGE_BYTES_MAX: usize = 512 << 10;
/// Operations of one connection in an adapter's queue, and messages that its peer may send before it gets credits again.
pub const SLOTS_MAX: usize = 256;
/// Minimum of [`SLOTS_MAX`], for long messages.
pub const SLOTS_MIN: usize = 64;
/// Bytes of an adapter's slots in one direction, unless [`SLOTS_MIN`] need more. They are locked in memory.
pub const SLOTS_BYTES: usize = 4 << 20;
/// Default for reads and atomics in flight on one connection, in each direction.
pub const READS_OUTSTANDING_DEFAULT: u16 = 256;
/// Bytes of one read or write.
pub const WORK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a read response that the polling thread takes from memory in one go.
pub const SNAPSHOT_BYTES: usize = 64 << 10;
/// Encoded bytes that wait for a connection's socket before encoding pauses.
pub const SEND_QUEUE_BYTES: usize = 256 << 10;
/// Bytes that wait for a connection's socket, including payload that is sent from registered memory.
pub const SEND_QUEUE_GATHERED_BYTES: usize = 1 << 20;
/// Bytes of a lone message that are sent while the rest is encoded. Words stay atomic across the boundary.
pub const EARLY_SEND_BYTES: usize = 56 << 10;
/// Low-water mark of a busy connection's socket (`SO_RCVLOWAT`). The core that processes the incoming packets
/// acknowledges less than this immediately, so that the receiving thread need not do it at the end of an answer. The
/// mark is only just above the first part of a lone message: with much more in flight, the sender's core is the busier
/// one.
pub const LOW_WATER_BYTES: usize = EARLY_SEND_BYTES + (4 << 10);
/// Bytes that one `recv` asks for.
pub const RECEIVE_BYTES: usize = 256 << 10;
/// Bytes that one `recv` asks for before a large segment: enough for its headers and the start of its payload, or for a
/// few small segments instead.
pub const HEADER_RECEIVE_BYTES: usize = 2 << 10;
/// Bytes received from one connection in one poll before the next connection is served.
pub const RECEIVE_BUDGET_BYTES: usize = 1 << 20;
/// Bytes received from one closed connection in one poll. They are discarded, and the peer may send them endlessly.
pub const LINGER_BYTES: usize = 16 << 10;
/// Bytes sent to one connection in one poll before the next connection is served.
pub const SEND_BUDGET_BYTES: usize = 1 << 20;
/// Events of one poll after which no further connection is served.
pub const EVENTS_BUDGET: usize = 4096;

const _: () = assert!(
    EARLY_SEND_BYTES.is_multiple_of(8)
        && SEND_QUEUE_GATHERED_BYTES.is_multiple_of(8)
        && EARLY_SEND_BYTES < SEND_QUEUE_GATHERED_BYTES
);
const _: () = assert!(
    SNAPSHOT_BYTES <= SEND_QUEUE_BYTES
        && SEND_QUEUE_BYTES <= SEND_QUEUE_GATHERED_BYTES
        && SEND_QUEUE_GATHERED_BYTES <= SEND_BUDGET_BYTES
);
const _: () = assert!(HELLO_BYTES_MAX <= 508, "MPA carries 512 bytes of private data, four of which are ours");
const _: () = assert!(is_message_limit(MESSAGE_BYTES_DEFAULT) && is_message_limit(MESSAGE_BYTES_MAX));
const _: () = assert!(
    MESSAGE_BYTES_DEFAULT <= MESSAGE_SEGMENT_BYTES && MESSAGE_SEGMENT_BYTES <= 60 << 10,
    "a short message is one segment, and a segment fits a frame"
);
const _: () = assert!(
    BACKLOG_MESSAGE_BYTES_MAX >= BACKLOG_MAX * MESSAGE_BYTES_DEFAULT && BACKLOG_MESSAGE_BYTES_MAX >= MESSAGE_BYTES_MAX,
    "the count bounds short messages, and one of any length has room"
);

/// Returns true if a fabric can be configured for messages of this many bytes: a power of two from
/// [`MESSAGE_BYTES_DEFAULT`] to [`MESSAGE_BYTES_MAX`], so that a few bits carry the limit to a peer.
#[must_use]
pub const fn is_message_limit(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= MESSAGE_BYTES_DEFAULT && bytes <= MESSAGE_BYTES_MAX
}
