//! The daemon's side: acceptor, channels, the poll scheduler, fair shares.

#[cfg(not(loom))]
pub(crate) mod acceptor;
#[cfg(not(loom))]
pub(crate) mod active_threads;
#[cfg(not(loom))]
pub(crate) mod channel;
#[cfg(not(loom))]
pub(crate) mod fair_share;
#[cfg(not(loom))]
pub(crate) mod listen_socket;
#[cfg(not(loom))]
pub(crate) mod poll_scheduler;
#[cfg(not(loom))]
pub(crate) mod server;
#[cfg(not(loom))]
pub(crate) mod session;
