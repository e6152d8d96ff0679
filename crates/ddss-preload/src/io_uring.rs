//! Programs that use io_uring: their requests go past this library, so that their connections stay on TCP.

use std::sync::atomic::{AtomicBool, Ordering};

use ddss_stream::Reason;

use crate::descriptor_table;

static IS_USED: AtomicBool = AtomicBool::new(false);

/// Returns true if the program has a ring of io_uring, or code of its own that makes one.
pub(crate) fn may_be_used() -> bool {
    let raw = crate::sys::look_for_raw_calls();
    if raw.closes {
        descriptor_table::compare_inodes();
        ddss_stream::compare_hidden_inodes();
    }
    if raw.makes_rings {
        IS_USED.store(true, Ordering::Relaxed);
        descriptor_table::streams().for_each(|(_, endpoint)| _ = endpoint.stay_on_tcp(Reason::IoUring));
    }
    IS_USED.load(Ordering::Relaxed)
}

/// Keeps every undecided stream on TCP before the program gets a ring. False: a stream uses shared memory already, and the program must
/// not get one; programs know this answer from systems that forbid io_uring.
pub(crate) fn before_setup() -> bool {
    let was_used = IS_USED.swap(true, Ordering::Relaxed);
    let is_plain = descriptor_table::streams().all(|(_, endpoint)| endpoint.stay_on_tcp(Reason::IoUring));
    if !is_plain {
        IS_USED.store(was_used, Ordering::Relaxed);
        crate::sys::report(
            "ddss-preload: io_uring is refused because a stream uses shared memory; give the program a rule\n",
        );
    }
    is_plain
}
