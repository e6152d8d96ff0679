//! The daemon's state of one attached client.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ddss_core::ClientId;

use crate::shm::layout::Layout;
use crate::strategy::Strategy;
use crate::sys::{Credentials, MemoryError, SharedMemory};
use crate::transport::sysv_journal::OwnedQueue;

/// A client that has just attached, on its way from the acceptor to the [`IpcServer`](crate::IpcServer).
pub struct Session {
    pub(crate) client: ClientId,
    pub(crate) strategy: Strategy,
    pub(crate) credentials: Credentials,
    pub(crate) layout: Layout,
    pub(crate) memory: SharedMemory,
    pub(crate) arena: SharedMemory,
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) wake: OwnedFd,
    pub(crate) reply_queue: Option<OwnedQueue>,
    pub(crate) request_queue: Option<OwnedQueue>,
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session")
            .field("client", &self.client)
            .field("strategy", &self.strategy)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// Creates the memory of a client: zeroed, sealed, with its header.
pub(crate) fn make_memory(layout: &Layout) -> Result<SharedMemory, MemoryError> {
    let memory = SharedMemory::create("ddss-client", layout.bytes())?;
    memory.seal_seals()?;
    memory.write(0, &layout.header())?;
    Ok(memory)
}

impl Session {
    /// Returns the id of the client.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Returns the strategy of the client.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Returns the credentials of the client.
    pub fn credentials(&self) -> Credentials {
        self.credentials
    }

    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.layout.channels()
    }

    /// Returns the client's arena; offset 0 is its first byte. A clone keeps the memory after the client is gone.
    pub fn arena(&self) -> &SharedMemory {
        &self.arena
    }
}

/// Event that the acceptor sends to the server.
#[derive(Debug)]
pub enum ClientEvent {
    /// A client has completed its handshake.
    Attached(Session),
    /// A client's socket has ended.
    Detached(ClientId),
}

/// Sink of client events. It may block briefly; no client is accepted meanwhile.
pub(crate) type ClientEventSink = Box<dyn FnMut(ClientEvent) + Send>;
