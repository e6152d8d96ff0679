//! Table of a fabric's peers, by slot.

use crate::id::PeerId;
use crate::iwarp::connection::Stage;
use crate::iwarp::peer::Peer;
use crate::slab::Slab;

/// Peers by slot, with a generation for each slot. A peer is taken out while it is worked on.
pub(super) type PeerTable = Slab<PeerId, Box<Peer>>;

impl PeerTable {
    /// Returns a peer that the owner knows. A closed peer that only lingers is not found.
    pub(super) fn known(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.get_mut(id).map(|peer| &mut **peer).filter(|peer| peer.connection.stage() != Stage::Ended)
    }

    /// Puts a peer that was taken out back into its slot.
    pub(super) fn put_back(&mut self, peer: Box<Peer>) {
        self.put(peer.id().index, peer);
    }
}
