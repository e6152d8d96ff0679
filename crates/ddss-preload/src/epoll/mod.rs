//! Sets of `epoll`: the library keeps the interest in streams, the kernel the rest.

mod interests;
mod item;
mod set;
mod sets;

pub(crate) use set::EpollSet;
pub(crate) use sets::{
    after_fork, before_fork, convert, insert, is_used, learn, set, start, take_registrations, watch,
};
