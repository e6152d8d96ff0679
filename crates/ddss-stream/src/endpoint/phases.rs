//! Phases of a direction: its bytes go by TCP, then by the ring, and by TCP again where the ring would hold the writer up.
//!
//! TCP holds megabytes between two ends, so that programs at both ends may write much before they read; a ring that held as much would
//! cost as much memory. A writer leaves a full ring once its reader has stopped, or once the reader itself waits for space. It comes
//! back as soon as the reader has taken the ring's bytes. Urgent data and signals are TCP's: they make a direction stay there.

use std::sync::atomic::Ordering;

use rustix::time::{ClockId, clock_gettime};

use super::endpoint::Endpoint;
use crate::cursors::is_of_ring;
use crate::limits::{RING_BYTES, STALL_AFTER, WRITABLE_BYTES};
use crate::reason::Reason;
use crate::sys::{self, Descriptor, Hidden, Link};
use crate::thread_lock::ThreadLock;

impl Endpoint {
    /// Returns true if both directions use the ring and TCP can only say that the connection ends.
    #[must_use]
    pub fn is_off_tcp(&self) -> bool {
        let Some(link) = self.local().link() else { return false };
        self.reads_ring(link) && Self::is_switched(link) && !self.writes_to_tcp()
    }

    /// Chooses the ring or TCP for the next bytes, under the writer's lock. True: the ring.
    #[inline]
    pub(super) fn choose_ring(&self, link: Link) -> bool {
        let phase = link.own().writer.phase.load(Ordering::Relaxed);
        let is_settled = is_of_ring(phase) && link.outgoing().is_begun(phase) && !self.has_to_use_tcp(link);
        is_settled || self.change_phase(link, phase)
    }

    #[inline(never)]
    fn change_phase(&self, link: Link, phase: u32) -> bool {
        let (writer, outgoing) = (&link.own().writer, link.outgoing());
        if writer.is_sending.load(Ordering::Relaxed) != 0 {
            // Nobody knows how many bytes a process sent that was killed meanwhile: this phase of TCP cannot end.
            writer.stays_on_tcp.store(1, Ordering::Relaxed);
        }
        if phase != 0 && !outgoing.is_begun(phase) {
            // A process that was killed here had changed the own phase only.
            self.publish_phase(link, phase);
        }
        if is_of_ring(phase) {
            let has_to_leave = self.has_to_use_tcp(link);
            if has_to_leave {
                self.begin_phase(link, phase.wrapping_add(1));
            }
            return !has_to_leave;
        }
        if self.has_to_use_tcp(link) || !Self::is_attached(link) || !outgoing.is_followed(phase) {
            return false;
        }
        self.begin_phase(link, phase.wrapping_add(1));
        self.shared().reason.store(Reason::SharedMemory as u32, Ordering::Relaxed);
        true
    }

    /// Begins a phase under the writer's lock. The own word is first: whoever finds the other one behind publishes it again.
    fn begin_phase(&self, link: Link, phase: u32) {
        link.own().writer.phase.store(phase, Ordering::Relaxed);
        self.publish_phase(link, phase);
        if !is_of_ring(phase) {
            // Waiters have to ask the kernel for space from now on.
            self.ring_own();
        }
    }

    fn publish_phase(&self, link: Link, phase: u32) {
        let writer = &link.own().writer;
        let end = if is_of_ring(phase) { &writer.tcp_written } else { &writer.tail };
        link.outgoing().begin(phase, end.load(Ordering::Relaxed));
    }

    /// Writes to TCP from now on, for good: before urgent data, whose place is one of TCP. False: another thread's write does not end.
    pub fn leave_ring(&self) -> bool {
        let Some(link) = self.local().link() else { return true };
        let writer = &link.own().writer;
        writer.stays_on_tcp.store(1, Ordering::Relaxed);
        let Ok(lock) = ThreadLock::take(&writer.lock) else { return false };
        self.choose_ring(link);
        drop(lock);
        // Waiters have to ask the kernel for space from now on.
        self.ring_own();
        true
    }

    /// Uses TCP in both directions from now on, for good: the kernel tells of its bytes by signals. What the peer writes to the ring before
    /// it hears of this rings its control socket, whose signals are those of the TCP socket. False: as for [`leave_ring`](Self::leave_ring).
    pub fn return_to_tcp(&self, socket: Descriptor) -> bool {
        let Some(link) = self.local().link() else { return true };
        if let Some(control) = self.local().hidden(Hidden::Control) {
            sys::copy_signals(socket, control);
        }
        link.incoming().want_tcp();
        link.incoming().rest_for_data();
        // A writer that waits for space has to look again.
        self.ring_peer();
        self.leave_ring()
    }

    /// Returns true after [`return_to_tcp`](Self::return_to_tcp).
    #[must_use]
    pub fn is_returning(&self) -> bool {
        self.local().link().is_some_and(|link| link.incoming().is_tcp_wanted())
    }

    /// Returns true if bytes of the ring come before what TCP has.
    #[must_use]
    pub fn has_bytes_before_tcp(&self) -> bool {
        self.local().link().is_some_and(|link| self.has_ring_data(link))
    }

    /// Returns true if a ring with too little space has to be left: its reader waits for space itself, or has stopped.
    pub(super) fn is_stalled(&self, link: Link) -> bool {
        let is_peer_full = || self.filled(link).is_ok_and(|span| span.bytes > RING_BYTES - WRITABLE_BYTES);
        let local = self.local();
        if local.is_watched.load(Ordering::Relaxed) != 0 || link.incoming().is_writer_resting() && is_peer_full() {
            return true;
        }
        let (progress, now) = (link.outgoing().progress(), now_ms());
        if local.full_progress.swap(progress, Ordering::Relaxed) != progress {
            local.full_since.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(local.full_since.load(Ordering::Relaxed)) >= STALL_AFTER.as_millis() as u64
    }

    /// Goes on by TCP if the ring still has too little space. False: another thread writes.
    pub(super) fn leave_full_ring(&self, link: Link) -> bool {
        let writer = &link.own().writer;
        let Some(_lock) = ThreadLock::take_free(&writer.lock) else { return false };
        let phase = writer.phase.load(Ordering::Relaxed);
        let is_full = self.space(link).is_ok_and(|span| span.bytes < WRITABLE_BYTES);
        if is_of_ring(phase) && is_full {
            self.begin_phase(link, phase.wrapping_add(1));
        }
        true
    }

    /// Leaves a full ring at once from now on: the program waits for the set of this stream from outside, where no thread looks whether
    /// the reader has stopped.
    pub fn watch(&self) {
        self.local().is_watched.store(1, Ordering::Relaxed);
    }

    /// Looks whether the program waits for space in a ring whose reader has stopped. Returns true if a later look may find that.
    pub fn look_for_stall(&self) -> bool {
        let Some(link) = self.local().link().filter(|_| self.is_shared()) else { return false };
        let asks = self.local().asks_space.load(Ordering::Relaxed) != 0;
        if !asks || self.writes_to_tcp() || self.has_ring_space(link) {
            return false;
        }
        !(self.is_stalled(link) && self.leave_full_ring(link))
    }
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
