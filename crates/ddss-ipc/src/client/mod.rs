//! The client's side: attach, channels, calls in flight.
//!
//! `attachment` performs the handshake and hands out the `channel`s; `free_channels` has those that no thread holds.
//! All share one connection, which `hangup_monitor` watches. `call_table` tracks asynchronous calls that many tasks make over one
//! channel. `area_mapping` maps the node's memory read-only, without an attachment.

#[cfg(not(loom))]
mod area_mapping;
#[cfg(not(loom))]
pub(crate) mod attachment;
pub(crate) mod call_table;
#[cfg(not(loom))]
pub(crate) mod channel;
#[cfg(not(loom))]
mod free_channels;
#[cfg(not(loom))]
pub(crate) mod hangup_monitor;
