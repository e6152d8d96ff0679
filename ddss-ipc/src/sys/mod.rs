//! Everything that talks to the kernel or to memory which others write: the only unsafe code of this crate beside
//! [`ring`](crate::ring).

mod barrier;
mod files;
mod memory;
mod queue;

pub(crate) use barrier::end_all_before;
pub(crate) use memory::MappedWord;
pub(crate) use queue::{Queue, Received};
pub use memory::{Access, MemoryError, SharedMemory};
