//! Admission of clients and peers that are not verified yet.
//!
//! Every listener of DDSS uses both rules: the socket of the clients, the fabric, and the control port.
//!
//! - [`RateLimiter`] gives each source a burst and then a steady rate.
//! - [`select_eviction`] chooses the connection to drop when too many wait.
//!
//! The crate has no dependency, no clock and no socket, so that a fabric can use it without the rest of DDSS.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod eviction;
mod rate_limiter;

pub use eviction::select_eviction;
pub use rate_limiter::RateLimiter;
