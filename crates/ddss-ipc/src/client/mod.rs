//! The client's side: attach, channels, calls in flight.
//!
//! `attachment` performs the handshake and hands out the `channel`s; `free_channels` has those that no thread holds.
//! All share one `connection`. `call_table` tracks asynchronous calls that many tasks make over one channel.
//! `hangup_monitor` and `thread_tag` support `connection` and the transports.

#[cfg(not(loom))]
pub(crate) mod attachment;
pub(crate) mod call_table;
#[cfg(not(loom))]
pub(crate) mod channel;
#[cfg(not(loom))]
pub(crate) mod connection;
#[cfg(not(loom))]
mod free_channels;
#[cfg(not(loom))]
pub(crate) mod hangup_monitor;
#[cfg(not(loom))]
pub(crate) mod thread_tag;
