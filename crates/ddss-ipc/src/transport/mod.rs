//! Transports of a channel's entries: rings in shared memory, System V queues, or both.
//!
//! `channel_transport` is the interface. `ring_transport` implements `Rcq` and `Auto` on `ring_ends`, with the back-off of
//! `waiter`. `sysv` implements `Mq` and `Rmq`. System V queues lack time-outs, which `sysv_timeout` adds, and outlive a crash, which `sysv_journal`
//! repairs.

#[cfg(not(loom))]
pub(crate) mod channel_transport;
#[cfg(not(loom))]
pub(crate) mod ring_ends;
#[cfg(not(loom))]
pub(crate) mod ring_transport;
#[cfg(not(loom))]
pub(crate) mod sysv;
#[cfg(not(loom))]
pub(crate) mod sysv_journal;
#[cfg(not(loom))]
pub(crate) mod sysv_timeout;
#[cfg(not(loom))]
pub(crate) mod waiter;
