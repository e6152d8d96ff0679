//! State that all channels of a client share: the service page, the doorbell, the state of the daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::shm::service_page::{ActiveThreadCounts, ServicePage};
use crate::socket;
use crate::strategy::Strategy;
use crate::sync::{Ordering, order};
use crate::wait::config::WAIT;

/// The client's end of its attachment.
pub(crate) struct Connection {
    strategy: Strategy,
    service_page: ServicePage,
    /// Bucket in which the service page counts the active threads of this client's user.
    user_bucket: u8,
    socket: OwnedFd,
    wake: OwnedFd,
    state: AtomicU8,
    cores: u64,
    fair: bool,
}

/// Counts the cores that this process and the service have together. A process that is pinned to one core leaves the
/// service's core to the service: that makes two, and one caller does not oversubscribe them.
fn count_cores(service: Option<usize>) -> u64 {
    let mut cores = CpuSet::new();
    service.into_iter().for_each(|core| cores.set(core));
    // The affinity of a pinned thread says less about its process than that of the first thread.
    for thread in [None, Some(rustix::process::getpid())] {
        let Ok(allowed) = sched_getaffinity(thread) else { continue };
        (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).for_each(|core| cores.set(core));
    }
    u64::from(cores.count().max(1))
}

/// State of the daemon as the client knows it.
#[repr(u8)]
enum ConnectionState {
    Serving = 0,
    /// The daemon accepts no new requests and still answers those in flight.
    Draining = 1,
    Gone = 2,
}

impl Connection {
    pub(crate) fn new(
        strategy: Strategy,
        fair: bool,
        (service_page, user_bucket): (ServicePage, u8),
        socket: OwnedFd,
        wake: OwnedFd,
    ) -> Self {
        let cores = count_cores(service_page.core());
        Self {
            strategy,
            service_page,
            user_bucket,
            socket,
            wake,
            state: AtomicU8::new(ConnectionState::Serving as u8),
            cores,
            fair,
        }
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns true if the daemon is known to be gone. No system call.
    pub(crate) fn is_gone(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ConnectionState::Gone as u8
    }

    /// Returns true if the daemon is known to be gone or to accept no new requests. No system call.
    pub(crate) fn is_unusable(&self) -> bool {
        self.state.load(Ordering::Relaxed) != ConnectionState::Serving as u8
    }

    /// Returns true if the daemon is known to accept no new requests. No system call.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ConnectionState::Draining as u8
    }

    /// Records that the daemon accepts no new requests.
    pub(crate) fn set_draining(&self) {
        self.state.fetch_max(ConnectionState::Draining as u8, Ordering::Relaxed);
    }

    /// Records the end of the daemon.
    pub(crate) fn set_gone(&self) {
        self.state.store(ConnectionState::Gone as u8, Ordering::Relaxed);
    }

    /// Returns true if the daemon lives. Costs a system call while it does.
    pub(crate) fn is_alive(&self) -> bool {
        if self.is_gone() {
            return false;
        }
        let alive = socket::is_open(self.socket.as_fd());
        if !alive {
            self.set_gone();
        }
        alive
    }

    /// Wakes the service if it sleeps. `rung_for` is the id of the sleep for which the caller has already rung.
    #[inline]
    pub(crate) fn ring_doorbell(&self, rung_for: &mut u64) {
        order::before_doorbell();
        let sleep_id = self.service_page.sleep_id();
        if sleep_id != 0 && sleep_id != *rung_for {
            *rung_for = sleep_id;
            // The write only fails when the counter is full, and then the service has a wake-up pending.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Returns the core of the service if the calling thread is on it.
    pub(crate) fn shared_core(&self) -> Option<usize> {
        self.service_page.core().filter(|core| *core == rustix::thread::sched_getcpu())
    }

    /// Returns true if spinning can pay on a core other than the service's: operations are short, or there are cores to
    /// spare.
    #[inline]
    pub(crate) fn is_spinning_useful(&self) -> bool {
        self.has_short_calls() || !self.is_oversubscribed()
    }

    /// Returns true if operations are short.
    #[inline]
    pub(crate) fn has_short_calls(&self) -> bool {
        self.service_page.latency_ns() <= WAIT.latency_worth_spinning_ns
    }

    /// Returns true if more threads of this user call than there are cores beside the service's. Threads of other users
    /// do not count: the scheduler shares the cores between users, and no user can make another one yield.
    #[inline]
    pub(crate) fn is_oversubscribed(&self) -> bool {
        u64::from(self.active_threads().active) >= self.cores
    }

    /// Returns the counts of this user's calling threads.
    #[inline]
    pub(crate) fn active_threads(&self) -> ActiveThreadCounts {
        self.service_page.active_threads(self.user_bucket)
    }

    /// Returns true if the caller, on the service's core, shares it with no other thread as far as is known.
    #[inline]
    pub(crate) fn is_alone_with_service(&self) -> bool {
        self.service_page.is_core_exclusive() && self.active_threads().active <= 1
    }

    /// Returns the number of cores that this process and the service have together.
    #[inline]
    pub(crate) fn cores(&self) -> u64 {
        self.cores
    }

    /// Returns the service's core.
    pub(crate) fn service_core(&self) -> Option<usize> {
        self.service_page.core()
    }

    /// Returns true if clients yield their core to each other.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.fair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_caller_and_service_count_as_two_cores() {
        // If this failed, a client that is pinned off the service's core would count as oversubscribed, and sleep in
        // each call to another node instead of spinning.
        let here = sched_getaffinity(None).unwrap();
        let own = (0..CpuSet::MAX_CPU).find(|&core| here.is_set(core)).unwrap();
        let with_service = |core| {
            std::thread::spawn(move || {
                let mut one = CpuSet::new();
                one.set(own);
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                count_cores(core)
            })
        };
        let [none, same, other] =
            [None, Some(own), Some(CpuSet::MAX_CPU - 1)].map(|core| with_service(core).join().unwrap());
        // The process as a whole is not pinned.
        assert_eq!((none, same, other), (here.count().into(), here.count().into(), u64::from(here.count()) + 1));
    }
}
