//! iWARP in user space over plain TCP.
//!
//! Bottom up: [`mpa`] frames a TCP stream, [`ddp`] names the buffer of a frame, [`rdmap`] names its operation.
//! [`connection`] is the state machine over the three: bytes in, bytes and events out, without socket and clock.
//! [`send_queue`] holds its encoded output, [`peer`] joins it to a socket, and [`fabric`] drives hundreds of peers
//! from one thread.

mod config;
mod connection;
mod ddp;
mod fabric;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(feature = "fuzzing"), allow(unreachable_pub, reason = "then only the tests use it"))]
pub mod fuzzing;
mod mpa;
mod peer;
mod rdmap;
mod send_queue;
mod socket;

pub use config::{IwarpConfig, Revision};
pub use fabric::Iwarp;
pub(crate) use rdmap::AtomicKind;
