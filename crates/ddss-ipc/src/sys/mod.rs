//! Everything that talks to the kernel or to memory which others write: the only unsafe code of this crate beside
//! [`ring`](crate::ring).

#[cfg(not(loom))]
mod barrier;
mod claim;
mod desk;
#[cfg(not(loom))]
mod files;
#[cfg(not(loom))]
mod framed;
#[cfg(not(loom))]
mod inherited;
#[cfg(not(loom))]
mod lost;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod peer;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod slice;

#[cfg(not(loom))]
pub(crate) use barrier::end_all_before;
#[cfg(not(loom))]
pub use claim::Claimed;
pub use claim::Claims;
pub use desk::Desk;
#[cfg(not(loom))]
pub use framed::Framed;
#[cfg(not(loom))]
pub use inherited::Inherited;
#[cfg(not(loom))]
pub use lost::exit_for_lost_files;
#[cfg(not(loom))]
pub(crate) use memory::MappedWord;
#[cfg(not(loom))]
pub use memory::{Access, MemoryError, SharedMemory};
#[cfg(not(loom))]
pub(crate) use peer::credentials_of;
#[cfg(not(loom))]
pub(crate) use queue::{Queue, Received};
#[cfg(not(loom))]
pub(crate) use slice::{set_slice_ns, slice_ns};
