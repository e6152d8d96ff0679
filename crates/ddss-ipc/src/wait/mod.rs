//! How a thread waits for a completion: poll, yield, park.

#[cfg(not(loom))]
pub(crate) mod first_poll_delay;
pub(crate) mod park;
#[cfg(not(loom))]
pub(crate) mod same_core;
#[cfg(not(loom))]
pub(crate) mod time_slice;
