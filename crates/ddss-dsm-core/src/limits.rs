//! Every limit of a space, and the relations between them.

/// Ranks of a space at most: a version line has one stamp of four bytes for each.
pub const RANKS_MAX: usize = 16;
/// Bytes of a version line.
pub const LINE_BYTES: usize = 4 * RANKS_MAX;
/// Bytes of a home word.
pub const WORD_BYTES: u64 = 8;
/// Pages of a space at most.
pub const PAGES_MAX: u32 = 1 << 24;
/// Bytes of the smallest page, for tests.
pub const PAGE_BYTES_MIN: u32 = 16;
/// Bytes of the largest page: the offset of a run has 16 bits.
pub const PAGE_BYTES_MAX: u32 = 64 << 10;
/// Bytes of a message at least: a forwarded lock request has to fit.
pub const MESSAGE_BYTES_MIN: usize = 128;
/// Bytes of a message at most.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Records of the log ring at least: an interval is never written over its predecessor.
pub const LOG_SLOTS_MIN: u32 = 2;
/// Records of the log ring at most.
pub const LOG_SLOTS_MAX: u32 = 1 << 16;
/// Bytes of the log ring at most.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// Number of the last interval at most.
pub const INTERVAL_MAX: u32 = u32::MAX - 1;
/// Bytes of diffs on their way to homes, from which on a rank closes no interval before they are placed. One interval may exceed it.
pub const UNPLACED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 16;
/// Bytes of a range of pages in a record or a message.
pub const RANGE_BYTES: usize = 8;
/// Bytes of a record at least: the header and one range.
pub const RECORD_BYTES_MIN: u32 = (RECORD_HEADER_BYTES + RANGE_BYTES) as u32;
/// Bytes of a record at most.
pub const RECORD_BYTES_MAX: u32 = 64 << 10;
/// Locks, barriers, semaphores and counters of a space, each: an index is below this.
pub const INDEX_END: u32 = 1 << 16;
/// Pages that a rank fetches at the same time at most.
pub const FETCHES_MAX: u16 = 1024;
/// Twins of a rank at most.
pub const TWINS_MAX: u32 = 1 << 20;
/// Diff messages that are sent and not acknowledged at most.
pub const WINDOW_MAX: u32 = 1024;
/// Diff messages in flight where diffs are written one-sided, and only pages with many runs are sent as messages.
pub const PACKED_WINDOW: u32 = 16;
/// Calls of a rank that wait at most.
pub const CALLS_MAX: usize = 4096;
/// Own intervals behind which a rank refuses calls that synchronise. The waiting calls end two intervals each at most.
pub const INTERVALS_END: u32 = INTERVAL_MAX - 2 * CALLS_MAX as u32;
/// Pages at most that a rank reports as those with the most fetches, or the most writers.
pub const HOT_PAGES_MAX: usize = 12;
/// Value of a semaphore at most.
pub const SEMAPHORE_MAX: u32 = 1 << 30;

const _: () = assert!(RANKS_MAX <= 16, "a set of ranks has 16 bits");
const _: () = assert!(PAGE_BYTES_MAX as usize <= 1 << 16);
const _: () = assert!(LOG_BYTES_MAX <= u32::MAX as u64, "a read of the log has a length of 32 bits");
const _: () = assert!(MESSAGE_BYTES_MIN >= 16 + LINE_BYTES + RANGE_BYTES);
