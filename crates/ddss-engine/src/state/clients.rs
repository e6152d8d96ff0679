//! Attached clients of this node.

use ddss_core::limits::CLIENTS_MAX;
use ddss_core::{ClientId, Principal};

/// One attached client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    generation: u32,
    pub(crate) principal: Principal,
    pub(crate) arena_bytes: u64,
}

/// All attached clients, by index.
#[derive(Debug)]
pub(crate) struct Clients(Vec<Option<Client>>);

impl Clients {
    pub(crate) fn new() -> Self {
        Self(vec![None; CLIENTS_MAX])
    }

    /// Adds a client. An index beyond the maximum is ignored.
    pub(crate) fn attach(&mut self, id: ClientId, principal: Principal, arena_bytes: u64) {
        if let Some(slot) = self.0.get_mut(id.index as usize) {
            *slot = Some(Client { generation: id.generation, principal, arena_bytes });
        }
    }

    /// Removes a client; `false` if it is not attached.
    pub(crate) fn detach(&mut self, id: ClientId) -> bool {
        let was_attached = self.get(id).is_some();
        if was_attached {
            self.0[id.index as usize] = None;
        }
        assert!(self.get(id).is_none(), "a client that is gone gets no reply");
        was_attached
    }

    /// Returns an attached client.
    #[inline]
    pub(crate) fn get(&self, id: ClientId) -> Option<Client> {
        (*self.0.get(id.index as usize)?).filter(|client| client.generation == id.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_an_earlier_generation_names_no_client() {
        // If this broke, a client would get the replies to its predecessor in the same slot.
        let id = |generation| ClientId { index: 3, generation };
        let mut clients = Clients::new();
        clients.attach(id(1), Principal { uid: 5, gid: 6 }, 64);
        assert!(clients.get(id(2)).is_none() && !clients.detach(id(2)));
        assert_eq!(clients.get(id(1)).map(|client| (client.principal.uid, client.arena_bytes)), Some((5, 64)));
        assert!(clients.detach(id(1)) && !clients.detach(id(1)));
        clients.attach(ClientId { index: u16::MAX.into(), generation: 1 }, Principal { uid: 5, gid: 6 }, 64);
    }
}
