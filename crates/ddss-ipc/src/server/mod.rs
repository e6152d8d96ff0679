//! The daemon's side: clients attach, their channels are polled, and users get fair shares.
//!
//! The `acceptor` runs on its own thread, listens on a `listen_socket` and turns each handshake into a `session`. The
//! progress thread owns the `server`. Its `poll_scheduler` decides which `channel`s to poll, with `fair_share` between
//! users.

#[cfg(not(loom))]
pub(crate) mod acceptor;
#[cfg(not(loom))]
pub(crate) mod area_access;
#[cfg(not(loom))]
pub(crate) mod channel;
#[cfg(not(loom))]
mod event_token;
#[cfg(not(loom))]
pub(crate) mod fair_share;
#[cfg(not(loom))]
pub(crate) mod listen_socket;
#[cfg(not(loom))]
pub(crate) mod poll_scheduler;
#[cfg(not(loom))]
pub(crate) mod protocol_violation;
#[cfg(not(loom))]
pub(crate) mod request_handler;
#[cfg(not(loom))]
pub(crate) mod server;
#[cfg(not(loom))]
pub(crate) mod session;
#[cfg(not(loom))]
pub(crate) mod steady_callers;

#[cfg(not(loom))]
pub use {
    acceptor::{Acceptor, AcceptorConfig, UserLimit},
    area_access::AreaAccess,
    protocol_violation::ProtocolViolation,
    request_handler::RequestHandler,
    server::{IdleMode, Inbox, IpcServer, ServerCounts},
    session::{ClientEvent, Session},
};
