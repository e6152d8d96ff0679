//! Counts of the descriptors of each epoll set.

use std::sync::atomic::{AtomicU32, Ordering};

/// Sets of a process. Streams in a set beyond them stay on TCP.
pub(crate) const SETS: usize = 1024;

static USERS: [AtomicU32; SETS] = [const { AtomicU32::new(0) }; SETS];

/// Takes a free place.
pub(crate) fn claim() -> Option<usize> {
    USERS.iter().position(|users| users.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// Returns true if a descriptor refers to the set.
pub(crate) fn is_used(index: usize) -> bool {
    USERS.get(index).is_some_and(|users| users.load(Ordering::Acquire) > 0)
}

/// Counts one more descriptor of a set. False: the set is gone.
pub(crate) fn share(index: usize) -> bool {
    let one_more = |users| (users > 0).then_some(users + 1);
    USERS.get(index).is_some_and(|users| users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok())
}

/// Forgets one descriptor of a set.
pub(crate) fn release(index: usize) {
    if let Some(users) = USERS.get(index) {
        users.fetch_sub(1, Ordering::AcqRel);
    }
}
