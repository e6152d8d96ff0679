//! The client's side: attachment, channels, calls in flight.

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
