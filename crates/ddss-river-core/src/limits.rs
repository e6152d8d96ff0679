//! Every limit of a flow, and the relations between them.

/// Messages of one producer at one consumer at most: the free slots are bits of a 64-bit word.
pub const WINDOW_MAX: u16 = 64;
/// Messages that a producer holds until they are acknowledged, at most.
pub const SEND_SLOTS_MAX: u16 = 4096;
/// Bytes of a message at most.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;
/// Consumers of a producer, and producers of a consumer, at most: the peers of a fabric.
pub const PEERS_MAX: usize = 2048;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Bytes that travel behind a header at most, in place of a write.
pub const INLINE_BYTES_MAX: usize = 400;
/// Bytes of a notice at most.
pub const NOTICE_BYTES_MAX: usize = 40;
/// Transfers of a message at most. The message fails at the next loss.
pub const ATTEMPTS_MAX: u16 = 255;
/// Transfers of a message behind which it is not recalled any more.
pub const RECALLED_ATTEMPTS_MAX: u16 = 16;
/// Consumers that a message may end, or that reject it: then it fails.
pub const STRIKES_MAX: u8 = 3;
/// Time of one message at most, for estimates.
pub const SERVICE_US_MAX: u32 = u32::MAX;
/// Chunks of a part at most.
pub const CHUNKS_MAX: u32 = 1 << 24;
/// Requests of a reader at one mirror at most.
pub const CHUNK_WINDOW_MAX: u16 = 16;
/// Chunk buffers of a reader at most.
pub const CHUNK_SLOTS_MAX: u16 = 2 * CHUNK_WINDOW_MAX;
/// Readers of a file server at most.
pub const READERS_MAX: usize = 1 << 14;
/// Generation of a part at most: its successor stands for a chunk that a server cannot read.
pub const GENERATION_MAX: u64 = u64::MAX - 1;
/// Lists of a unit queue at most: one a node.
pub const LISTS_MAX: usize = 1024;
/// Units of a list at most.
pub const UNITS_MAX: u32 = 1 << 24;
/// Bytes of a unit's row, without its result.
pub const UNIT_ROW_BYTES: usize = 16;
/// Bytes of a unit's result at most.
pub const RESULT_BYTES_MAX: usize = 4096;
/// Modules of a flow at most.
pub const MODULES_MAX: usize = 256;
/// Edges of a flow at most.
pub const EDGES_MAX: usize = 1024;
/// Instances of a module at most.
pub const INSTANCES_MAX: u16 = 4096;
/// Instances of a module that messages name, at most: a producer has send slots for each.
pub const ADDRESSED_MAX: u16 = 64;
/// Bytes of a module's name at most.
pub const MODULE_NAME_BYTES_MAX: usize = 64;

const _: () = assert!(WINDOW_MAX as u32 <= u64::BITS);
const _: () = assert!(RECALLED_ATTEMPTS_MAX < ATTEMPTS_MAX);
const _: () = assert!(PEERS_MAX <= 1 << 16, "a producer or a consumer has a number of 16 bits");
const _: () = assert!(SEND_SLOTS_MAX < u16::MAX);
const _: () = assert!(NOTICE_BYTES_MAX <= HEADER_BYTES);
