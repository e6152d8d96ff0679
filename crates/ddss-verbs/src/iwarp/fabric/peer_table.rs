//! Table of a fabric's peers, by slot.

use crate::fabric::PeerId;
use crate::iwarp::connection::Stage;
use crate::iwarp::peer::Peer;
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
    count: usize,
}

impl PeerTable {
    /// Returns the number of open sockets.
    pub(super) fn len(&self) -> usize {
        self.count
    }

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
        let slot = &mut self.slots[index as usize];
        Some(PeerId::new(index, slot.generation.wrapping_add(1)))
    }

    /// Inserts a peer with the id from [`next`](Self::next).
    pub(super) fn insert(&mut self, peer: Peer) {
        let id = peer.id();
        let index = self.free.pop().expect("`next` made sure that there is one");
        assert_eq!(index, id.index, "a peer goes where `next` said");
        let slot = &mut self.slots[index as usize];
        slot.generation = id.generation;
        slot.peer = Some(Box::new(peer));
        self.count += 1;
    }

    /// Returns a peer that the owner knows. A closed peer that only lingers is not found.
    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.peer.as_deref_mut().filter(|peer| peer.connection.stage() != Stage::Ended)
    }

    /// Returns the peer in a slot.
    pub(super) fn at(&self, slot: u32) -> Option<&Peer> {
        self.slots.get(slot as usize)?.peer.as_deref()
    }

    /// Takes a peer out of its slot, to be put back or dropped.
    pub(super) fn take(&mut self, slot: u32) -> Option<Box<Peer>> {
        self.slots.get_mut(slot as usize)?.peer.take()
    }

    pub(super) fn put(&mut self, peer: Box<Peer>) {
        let slot = &mut self.slots[peer.id().index as usize];
        slot.peer = Some(peer);
    }

    /// Frees the slot of a peer that was taken out for good.
    pub(super) fn release(&mut self, slot: u32) {
        self.free.push(slot);
        self.count -= 1;
    }

    pub(super) fn slots(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }
}
