//! Sets of `epoll`: the library keeps the interest in streams, the kernel the rest.

mod item;
mod set;
mod sets;

pub(crate) use set::EpollSet;
pub(crate) use sets::{convert, insert, learn, set, take_registrations};
