//! Sleep and wake-up of a thread at a ring.
//!
//! `park` is the protocol, `back_off` has a client's settings, and `first_poll_delay` tunes spinning. `service_core` moves a
//! client off the core of the service that it waits for, and `turn` lets many callers share their cores. `config` holds the
//! constants.

#[cfg(not(loom))]
pub(crate) mod back_off;
#[cfg(not(loom))]
pub(crate) mod config;
#[cfg(not(loom))]
pub(crate) mod first_poll_delay;
pub(crate) mod park;
#[cfg(not(loom))]
pub(crate) mod service_core;
#[cfg(not(loom))]
pub(crate) mod turn;
