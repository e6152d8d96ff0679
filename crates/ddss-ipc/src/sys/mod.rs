//! Kernel interfaces, shared memory and lock-free structures: the only unsafe code of this crate beside
//! the rings in `shm`.
//!
//! `memory`, `files` and `seqlock` access shared memory, `sigbus` handles its loss. `combiner` and `try_lock_pool`
//! share values between threads without waiting, `process_byte` tells a process from its children, and
//! `lent_thread` leaves them nothing of a thread. The other modules wrap one kernel interface each.

#[cfg(not(loom))]
mod barrier;
mod combiner;
#[cfg(not(loom))]
mod files;
#[cfg(not(loom))]
mod lent_thread;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod peer_credentials;
#[cfg(not(loom))]
mod process_byte;
#[cfg(not(loom))]
mod seqlock;
#[cfg(not(loom))]
mod sigbus;
#[cfg(not(loom))]
mod socket_activation;
#[cfg(not(loom))]
mod sysv_queue;
mod try_lock_pool;

#[cfg(not(loom))]
pub(crate) use barrier::end_all_before;
pub use combiner::Combiner;
#[cfg(not(loom))]
pub use lent_thread::{Lent, LentThread};
#[cfg(not(loom))]
pub(crate) use memory::MappedWord;
#[cfg(not(loom))]
pub use memory::{Access, MemoryError, SharedMemory};
#[cfg(not(loom))]
pub use peer_credentials::Credentials;
#[cfg(not(loom))]
pub(crate) use peer_credentials::credentials_of;
#[cfg(not(loom))]
pub use process_byte::ProcessByte;
#[cfg(not(loom))]
pub use seqlock::Seqlock;
#[cfg(not(loom))]
pub use socket_activation::InheritedSocket;
#[cfg(not(loom))]
pub(crate) use sysv_queue::{Queue, Received};
#[cfg(not(loom))]
pub use try_lock_pool::PoolGuard;
pub use try_lock_pool::TryLockPool;
