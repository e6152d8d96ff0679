//! Bounds of the whole system, with the relations between them.

/// Bytes of one cache line, of one ring entry and of one segment header.
pub const LINE_BYTES: usize = 64;

/// Nodes of a cluster (a node id is 16 bits, 0 is no node).
pub const NODES_MAX: usize = 1024;
/// Shards of one daemon: progress threads that divide its segments among themselves.
pub const SHARDS_MAX: usize = 16;
/// Clients attached to one node at the same time.
pub const CLIENTS_MAX: usize = 1024;
/// Channels (ring pairs) of one client: one a thread.
pub const CHANNELS_PER_CLIENT_MAX: usize = 64;
/// Entries of one ring.
pub const RING_SLOTS: usize = 64;

/// Bytes of one slot of a client's arena.
pub const ARENA_SLOT_BYTES: usize = 4096;
/// Default bytes of a client's arena.
pub const ARENA_BYTES_DEFAULT: usize = 8 << 20;
/// Bytes of the largest arena that a client may ask for.
pub const ARENA_BYTES_MAX: usize = 256 << 20;

/// Maximum bytes of one request.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of one value, which travels in parts.
pub const VALUE_BYTES_MAX: usize = 1 << 31;
/// Large puts of one client in progress.
pub const UPLOADS_PER_CLIENT_MAX: usize = 16;
/// Time until a large put without a new part is dropped, in microseconds.
pub const UPLOAD_IDLE_US: u64 = 60_000_000;
/// Maximum ranges of one vectored get or put.
pub const RANGES_MAX: usize = 16;
/// Maximum rows of a table that one request reads.
pub const ROWS_MAX: usize = 256;
/// Buckets of a map that its home looks through without other work between.
pub const SWEEP_BUCKETS_MAX: u64 = 32;
/// Time between two passes in which a home frees the expired entries of a map, in microseconds.
pub const SWEEP_PAUSE_US: u64 = 10_000_000;
/// Maximum number of older versions in a segment's history.
pub const HISTORY_MAX: u32 = 1024;
/// Bytes of the largest remote segment in the read cache.
pub const CACHED_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of segments in the read cache.
pub const CACHED_SEGMENTS_MAX: usize = 256;
/// Maximum number of nodes with a copy of a segment: its home and one replica.
pub const COPIES_MAX_OF_SEGMENT: u8 = 2;
/// Bytes of one piece of a resync.
pub const RESYNC_PIECE_BYTES: u32 = 64 << 10;
/// Pieces of one segment's resync in flight.
pub const RESYNC_PIECES_MAX: usize = 4;
/// Ranges behind the cursor of a resync that are to be sent again: beyond it, puts wait.
pub const RESYNC_DIRTY_MAX: usize = 64;
/// Permission changes of one replicated segment that wait until its home is alone.
pub const DEFERRED_UPDATES_MAX: usize = 16;
/// Bytes of data that travel inside a completion.
pub const INLINE_REPLY_BYTES_MAX: usize = 32;
/// Bytes of data that travel inside a request.
pub const INLINE_REQUEST_BYTES_MAX: usize = 16;

/// Bytes of one message between two engines.
pub const MESSAGE_BYTES_MAX: usize = 512;
/// Bytes that a peer may have written into a home's staging memory and not yet committed.
pub const STAGING_BYTES: usize = 4 << 20;
/// Bytes of private data that a fabric carries while it connects.
pub const HELLO_BYTES_MAX: usize = 256;

/// Segments that one node may be set to be the home of (`ddssd --segments`).
pub const SEGMENTS_PER_NODE_MAX: usize = 1_000_000;
/// Default maximum of segments that one node is the home of.
pub const SEGMENTS_PER_NODE_DEFAULT: usize = 1 << 16;
/// Segments of one other node that the clients of a node have open.
pub const REMOTE_SEGMENTS_MAX: usize = 1 << 16;
/// Bytes of a segment's name.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of a list query: the prefix with its length, and the name to continue after.
pub const LIST_TEXT_BYTES_MAX: usize = 1 + 2 * NAME_BYTES_MAX;
/// Bytes of the longest text of a request in its client's arena.
pub const TEXT_BYTES_MAX: usize = LIST_TEXT_BYTES_MAX;
/// Bytes of the largest segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 40;
/// Areas of a node's memory for segments: one for each set of readers.
pub const AREAS_MAX: usize = 256;
/// Addresses of one area.
pub const AREA_BYTES_MAX: u64 = 1 << 48;
/// Unit of memory allocation for segments: two lines.
pub const BLOCK_BYTES: usize = 128;
/// Unit in which the kernel gives memory and takes it back.
pub const PAGE_BYTES: usize = 4096;

