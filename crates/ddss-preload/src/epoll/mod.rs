//! Sets of `epoll`: the library keeps the interest in streams, the kernel the rest.

mod item;
mod set;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use ddss_stream::Endpoint;

pub(crate) use set::EpollSet;

use crate::table;

/// Sets of a process. Streams in a set beyond them stay on TCP.
const SETS: usize = 1024;

struct Place {
    set: EpollSet,
    users: AtomicU32,
}

static PLACES: [Place; SETS] = [const { Place { set: EpollSet::new(), users: AtomicU32::new(0) } }; SETS];

/// Returns the set behind a descriptor.
#[inline]
pub(crate) fn set(descriptor: RawFd) -> Option<&'static EpollSet> {
    table::epoll(descriptor).and_then(|index| PLACES.get(index)).map(|place| &place.set)
}

/// Records a new set.
pub(crate) fn insert(descriptor: RawFd) {
    let free =
        PLACES.iter().position(|place| place.users.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if let Some(index) = free {
        PLACES[index].set.reset(descriptor);
        if !table::insert_epoll(descriptor, index) {
            release(index);
        }
    }
}

/// Counts one more descriptor of a set.
pub(crate) fn share(index: usize) -> bool {
    let users = PLACES.get(index).map(|place| &place.users);
    users.is_some_and(|users| {
        users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |users| (users > 0).then_some(users + 1)).is_ok()
    })
}

/// Forgets one descriptor of a set.
pub(crate) fn release(index: usize) {
    if let Some(place) = PLACES.get(index) {
        place.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Moves the registrations of a stream from the kernel to the library.
pub(crate) fn convert(endpoint: &Endpoint) {
    for place in PLACES.iter().filter(|place| place.users.load(Ordering::Acquire) > 0) {
        place.set.convert(endpoint);
    }
}
