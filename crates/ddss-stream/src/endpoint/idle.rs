//! Memory of idle rings goes back to the system, and writers of full ones go on by TCP.
//!
//! A writer that has filled a part of its ring says so once. Threads that are about to sleep then look at a few streams of the process, and
//! a thread that has slept for a while looks at all of them. A ring is idle if nothing was written between two looks. Only its writer may
//! give its memory back, under its own lock, while the ring is empty: nobody else stores into it then.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::endpoint::Endpoint;
use crate::limits::{IDLE_AFTER, IDLE_BYTES, IDLE_LOOKS, RING_BYTES, STALL_AFTER};
use crate::sys::{self, Link};
use crate::thread_lock::ThreadLock;

/// True while a ring of this process may have memory to give back.
static IS_FILLED: AtomicBool = AtomicBool::new(false);
/// True while a program may wait for space in a ring.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// Entry that is looked at next.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Notes that a program waits for space in a ring.
pub(super) fn note_shortage() {
    if !IS_SHORT.load(Ordering::Relaxed) {
        IS_SHORT.store(true, Ordering::Relaxed);
    }
}

/// Looks at a few streams before a sleep. Returns the time after which the thread has to call [`after_idle_sleep`], if it still sleeps.
pub fn before_sleep() -> Option<Duration> {
    let is_short = IS_SHORT.load(Ordering::Relaxed);
    if !is_short && !IS_FILLED.load(Ordering::Relaxed) {
        return None;
    }
    let entries = sys::high_water(None).max(1);
    for _ in 0..IDLE_LOOKS.min(entries) {
        let index = NEXT.fetch_add(1, Ordering::Relaxed) % entries;
        if let Some(endpoint) = Endpoint::acquire(index) {
            endpoint.look_for_stall();
            endpoint.look_for_idle_ring();
        }
    }
    Some(if is_short { STALL_AFTER } else { IDLE_AFTER })
}

/// Looks at all streams after a sleep without an event.
pub fn after_idle_sleep() {
    if IS_SHORT.swap(false, Ordering::Relaxed) {
        for endpoint in (0..sys::high_water(None)).filter_map(Endpoint::acquire) {
            if endpoint.look_for_stall() {
                note_shortage();
            }
        }
        return;
    }
    IS_FILLED.store(false, Ordering::Relaxed);
    for endpoint in (0..sys::high_water(None)).filter_map(Endpoint::acquire) {
        if endpoint.look_for_idle_ring() {
            IS_FILLED.store(true, Ordering::Relaxed);
        }
    }
}

impl Endpoint {
    /// Notes that the ring is filled, after a write. The cursor is the writer's, under its lock.
    #[inline]
    pub(super) fn note_filled(link: Link, tail: u64) {
        let returned = link.own().writer.returned.load(Ordering::Relaxed);
        if tail.wrapping_sub(returned) >= IDLE_BYTES && !IS_FILLED.load(Ordering::Relaxed) {
            IS_FILLED.store(true, Ordering::Relaxed);
        }
    }

    /// Gives the memory of an idle ring back. Returns true if a later look may do so.
    fn look_for_idle_ring(&self) -> bool {
        let Some(link) = self.local().link().filter(|_| self.is_shared()) else { return false };
        let writer = &link.own().writer;
        let tail = writer.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(writer.returned.load(Ordering::Relaxed)) < IDLE_BYTES {
            return false;
        }
        if self.local().seen_tail.swap(tail, Ordering::Relaxed) != tail {
            return true;
        }
        // A thread that has the lock writes: the ring is not idle.
        let Some(_lock) = ThreadLock::take_free(&writer.lock) else { return true };
        let is_empty = self.space(link).is_ok_and(|span| span.bytes == RING_BYTES && span.position == tail);
        if is_empty && link.return_ring(link.side()) {
            writer.returned.store(tail, Ordering::Relaxed);
        }
        false
    }
}
