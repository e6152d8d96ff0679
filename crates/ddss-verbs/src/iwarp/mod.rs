//! iWARP in user space over plain TCP.
//!
//! From the wire upwards: [`mpa`] frames a TCP stream, [`ddp`] says where the bytes of a frame go, [`rdmap`] says
//! what they are for. [`connection`] is the state machine over the three: bytes in, bytes and events out, no
//! socket and no clock inside. [`fabric`] drives hundreds of them over real sockets.

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
