//! Wait policy of a client thread: poll, yield, park.
//!
//! `park` is the sleep and wake-up protocol. `first_poll_delay` tunes spinning, `time_slice` shares a core between many
//! callers, and `same_core` decides whether to yield on the service's own core.

#[cfg(not(loom))]
pub(crate) mod first_poll_delay;
pub(crate) mod park;
#[cfg(not(loom))]
pub(crate) mod same_core;
#[cfg(not(loom))]
pub(crate) mod time_slice;
