//! The sets of the process, by descriptor.

use std::os::fd::RawFd;

use ddss_stream::Endpoint;

use super::set::EpollSet;
use crate::places::{self, SETS};
use crate::table;

static POOL: [EpollSet; SETS] = [const { EpollSet::new() }; SETS];

/// Returns the set behind a descriptor.
#[inline]
pub(crate) fn set(descriptor: RawFd) -> Option<&'static EpollSet> {
    table::epoll(descriptor).and_then(|index| POOL.get(index))
}

/// Records a new set.
pub(crate) fn insert(descriptor: RawFd) {
    if let Some(index) = places::claim() {
        POOL[index].reset(descriptor);
        if !table::insert_epoll(descriptor, index) {
            places::release(index);
        }
    }
}

/// Moves the registrations of a stream from the kernel to the library.
pub(crate) fn convert(endpoint: &Endpoint) {
    for (index, set) in POOL.iter().enumerate() {
        if places::is_used(index) {
            set.convert(endpoint);
        }
    }
}
