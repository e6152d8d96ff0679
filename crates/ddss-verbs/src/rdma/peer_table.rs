//! Table of a fabric's peers, by slot.

use super::peer::Peer;
use crate::id::PeerId;
use crate::limits::PEERS_MAX;
use crate::slab::Slab;

/// Peers by slot, and the slots in use in the order of their arrival.
pub(super) struct PeerTable {
    peers: Slab<PeerId, Box<Peer>>,
    used: Vec<PeerId>,
}

impl PeerTable {
    pub(super) fn new() -> Self {
        Self { peers: Slab::new(PEERS_MAX), used: Vec::new() }
    }

    /// Returns the id of the next peer.
    pub(super) fn next(&mut self) -> Option<PeerId> {
        self.peers.next()
    }

    /// Inserts a peer with the id from [`next`](Self::next).
    pub(super) fn insert(&mut self, peer: Peer) {
        self.used.push(peer.id);
        self.peers.insert(peer.id, Box::new(peer));
    }

    /// Returns a peer in any stage.
    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(id).map(|peer| &mut **peer)
    }

    /// Returns the number of peers.
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns the peer at a position in the list of used slots.
    pub(super) fn at(&mut self, position: usize) -> Option<&mut Peer> {
        self.get_mut(*self.used.get(position)?)
    }

    /// Iterates over all peers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.used.iter().filter_map(|id| self.peers.get(*id).map(|peer| &**peer))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.peers.iter_mut().map(|peer| &mut **peer)
    }

    /// Takes a peer out for good.
    pub(super) fn remove(&mut self, id: PeerId) -> Option<Box<Peer>> {
        let peer = self.peers.remove(id)?;
        self.used.retain(|other| *other != id);
        Some(peer)
    }
}
