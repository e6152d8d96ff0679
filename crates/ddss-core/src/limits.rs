//! Every bound of the system, in one place, with what relates them.

/// Bytes of one cache line, of one ring entry and of one segment header.
pub const LINE_BYTES: usize = 64;

/// Nodes of a cluster (a node id is 16 bits, 0 is nobody).
pub const NODES_MAX: usize = 1024;
/// Planes of one daemon: progress threads that share its segments out among themselves.
pub const PLANES_MAX: usize = 16;
/// Clients attached to one node at the same time.
pub const CLIENTS_MAX: usize = 1024;
/// Lanes (ring pairs) of one client: one a thread.
pub const LANES_PER_CLIENT_MAX: usize = 64;
/// Entries of one ring.
pub const RING_SLOTS: usize = 64;

/// Bytes of one slot of a client's arena.
pub const ARENA_SLOT_BYTES: usize = 4096;
/// Bytes of a client's arena when nothing else is asked for.
pub const ARENA_BYTES_DEFAULT: usize = 8 << 20;
/// Bytes of the largest arena that a client may ask for.
pub const ARENA_BYTES_MAX: usize = 256 << 20;

/// Bytes that one get or put moves at the most.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Ranges that one vectored get or put names at the most.
pub const RANGES_MAX: usize = 16;
/// Versions before the newest one that a segment keeps at the most.
pub const HISTORY_MAX: u32 = 1024;
/// Bytes of the largest remote segment of which a node keeps a copy for its own readers.
pub const COPY_BYTES_MAX: u64 = 64 << 10;
/// Copies of remote segments that a node keeps at the most.
pub const COPIES_MAX: usize = 256;
/// Nodes on which a segment is kept at the most: its home and one mirror.
pub const COPIES_MAX_OF_SEGMENT: u8 = 2;
/// Bytes of one piece in which a segment is copied to its mirror.
pub const MIRROR_PIECE_BYTES: u32 = 64 << 10;
/// Pieces of one segment that are on their way to its mirror at the same time.
pub const MIRROR_PIECES_MAX: usize = 4;
/// Ranges that puts have changed behind the copying and that are still to be sent again: more, and puts wait.
pub const MIRROR_DIRTY_MAX: usize = 64;
/// Changes of permissions of one mirrored segment that wait for its mirror to be let go.
pub const MIRROR_PERMITS_MAX: usize = 16;
/// Bytes of data that travel inside a completion.
pub const INLINE_REPLY_BYTES_MAX: usize = 32;
/// Bytes of data that travel inside a request.
pub const INLINE_REQUEST_BYTES_MAX: usize = 16;

/// Bytes of one message between two engines.
pub const MESSAGE_BYTES_MAX: usize = 512;
/// Bytes that a peer may have written into the staging window of a home and not yet committed.
pub const STAGING_BYTES: usize = 4 << 20;
/// Bytes of private data that a fabric carries while it connects.
pub const HELLO_BYTES_MAX: usize = 256;

/// Segments that one node is the home of.
pub const SEGMENTS_PER_NODE_MAX: usize = 1 << 16;
/// Bytes of a segment's name.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of what a list asks for: how long the prefix is, the prefix, and the name after which to go on.
pub const LIST_TEXT_BYTES_MAX: usize = 1 + 2 * NAME_BYTES_MAX;
/// Bytes of the longest text that a request has in its client's arena.
pub const TEXT_BYTES_MAX: usize = LIST_TEXT_BYTES_MAX;
/// Bytes of the largest segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 40;
/// Areas that a node's memory for segments is split into: one for each set of people who may read the same.
pub const AREAS_MAX: usize = 256;
/// Addresses of one area.
pub const AREA_BYTES_MAX: u64 = 1 << 48;
/// The unit in which memory is given to segments.
pub const BLOCK_BYTES: usize = 4096;

/// Operations under way on one node, all clients together.
pub const OPERATIONS_MAX: usize = 1 << 14;

/// What a call waits for when it names no deadline, in microseconds.
pub const TIMEOUT_DEFAULT_US: u32 = 2_000_000;
/// The longest deadline that a call may name, in microseconds.
pub const TIMEOUT_MAX_US: u32 = 600_000_000;

/// The longest lease of a lock, in microseconds.
pub const LEASE_MAX_US: u32 = 600_000_000;
/// What a lease lasts when none is named, in microseconds.
pub const LEASE_DEFAULT_US: u32 = 10_000_000;
/// Those who wait for one segment: for its lock, or for a newer version.
pub const WAITERS_PER_SEGMENT_MAX: usize = 4096;

const _: () = assert!(RING_SLOTS.is_power_of_two());
// A node and a plane, or a count of planes, share 16 bits in ids and hellos.
const _: () = assert!(NODES_MAX < 1 << 11 && PLANES_MAX <= 1 << 5);
const _: () = assert!(SEGMENTS_PER_NODE_MAX - 1 <= u16::MAX as usize);
const _: () = assert!(AREA_BYTES_MAX.is_power_of_two() && SEGMENT_BYTES_MAX < AREA_BYTES_MAX);
const _: () = assert!(AREAS_MAX as u64 <= u64::MAX / AREA_BYTES_MAX);
const _: () = assert!(ARENA_BYTES_DEFAULT.is_multiple_of(ARENA_SLOT_BYTES));
const _: () = assert!(ARENA_BYTES_MAX.is_multiple_of(ARENA_SLOT_BYTES));
const _: () = assert!(TRANSFER_BYTES_MAX <= ARENA_BYTES_DEFAULT);
const _: () = assert!(TRANSFER_BYTES_MAX <= STAGING_BYTES);
const _: () = assert!(NAME_BYTES_MAX * 2 <= MESSAGE_BYTES_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX <= ARENA_SLOT_BYTES);
const _: () = assert!(TIMEOUT_DEFAULT_US <= TIMEOUT_MAX_US);
const _: () = assert!(RANGES_MAX * 16 <= TEXT_BYTES_MAX);
const _: () = assert!(HISTORY_MAX <= u16::MAX as u32);
const _: () = assert!(MIRROR_PIECE_BYTES as usize * MIRROR_PIECES_MAX <= STAGING_BYTES / 2);
const _: () = assert!(RANGES_MAX < MIRROR_DIRTY_MAX);
