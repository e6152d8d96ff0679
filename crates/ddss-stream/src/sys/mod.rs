//! Everything of this crate that is `unsafe`: mappings, raw copies, descriptors by number.

mod descriptor;
mod guarded_copy;
mod link;
mod region;
mod send_queue;
mod signal;
mod user_memory;

pub use descriptor::{Descriptor, HiddenDescriptor, ImageStart, compare_hidden_inodes, is_hidden};
pub(crate) use descriptor::{
    Rings, copy_signals, drain_bell, forget_raised_limit, is_at_mark, is_intact, is_lost, low_water, ring_bell,
    ring_peer, take_rings,
};
pub use guarded_copy::{load, resume_address, store};
pub(crate) use link::{Link, Side};
pub(crate) use region::{Hidden, Local, Shared, high_water, local, shared};
pub use region::{SLOTS, init};
pub(crate) use send_queue::{bytes_read, set_unsent_max, unacknowledged_bytes};
pub(crate) use signal::{interrupts_calls, poll};
pub use user_memory::UserMemory;
pub(crate) use user_memory::{kernel_receive, kernel_send, with_bytes, with_room};
