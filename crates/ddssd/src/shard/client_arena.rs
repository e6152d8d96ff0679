//! Arenas of the attached clients, by client index.

use ddss_core::ClientId;
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

/// Returns the arena of an attached client.
#[inline]
pub(crate) fn arena_of(arenas: &[Option<ClientArena>], client: ClientId) -> Option<&ClientArena> {
    arenas.get(client.index as usize)?.as_ref().filter(|arena| arena.client == client)
}
