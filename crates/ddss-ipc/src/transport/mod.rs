//! How a channel moves entries: rings in shared memory, System V queues, or both.

#[cfg(not(loom))]
pub(crate) mod channel_transport;
#[cfg(not(loom))]
pub(crate) mod ring_transport;
#[cfg(not(loom))]
pub(crate) mod sysv;
#[cfg(not(loom))]
pub(crate) mod sysv_journal;
#[cfg(not(loom))]
pub(crate) mod sysv_timeout;
