//! State that all channels of a client share: the service page, the doorbell, the state of the daemon.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::shm::service_page::ServicePage;
use crate::socket;
use crate::strategy::Strategy;
use crate::sync::{Ordering, order};
use crate::sys::ProcessByte;

/// The client's end of its attachment.
pub(crate) struct Connection {
    strategy: Strategy,
    service_page: ServicePage,
    socket: OwnedFd,
    wake: OwnedFd,
    /// A [`ConnectionState`].
    state: ProcessByte,
}

/// State of the daemon as the client knows it.
#[repr(u8)]
enum ConnectionState {
    /// The attachment belongs to a parent of this process.
    Inherited = ProcessByte::INHERITED,
    Serving = 1,
    /// The daemon accepts no new requests and still answers those in flight.
    Draining = 2,
    Gone = 3,
}

impl Connection {
    pub(crate) fn new(
        strategy: Strategy,
        service_page: ServicePage,
        socket: OwnedFd,
        wake: OwnedFd,
    ) -> io::Result<Self> {
        Ok(Self { strategy, service_page, socket, wake, state: ProcessByte::new(ConnectionState::Serving as u8)? })
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns true in a child of the process that has attached. It may not touch the rings.
    pub(crate) fn is_inherited(&self) -> bool {
        self.state.is_inherited()
    }

    /// Returns true if the daemon is known to be gone, or serves a parent of this process. No system call.
    pub(crate) fn is_gone(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state == ConnectionState::Gone as u8 || state == ConnectionState::Inherited as u8
    }

    /// Returns true if the daemon is gone as [`is_gone`](Self::is_gone) says, or accepts no new requests. No system call.
    pub(crate) fn is_unusable(&self) -> bool {
        self.state.load(Ordering::Relaxed) != ConnectionState::Serving as u8
    }

    /// Returns true if the daemon is known to accept no new requests. No system call.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ConnectionState::Draining as u8
    }

    /// Records that the daemon accepts no new requests.
    pub(crate) fn set_draining(&self) {
        let (serving, draining) = (ConnectionState::Serving as u8, ConnectionState::Draining as u8);
        let _ = self.state.compare_exchange(serving, draining, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Records the end of the daemon.
    pub(crate) fn set_gone(&self) {
        let gone = |state| (state != ConnectionState::Inherited as u8).then_some(ConnectionState::Gone as u8);
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, gone);
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
