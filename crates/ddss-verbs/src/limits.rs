//! Every bound of a fabric, in one place, with what relates them.

use ddss_core::limits::{HELLO_BYTES_MAX, MESSAGE_BYTES_MAX, NODES_MAX, TRANSFER_BYTES_MAX};

/// Peers of one fabric, connected or on their way.
pub const PEERS_MAX: usize = 2 * NODES_MAX;
/// Peers that connected to us and have not yet been accepted.
pub const HALF_OPEN_MAX: usize = 64;
/// Closed connections whose last bytes (a terminate, say) are still being sent.
pub const LINGERING_MAX: usize = 64;
/// Regions of registered memory.
pub const REGIONS_MAX: usize = 4096;
/// Windows that one peer may see at the same time.
pub const WINDOWS_PER_PEER_MAX: usize = 1 << 16;
/// Operations posted to one peer and not yet put on the wire; the next one is answered `Busy`.
pub const BACKLOG_MAX: usize = 1024;
/// Reads and atomics that one connection may have under way in each direction, when nothing else is configured.
pub const READS_OUTSTANDING_DEFAULT: u16 = 256;
/// Bytes of one read or write.
pub const WORK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a read response that is taken from memory in one go, by the thread that polls.
pub const SNAPSHOT_BYTES: usize = 64 << 10;
/// Bytes that wait encoded for a connection's socket before nothing more is encoded.
pub const OUTBOX_BYTES: usize = 256 << 10;
/// The same together with what is sent from where it lies.
pub const BULK_BYTES: usize = 1 << 20;
/// Bytes of a lone message that are sent while all others are encoded. Words stay whole between the two.
pub const EARLY_BYTES: usize = 56 << 10;
/// Fewer than so many bytes that wait in a busy connection's socket are acknowledged as they come, by the core that brings them, and
/// not by who receives them, who has better things to do at the end of an answer. Only just more than a lone message's first
/// part: where much more is under way, it is the sender's core that has better things to do.
pub const LOW_WATER_BYTES: usize = EARLY_BYTES + (4 << 10);
/// Bytes that one `recv` asks for.
pub const RECEIVE_BYTES: usize = 256 << 10;
/// The same where a large segment is expected: it is to have its headers, with some of its payload, and a number of small ones if it
/// is those that come.
pub const NEXT_BYTES: usize = 2 << 10;
/// Bytes taken from one connection in one poll before the next one has its turn.
pub const RECEIVE_BUDGET_BYTES: usize = 1 << 20;
/// The same from one that has ended: they are thrown away, and whoever sends them may do so without end.
pub const LINGER_BYTES: usize = 16 << 10;
/// Bytes given to one connection in one poll before the next one has its turn.
pub const SEND_BUDGET_BYTES: usize = 1 << 20;
/// Events of one poll after which no further connection is served.
pub const EVENTS_BUDGET: usize = 4096;

const _: () = assert!(TRANSFER_BYTES_MAX as u64 <= WORK_BYTES_MAX);
const _: () = assert!(EARLY_BYTES.is_multiple_of(8) && BULK_BYTES.is_multiple_of(8) && EARLY_BYTES < BULK_BYTES);
const _: () = assert!(SNAPSHOT_BYTES <= OUTBOX_BYTES && OUTBOX_BYTES <= BULK_BYTES && BULK_BYTES <= SEND_BUDGET_BYTES);
const _: () = assert!(HELLO_BYTES_MAX <= 508, "MPA carries 512 bytes of private data, four of which are ours");
const _: () = assert!(MESSAGE_BYTES_MAX <= 1024, "a message is one segment on every path");
