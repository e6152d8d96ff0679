//! Streams between nodes: the Sockets Direct Protocol over iWARP in user space, on the application's own TCP connection.
//!
//! [`WireStream`] is one end. Its plan follows from where the fabric carries out its work ([`capabilities`]); a peer that knows the
//! specification only gets the basic plan. The calling thread does all the work.
//!
//! It cannot be faster than the TCP below it. What it adds is a checksum over every frame, and the measure of what copies, messages and
//! credits cost.

mod basic;
mod config;
mod engine;
mod error;
mod negotiation;
mod remote_reads;
mod socket_memory;
mod start;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod zero_copy;

pub use config::WireConfig;
pub use engine::capabilities;
pub use start::is_request;
pub use stream::WireStream;
