//! Arenas of the attached clients, by client index.

use ddss_core::ClientId;
use ddss_core::limits::CLIENTS_MAX;
use ddss_ipc::SharedMemory;
use ddss_verbs::RegionId;

/// The engine validates all ranges before it emits an action, so a failure here is our own bug.
pub(crate) const CHECKED: &str = "the engine checks ranges against the arena and the segment";

/// Arena of a client, as this thread and the fabric address it.
#[derive(Debug)]
pub(crate) struct ClientArena {
    pub(crate) client: ClientId,
    pub(crate) memory: SharedMemory,
    pub(crate) region: RegionId,
}

/// Arenas of all attached clients.
#[derive(Debug)]
pub(crate) struct ClientArenas(Vec<Option<ClientArena>>);

impl ClientArenas {
    pub(crate) fn new() -> Self {
        Self(std::iter::repeat_with(|| None).take(CLIENTS_MAX).collect())
    }

    /// Returns the arena of an attached client.
    #[inline]
    pub(crate) fn of(&self, client: ClientId) -> Option<&ClientArena> {
        self.0.get(client.index as usize)?.as_ref().filter(|arena| arena.client == client)
    }

    pub(crate) fn insert(&mut self, arena: ClientArena) {
        let index = arena.client.index as usize;
        self.0[index] = Some(arena);
    }

    /// Removes the arena of a client, if it is attached.
    pub(crate) fn remove(&mut self, client: ClientId) -> Option<ClientArena> {
        self.of(client)?;
        self.0[client.index as usize].take()
    }
}
