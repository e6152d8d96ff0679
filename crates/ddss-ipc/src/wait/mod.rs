//! Wait policy of a client thread.
//!
//! `policy` chooses between two ways to wait on a ring: `spin_then_park` where each thread has a core, `adaptive` where
//! threads share cores. `config` holds the constants of both. `park` is the sleep and wake-up protocol, and
//! `first_poll_delay` tunes spinning. `time_slice` and `same_core` are parts of `adaptive`: turns among callers, and
//! yields on the service's own core.

#[cfg(not(loom))]
pub(crate) mod adaptive;
#[cfg(not(loom))]
pub(crate) mod config;
#[cfg(not(loom))]
pub(crate) mod first_poll_delay;
pub(crate) mod park;
#[cfg(not(loom))]
pub(crate) mod policy;
#[cfg(not(loom))]
pub(crate) mod same_core;
#[cfg(not(loom))]
pub(crate) mod spin_then_park;
#[cfg(not(loom))]
pub(crate) mod time_slice;
