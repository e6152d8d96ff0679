//! Sleep and wake-up of a thread at a ring.
//!
//! `config` holds the constants of all waits, `park` is the protocol, and `first_poll_delay` tunes spinning. The policies that
//! use them on a transport are in `transport/waiting`.

#[cfg(not(loom))]
pub(crate) mod config;
#[cfg(not(loom))]
pub(crate) mod first_poll_delay;
pub(crate) mod park;
