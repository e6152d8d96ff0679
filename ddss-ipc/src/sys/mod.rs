//! Everything that talks to the kernel or to memory which others write: the only unsafe code of this crate beside
//! [`ring`](crate::ring).

mod memory;

pub(crate) use memory::MappedWord;
pub use memory::{Access, MemoryError, SharedMemory};