/// Pending operations on one node, all clients together.
pub const OPERATIONS_MAX: usize = 1 << 16;
/// Pending operations that parked waits for other nodes may use.
pub const PARKED_OPERATIONS_MAX: usize = OPERATIONS_MAX - (1 << 14);

/// Default maximum number of parked waits of one client.
pub const WAITS_PER_CLIENT_DEFAULT: usize = 1 << 16;
/// Parked waits of all clients of one node.
pub const WAITS_PER_NODE_MAX: usize = 1 << 18;
/// Requests of one client that collect ended waits, in flight at the same time.
pub const COLLECTS_PER_CLIENT_MAX: usize = RING_SLOTS;

/// Default timeout of a call, in microseconds.
pub const TIMEOUT_DEFAULT_US: u32 = 2_000_000;
/// Longest timeout of a call, in microseconds.
pub const TIMEOUT_MAX_US: u32 = 600_000_000;
/// Longest time that a home leaves for its answer to a change that waited, in microseconds.
pub const ANSWER_MARGIN_MAX_US: u32 = 100_000;

/// The longest lease of a lock, in microseconds.
pub const LEASE_MAX_US: u32 = 600_000_000;
/// Default lease of a lock, in microseconds.
pub const LEASE_DEFAULT_US: u32 = 10_000_000;
/// Waiters for one segment's locks, or watchers of its version.
pub const WAITERS_PER_SEGMENT_MAX: usize = 1 << 16;
/// Changes of a table's rows that its home records for watchers of all rows.
pub const ROW_CHANGES_MAX: usize = 1024;
/// Shared holders of one lock.
pub const HOLDERS_PER_SEGMENT_MAX: usize = 4096;
/// Holders of row locks of one table.
pub const ROW_LOCKS_PER_TABLE_MAX: usize = 1 << 16;

const _: () = assert!(RING_SLOTS.is_power_of_two());
// A node and a shard, or a number of shards, share 16 bits in ids and hellos.
const _: () = assert!(NODES_MAX < 1 << 11 && SHARDS_MAX <= 1 << 5);
const _: () = assert!(SEGMENTS_PER_NODE_DEFAULT <= SEGMENTS_PER_NODE_MAX);
const _: () = assert!(WAITS_PER_CLIENT_DEFAULT <= WAITS_PER_NODE_MAX);
// The highest channel index stands for the parked waits of a client.
const _: () = assert!(CHANNELS_PER_CLIENT_MAX < u8::MAX as usize);
const _: () = assert!(AREA_BYTES_MAX.is_power_of_two() && SEGMENT_BYTES_MAX < AREA_BYTES_MAX);
const _: () = assert!(AREAS_MAX as u64 <= u64::MAX / AREA_BYTES_MAX);
const _: () = assert!(ARENA_BYTES_DEFAULT.is_multiple_of(ARENA_SLOT_BYTES));
const _: () = assert!(ARENA_BYTES_MAX.is_multiple_of(ARENA_SLOT_BYTES));
const _: () = assert!(TRANSFER_BYTES_MAX <= ARENA_BYTES_DEFAULT);
const _: () = assert!(TRANSFER_BYTES_MAX <= STAGING_BYTES);
const _: () = assert!(VALUE_BYTES_MAX <= u32::MAX as usize && TRANSFER_BYTES_MAX < VALUE_BYTES_MAX);
const _: () = assert!(NAME_BYTES_MAX * 2 <= MESSAGE_BYTES_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX <= ARENA_SLOT_BYTES);
const _: () = assert!(TIMEOUT_DEFAULT_US <= TIMEOUT_MAX_US);
const _: () = assert!(RANGES_MAX * 16 <= TEXT_BYTES_MAX);
const _: () = assert!(HISTORY_MAX <= u16::MAX as u32);
const _: () = assert!(RESYNC_PIECE_BYTES as usize * RESYNC_PIECES_MAX <= STAGING_BYTES / 2);
const _: () = assert!(RANGES_MAX < RESYNC_DIRTY_MAX);
