//! Other nodes as this one sees them: connection state, room in their staging memory, and known remote segments.

use crate::state::memory::staging::Staging;
use ddss_core::limits::REMOTE_SEGMENTS_MAX;
use ddss_core::{NodeId, RemoteWindow, SegmentId, SegmentInfo};
use foldhash::HashMap;
use std::collections::BTreeMap;

/// Segment of another home, as its home described it.
#[derive(Debug)]
pub(crate) struct RemoteSegment {
    pub(crate) info: SegmentInfo,
    pub(crate) window: RemoteWindow,
    /// Reads in flight.
    pub(crate) reads: u32,
    /// The home has released it: no new read starts, and the last one informs the home.
    pub(crate) leaving: bool,
}

/// One other node.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    up: bool,
    pub(crate) staging: Staging,
    pub(crate) remotes: HashMap<SegmentId, RemoteSegment>,
}

impl Peer {
    /// Known segments of one peer.
    pub(crate) const REMOTES_MAX: usize = REMOTE_SEGMENTS_MAX;

    pub(crate) fn is_up(&self) -> bool {
        self.up
    }
}

/// All other nodes that this one was told of.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_id: BTreeMap<NodeId, Peer>,
}

impl Peers {
    pub(crate) fn get(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.by_id.get_mut(&node)
    }

    /// Returns the peer if it is connected.
    pub(crate) fn reachable(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.get(node).filter(|peer| peer.up)
    }

    /// Marks a peer as connected.
    pub(crate) fn connect(&mut self, node: NodeId) {
        let peer = self.add(node);
        assert!(!peer.up && peer.remotes.is_empty(), "a peer goes down before it comes up again");
        peer.up = true;
    }

    /// Marks a peer as lost, with all that belonged to the connection; `false` if it was not connected.
    pub(crate) fn disconnect(&mut self, node: NodeId) -> bool {
        let Some(peer) = self.reachable(node) else { return false };
        *peer = Peer::default();
        assert!(!self.is_up(node), "a lost peer is not reachable");
        true
    }

    /// Returns true if this node was told of the other one: in a cluster, of each member.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        self.by_id.contains_key(&node)
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.by_id.get(&node).is_some_and(|peer| peer.up)
    }

    pub(crate) fn add(&mut self, node: NodeId) -> &mut Peer {
        self.by_id.entry(node).or_default()
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        self.by_id.remove(&node);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, bool)> + '_ {
        self.by_id.iter().map(|(&node, peer)| (node, peer.up))
    }
}
