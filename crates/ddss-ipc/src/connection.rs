//! State that all channels of a client share: the service page, the doorbell, the state of the daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;

use crate::shm::service_page::ServicePage;
use crate::socket;
use crate::strategy::Strategy;
use crate::sync::{Ordering, order};

/// The client's end of its attachment.
pub(crate) struct Connection {
    strategy: Strategy,
    service_page: ServicePage,
    socket: OwnedFd,
    wake: OwnedFd,
    state: AtomicU8,
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
    pub(crate) fn new(strategy: Strategy, service_page: ServicePage, socket: OwnedFd, wake: OwnedFd) -> Self {
        Self { strategy, service_page, socket, wake, state: AtomicU8::new(ConnectionState::Serving as u8) }
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

    /// Returns true if more clients call than there are cores.
    pub(crate) fn is_crowded(&self) -> bool {
        self.service_page.is_crowded()
    }

    /// Returns true if the calling thread runs on the service's core.
    pub(crate) fn is_on_service_core(&self) -> bool {
        self.service_page.core() == Some(rustix::thread::sched_getcpu())
    }
}
