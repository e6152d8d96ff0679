//! Table of a fabric's peers, by slot.

use super::peer::Peer;
use crate::fabric::PeerId;
use crate::limits::PEERS_MAX;

#[derive(Default)]
struct Slot {
    generation: u32,
    peer: Option<Box<Peer>>,
}

/// Peers by slot, with a generation for each slot.
#[derive(Default)]
pub(super) struct PeerTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots in use.
    used: Vec<u32>,
}

impl PeerTable {
    /// Returns the id of the next peer.
    pub(super) fn next(&mut self) -> Option<PeerId> {
        if self.free.is_empty() {
            if self.slots.len() >= PEERS_MAX {
                return None;
            }
            self.free.push(self.slots.len() as u32);
            self.slots.push(Slot::default());
        }
        let index = *self.free.last()?;
        Some(PeerId::new(index, self.slots[index as usize].generation.wrapping_add(1)))
    }

    /// Inserts a peer with the id from [`next`](Self::next).
    pub(super) fn insert(&mut self, peer: Peer) {
        let index = self.free.pop().expect("`next` made sure that there is one");
        assert_eq!(index, peer.id.index, "a peer goes where `next` said");
        let slot = &mut self.slots[index as usize];
        slot.generation = peer.id.generation;
        slot.peer = Some(Box::new(peer));
        self.used.push(index);
    }

    /// Returns a peer in any stage.
    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.peer.as_deref_mut()
    }

    /// Returns the number of peers.
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns the peer at a position in the list of used slots.
    pub(super) fn at(&mut self, position: usize) -> Option<&mut Peer> {
        self.slots[*self.used.get(position)? as usize].peer.as_deref_mut()
    }

    /// Iterates over all peers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.used.iter().filter_map(|slot| self.slots[*slot as usize].peer.as_deref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.slots.iter_mut().filter_map(|slot| slot.peer.as_deref_mut())
    }

    /// Takes a peer out for good.
    pub(super) fn remove(&mut self, id: PeerId) -> Option<Box<Peer>> {
        self.get_mut(id)?;
        let peer = self.slots[id.index as usize].peer.take();
        self.used.retain(|slot| *slot != id.index);
        self.free.push(id.index);
        peer
    }
}
