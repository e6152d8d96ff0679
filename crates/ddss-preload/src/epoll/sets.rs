//! The sets of the process, by descriptor.

use std::os::fd::RawFd;

use ddss_stream::Endpoint;

use super::set::EpollSet;
use crate::descriptor_table;
use crate::set_counts::{self, SETS};

static POOL: [EpollSet; SETS] = [const { EpollSet::new() }; SETS];

/// Returns the set behind a descriptor.
#[inline]
pub(crate) fn set(descriptor: RawFd) -> Option<&'static EpollSet> {
    descriptor_table::epoll(descriptor).and_then(|index| POOL.get(index))
}

/// Records a new set.
pub(crate) fn insert(descriptor: RawFd) {
    if let Some(index) = set_counts::claim() {
        POOL[index].reset(descriptor);
        if !descriptor_table::insert_epoll(descriptor, index) {
            set_counts::release(index);
        }
    }
}

/// Tells the sets that a descriptor is about to connect.
pub(crate) fn learn(descriptor: RawFd, endpoint: &Endpoint) {
    for (index, set) in POOL.iter().enumerate() {
        if set_counts::is_used(index) {
            set.learn(descriptor, endpoint);
        }
    }
}

/// Moves the registrations of a stream from the kernel to the library.
pub(crate) fn convert(endpoint: &Endpoint) {
    for (index, set) in POOL.iter().enumerate() {
        if set_counts::is_used(index) {
            set.convert(endpoint);
        }
    }
}
