//! The pump: a process that carries streams of unmodified programs on the wire.
//!
//! ```text
//! program -- Unix socket -- pump ==== wire ==== pump of the peer -- Unix socket -- program
//! ```
//!
//! The program's descriptor is one end of a Unix socket pair, so that the kernel answers `fork`, `exec`, `dup`, `epoll` and a sent
//! descriptor; the state of the wire stays in one process. The pump always leaves one byte unread in its end: if it dies at any moment,
//! the kernel resets the program's end, and the program never takes a cut for the end of the stream. Its TCP socket resets the peer then.

mod buffer;
mod connection;
mod event_loop;
mod far_end;
mod handover;
mod local_end;
mod names;
mod tcp_close;
#[cfg(test)]
mod tests;

pub use event_loop::Pump;
pub use handover::PumpClient;
pub use local_end::LocalEnd;
pub use names::SocketNames;
