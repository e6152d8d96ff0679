//! What every lane of a client needs of its attachment: the board, the bell, and whether the daemon is there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::board::Board;
use crate::socket;
use crate::strategy::Strategy;
use crate::sync::order;

/// On a full machine, nobody spins for operations that take longer than this.
const LATENCY_WORTH_SPINNING_NS: u64 = 2_000;

/// The client's end of its attachment.
pub(crate) struct Link {
    strategy: Strategy,
    board: Board,
    socket: OwnedFd,
    wake: OwnedFd,
    gone: AtomicBool,
    cores: u64,
}

impl Link {
    pub(crate) fn new(strategy: Strategy, board: Board, socket: OwnedFd, wake: OwnedFd) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Self { strategy, board, socket, wake, gone: AtomicBool::new(false), cores }
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the daemon is known to be gone. No system call.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Somebody has seen the daemon's end.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
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

    /// Whether the service runs on the core that the caller runs on: nothing comes as long as the caller runs.
    #[inline]
    pub(crate) fn shares_core(&self) -> bool {
        self.board.core() == Some(rustix::thread::sched_getcpu())
    }

    /// Whether spinning for an answer can pay when the service runs on another core: an operation is short, or there
    /// are cores to spare.
    pub(crate) fn spinning_pays(&self) -> bool {
        self.board.latency_ns() <= LATENCY_WORTH_SPINNING_NS || self.board.active() < self.cores
    }
}
