//! Lock-free structures for the threads and tasks of a client that share channels, an arena or a mapping.
//!
//! The client crate builds on them; other crates need none.

pub use crate::client::call_table::{CallId, CallStatus, CallTable, Notify};
pub use crate::shm::slot_bitmap::SlotBitmap;
pub use crate::sys::{Combiner, TryLockPool};
#[cfg(not(loom))]
pub use crate::sys::{Lent, LentThread, PoolGuard, ProcessByte, Seqlock};
