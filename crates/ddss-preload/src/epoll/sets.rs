//! The sets of the process, by descriptor.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use ddss_stream::Endpoint;
use libc::epoll_event;

use super::set::EpollSet;
use crate::descriptor_table;
use crate::set_counts::{self, SETS};
use crate::sys::{Array, ForkLock};

static POOL: [EpollSet; SETS] = [const { EpollSet::new() }; SETS];

/// Returns the set behind a descriptor.
#[inline]
pub(crate) fn set(descriptor: RawFd) -> Option<&'static EpollSet> {
    descriptor_table::epoll(descriptor).and_then(|index| POOL.get(index))
}

/// True once the program has a set.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Returns true if the program ever had a set.
#[inline]
pub(crate) fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// Prepares the set behind a descriptor, if there is one, for waits from outside.
#[inline]
pub(crate) fn watch(descriptor: RawFd) {
    if let Some(set) = set(descriptor) {
        set.watch();
    }
}

/// Records a new set.
pub(crate) fn insert(descriptor: RawFd) {
    IS_USED.store(true, Ordering::Relaxed);
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

/// Registrations of a descriptor, for which no memory is needed.
const REGISTRATIONS: usize = 8;

/// A registration that was taken out of its set, which has this number.
pub(crate) type Registration = (&'static EpollSet, RawFd, epoll_event);

/// Takes the registrations of a descriptor out of the kernel, before the descriptor becomes another socket. A handler of a signal may do so.
pub(crate) fn take_registrations(descriptor: RawFd) -> Array<Registration, REGISTRATIONS> {
    let mut taken = Array::new();
    for (_, set) in POOL.iter().enumerate().filter(|(index, _)| set_counts::is_used(*index)) {
        if let Some((number, event)) = set.take_registration(descriptor) {
            // Without memory the registration is lost, as a full kernel would refuse it.
            let _ = taken.push((set, number, event));
        }
    }
    taken
}

/// Sets whose locks a `fork` holds. One `fork` at a time.
static FORK: ForkLock<[u64; SETS / 64]> = ForkLock::new([0; SETS / 64]);

/// Prepares the sets before the program's `main`.
pub(crate) fn start() {
    FORK.adopt();
}

/// Takes the locks of all sets, so that the child of a `fork` finds none that a thread of the parent holds.
pub(crate) fn before_fork() {
    let Some(mut taken) = FORK.take() else { return };
    for (index, set) in POOL.iter().enumerate() {
        if set_counts::is_used(index) && set.before_fork() {
            taken[index / 64] |= 1 << (index % 64);
        }
    }
    taken.leave_to_fork();
}

/// Releases the locks in the parent or in the child.
pub(crate) fn after_fork() {
    let Some(mut taken) = FORK.resume_after_fork() else { return };
    for (index, set) in POOL.iter().enumerate() {
        if taken[index / 64] >> (index % 64) & 1 == 1 {
            set.after_fork();
        }
    }
    *taken = [0; SETS / 64];
}
