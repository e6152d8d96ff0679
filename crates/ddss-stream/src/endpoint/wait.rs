//! Waiting of a thread: spin, announce, look once more, sleep in `poll`.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::pollfd;
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;

use super::endpoint::Endpoint;
use super::positions::Want;
use crate::limits::{LOOK_BESIDE_SET, SPIN_MAX_NS, SPIN_MIN_NS, STALL_AFTER};
use crate::sys::{Descriptor, Link};

/// Looks between two readings of the clock.
const LOOKS: u32 = 32;
/// Sleeps after which a thread that no longer spins tries once more.
const SLEEPS_BEFORE_TRIAL: u32 = 64;

static SPIN_LIMIT_NS: AtomicU64 = AtomicU64::new(SPIN_MAX_NS);

/// Sets the longest spin of this process; 0 switches spinning off.
pub fn set_spin_max(nanoseconds: u64) {
    SPIN_LIMIT_NS.store(nanoseconds, Ordering::Relaxed);
}

thread_local! {
    static BUDGET: Cell<u64> = const { Cell::new(SPIN_MIN_NS) };
    static SLEEPS: Cell<u32> = const { Cell::new(0) };
}

/// Adaptive spinning of a thread: success doubles the time, failure halves it down to none.
#[derive(Debug)]
pub struct Spin;

impl Spin {
    /// Looks repeatedly until `look` returns a value or the thread's budget is spent.
    pub fn until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let limit = SPIN_LIMIT_NS.load(Ordering::Relaxed);
        let mut budget = BUDGET.get().min(limit);
        if budget < SPIN_MIN_NS {
            let sleeps = SLEEPS.get() + 1;
            SLEEPS.set(sleeps % SLEEPS_BEFORE_TRIAL);
            if sleeps < SLEEPS_BEFORE_TRIAL || limit < SPIN_MIN_NS {
                return None;
            }
            budget = limit;
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if let Some(found) = look() {
                    BUDGET.set((budget * 2).clamp(SPIN_MIN_NS, SPIN_MAX_NS));
                    return Some(found);
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= Duration::from_nanos(budget) {
                BUDGET.set(budget / 2);
                return None;
            }
        }
    }
}

impl Endpoint {
    /// Returns the deadline that the program set for blocking calls on the socket.
    pub(crate) fn deadline(socket: Descriptor, want: Want) -> Option<Instant> {
        let which = if want == Want::Data { Timeout::Recv } else { Timeout::Send };
        let timeout = rustix::net::sockopt::socket_timeout(socket, which).ok().flatten()?;
        Instant::now().checked_add(timeout)
    }

    /// Returns true if the stream has what is wanted before this thread has spun for as long as it may.
    pub(crate) fn spin(&self, want: Want) -> bool {
        let Some(link) = self.local().link() else { return true };
        Spin::until(|| self.has(link, want).then_some(())).is_some()
    }

    /// Sleeps until the stream may have what is wanted, or until the deadline (`AGAIN`) or a signal (`INTR`).
    pub(crate) fn rest_until(&self, socket: Descriptor, want: Want, deadline: Option<Instant>) -> Result<(), Errno> {
        let Some(link) = self.local().link() else { return Ok(()) };
        let _blocked = self.block(want == Want::Data, want == Want::Space);
        self.announce(link, want);
        if self.has(link, want) {
            return Ok(());
        }
        let of_socket = match want {
            Want::Data => libc::POLLIN | libc::POLLRDHUP,
            Want::Space if self.writes_to_tcp() => libc::POLLOUT,
            Want::Space => 0,
        };
        self.sleep(socket, link, want, of_socket, None, deadline).map(drop)
    }

    /// Sleeps after the announcement and the look that follows it, for the events `of_socket` and for the bells, at most for `short`.
    /// Returns the events of the socket.
    pub(super) fn sleep(
        &self,
        socket: Descriptor,
        link: Link,
        want: Want,
        of_socket: i16,
        short: Option<Duration>,
        deadline: Option<Instant>,
    ) -> Result<i16, Errno> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Errno::AGAIN);
        }
        let [control, bell] = self.bells();
        let is_attached = Self::is_attached(link);
        if want == Want::Space && control < 0 && is_attached {
            self.mark_dead();
            return Ok(0);
        }
        // The kernel skips a missing bell.
        let entry = |fd, events| pollfd { fd, events, revents: 0 };
        let owes_set = self.owes_set();
        let bell = if owes_set { -1 } else { bell };
        let mut polled = [entry(socket.0, of_socket), entry(bell, libc::POLLIN), entry(control, libc::POLLIN)];
        crate::signals::forget_handlers();
        let is_ring_full = want == Want::Space && !self.writes_to_tcp();
        let short = match owes_set {
            true => Some(LOOK_BESIDE_SET),
            // The caller looks whether the reader has stopped.
            false if is_ring_full => Some(STALL_AFTER),
            false => short.or_else(super::before_sleep),
        };
        let idle = short.filter(|short| left.is_none_or(|left| *short < left));
        if crate::signals::poll(&mut polled, idle.or(left))? == 0 {
            if idle.is_none() {
                return Err(Errno::AGAIN);
            }
            if !is_ring_full {
                super::after_idle_sleep();
            }
            return Ok(0);
        }
        // A bell that was rung before the announcement, or for the other direction, would wake this thread again and again.
        let ended = libc::POLLHUP | libc::POLLERR;
        let bells = polled[1].revents | polled[2].revents;
        if bells & libc::POLLNVAL != 0 {
            self.lose_bells();
        }
        if bells & ended != 0 || bells & libc::POLLIN != 0 && self.is_resting(link, want) {
            self.silence_for(link, want);
        }
        let of_control = if is_attached { polled[2].revents } else { 0 };
        if want == Want::Space && (polled[0].revents | of_control) & ended != 0 {
            self.mark_dead();
        }
        Ok(polled[0].revents)
    }

    /// Announces that a thread of this end sleeps. An old ring of the bell is silenced first: the thread looks again after this.
    pub(super) fn announce(&self, link: Link, want: Want) {
        if !self.is_resting(link, want) {
            self.silence_for(link, want);
        }
        match want {
            Want::Data => link.incoming().rest_for_data(),
            Want::Space => link.outgoing().rest_for_space(),
        }
    }

    fn is_resting(&self, link: Link, want: Want) -> bool {
        match want {
            Want::Data => link.incoming().is_reader_resting(),
            Want::Space => link.outgoing().is_writer_resting(),
        }
    }
}
