//! What the daemon holds of one attached client.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ddss_core::ClientId;

use crate::shm::layout::Layout;
use crate::strategy::Strategy;
use crate::sys::{MemoryError, SharedMemory};
use crate::transport::sysv_journal::OwnedQueue;

/// Who is at the other end of a socket, as the kernel says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The process; only for words in a log, since it may be gone and its number used again. 0 if it has no number in this
    /// process' PID namespace: a client outside a daemon's container.
    pub pid: i32,
    /// The user.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
}

/// A client that has just attached: what the reception made for it, on the way to the
/// [`Station`](crate::IpcServer).
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

/// Makes the memory of a client: zeroed, sealed, with its header written.
pub(crate) fn make_memory(layout: &Layout) -> Result<SharedMemory, MemoryError> {
    let memory = SharedMemory::create("ddss-client", layout.bytes())?;
    memory.seal_seals()?;
    memory.write(0, &layout.header())?;
    Ok(memory)
}

impl Session {
    /// The client's name.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// What it chose.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Who it is.
    pub fn credentials(&self) -> Credentials {
        self.credentials
    }

    /// How many lanes it has.
    pub fn lanes(&self) -> usize {
        self.layout.lanes()
    }

    /// Its arena; offset 0 is the arena's first byte. A clone keeps the memory after the client is gone.
    pub fn arena(&self) -> &SharedMemory {
        &self.arena
    }
}

/// What the reception tells.
#[derive(Debug)]
pub enum Arrival {
    /// A client shook hands.
    Attached(Session),
    /// A client's socket came to its end.
    Left(ClientId),
}
