//! The sets of the process, by descriptor.

use std::os::fd::RawFd;

use ddss_stream::Endpoint;
use libc::epoll_event;

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

/// Takes the registrations of a descriptor out of the kernel, before the descriptor becomes another socket.
pub(crate) fn take_registrations(descriptor: RawFd) -> Vec<(&'static EpollSet, RawFd, epoll_event)> {
    let used = POOL.iter().enumerate().filter(|(index, _)| set_counts::is_used(*index)).map(|(_, set)| set);
    used.filter_map(|set| set.take_registration(descriptor).map(|(number, event)| (set, number, event))).collect()
}
