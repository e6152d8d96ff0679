//! What every lane of a client needs of its attachment: the board, the bell, and whether the daemon is there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::shm::service_page::{ActiveUsers, ServicePage};
use crate::socket;
use crate::strategy::Strategy;
use crate::sync::{Ordering, order};

/// On a full machine, nobody spins for operations that take longer than this.
const LATENCY_WORTH_SPINNING_NS: u64 = 2_000;

/// The client's end of its attachment.
pub(crate) struct Connection {
    strategy: Strategy,
    board: ServicePage,
    /// Where it tells how many lanes of this client's user have requests.
    place: u8,
    socket: OwnedFd,
    wake: OwnedFd,
    state: AtomicU8,
    cores: u64,
    fair: bool,
}

/// How many cores this process and the service have together. A process that keeps to one core leaves the service's to the
/// service: they are two then, and one caller is no crowd.
fn cores_with(service: Option<usize>) -> u64 {
    let mut cores = CpuSet::new();
    service.into_iter().for_each(|core| cores.set(core));
    // A thread that is pinned says less about its process than the first one does.
    for thread in [None, Some(rustix::process::getpid())] {
        let Ok(allowed) = sched_getaffinity(thread) else { continue };
        (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).for_each(|core| cores.set(core));
    }
    u64::from(cores.count().max(1))
}

/// How it is with the daemon.
#[repr(u8)]
enum ConnectionState {
    Serving = 0,
    /// It takes no new requests: those under way are still answered.
    Leaving = 1,
    Gone = 2,
}

impl Connection {
    pub(crate) fn new(
        strategy: Strategy,
        fair: bool,
        (board, place): (ServicePage, u8),
        socket: OwnedFd,
        wake: OwnedFd,
    ) -> Self {
        let cores = cores_with(board.core());
        Self { strategy, board, place, socket, wake, state: AtomicU8::new(ConnectionState::Serving as u8), cores, fair }
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the daemon is known to be gone. No system call.
    pub(crate) fn is_gone(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ConnectionState::Gone as u8
    }

    /// Whether the daemon is known to be gone, or to take nothing new. No system call.
    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::Relaxed) != ConnectionState::Serving as u8
    }

    /// Whether the daemon is there and takes nothing new. No system call.
    pub(crate) fn is_leaving(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ConnectionState::Leaving as u8
    }

    /// The daemon has said that it takes no new requests.
    pub(crate) fn set_leaving(&self) {
        self.state.fetch_max(ConnectionState::Leaving as u8, Ordering::Relaxed);
    }

    /// Somebody has seen the daemon's end.
    pub(crate) fn set_gone(&self) {
        self.state.store(ConnectionState::Gone as u8, Ordering::Relaxed);
    }

    /// Whether the daemon is there. Costs a system call as long as it is.
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

    /// Wakes the service if it said that it sleeps. `rung` is the sleep for which the caller has rung already.
    #[inline]
    pub(crate) fn ring(&self, rung: &mut u64) {
        order::before_ring();
        let rest = self.board.rest();
        if rest != 0 && rest != *rung {
            *rung = rest;
            // It only fails when the counter is full, and then the service has a wake-up waiting.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// The core of the service, when the calling thread is on it.
    pub(crate) fn shared_core(&self) -> Option<usize> {
        self.board.core().filter(|core| *core == rustix::thread::sched_getcpu())
    }

    /// Whether spinning can pay on a core that is not the service's: an operation is short or there are cores to spare.
    #[inline]
    pub(crate) fn spinning_pays(&self) -> bool {
        self.calls_are_short() || !self.is_crowded()
    }

    /// Whether an operation is short.
    #[inline]
    pub(crate) fn calls_are_short(&self) -> bool {
        self.board.latency_ns() <= LATENCY_WORTH_SPINNING_NS
    }

    /// Whether more threads of this user call than there are cores for them beside the service's. Those of others do not
    /// count: what they take of this core is the scheduler's to say, and none of them can make this one hand it over.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        u64::from(self.present().callers) >= self.cores
    }

    /// How many threads of this user call.
    #[inline]
    pub(crate) fn present(&self) -> ActiveUsers {
        self.board.present(self.place)
    }

    /// Whether the caller, on the service's core, is alone with it there as far as it is known.
    #[inline]
    pub(crate) fn is_alone_with_service(&self) -> bool {
        self.board.is_core_unwanted() && self.present().callers <= 1
    }

    /// The service's core.
    pub(crate) fn service_core(&self) -> Option<usize> {
        self.board.core()
    }

    /// Whether clients hand the core over to each other.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        self.fair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_that_keeps_to_one_core_is_no_crowd() {
        // If this broke, a client that is pinned off the service's core would count as one of too many, and sleep in each
        // call to another node instead of spinning for it.
        let here = sched_getaffinity(None).unwrap();
        let own = (0..CpuSet::MAX_CPU).find(|&core| here.is_set(core)).unwrap();
        let with_service = |core| {
            std::thread::spawn(move || {
                let mut one = CpuSet::new();
                one.set(own);
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                cores_with(core)
            })
        };
        let [none, same, other] =
            [None, Some(own), Some(CpuSet::MAX_CPU - 1)].map(|core| with_service(core).join().unwrap());
        // The process as a whole keeps to no core.
        assert_eq!((none, same, other), (here.count().into(), here.count().into(), u64::from(here.count()) + 1));
    }
}
