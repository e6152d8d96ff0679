//! Everything that talks to the kernel or to memory which others write: the only unsafe code of this crate beside
//! [`ring`](crate::ring).

mod barrier;
mod claim;
mod desk;
mod files;
mod framed;
mod inherited;
mod lost;
mod memory;
mod peer;
mod queue;
mod slice;

pub(crate) use barrier::end_all_before;
pub(crate) use memory::MappedWord;
pub(crate) use peer::credentials_of;
pub(crate) use queue::{Queue, Received};
pub(crate) use slice::{set_slice_ns, slice_ns};
pub use claim::{Claimed, Claims};
pub use desk::Desk;
pub use framed::Framed;
pub use inherited::Inherited;
pub use lost::exit_for_lost_files;
pub use memory::{Access, MemoryError, SharedMemory};
