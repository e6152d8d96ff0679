//! Wait policy of a client thread on the ends of a ring.
//!
//! `policy` chooses between two ways to wait on a ring: `spin_then_park` where each thread has a core, `adaptive` where
//! threads share cores. `time_slice` and `same_core` are parts of `adaptive`: turns among callers, and yields on the service's
//! own core.

mod adaptive;
pub(crate) mod policy;
mod same_core;
mod spin_then_park;
mod time_slice;
