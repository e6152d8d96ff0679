//! The client's side: attach, channels, calls in flight.
//!
//! `attachment` performs the handshake and owns the `channel`s; all of them share one `connection`. `call_table` tracks
//! asynchronous calls that many tasks make over one channel. `hangup_monitor` and `thread_tag` support `connection` and
//! the transports.

#[cfg(not(loom))]
pub(crate) mod attachment;
pub(crate) mod call_table;
#[cfg(not(loom))]
pub(crate) mod channel;
#[cfg(not(loom))]
pub(crate) mod connection;
#[cfg(not(loom))]
pub(crate) mod hangup_monitor;
#[cfg(not(loom))]
pub(crate) mod thread_tag;
