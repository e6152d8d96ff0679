//! The other nodes as this one sees them: who can be reached, what room they keep for our puts, and the notes on
//! their segments.

use super::staging::Staging;
use crate::message::{Facts, RemoteWindow};
use crate::{NodeId, SegmentId};
use std::collections::{BTreeMap, HashMap};

/// A segment of another home, as its home described it.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) facts: Facts,
    pub(super) window: RemoteWindow,
    /// Reads of it that are under way.
    pub(super) reads: u32,
    /// Its home has released it: no new read, and word to the home after the last one.
    pub(super) leaving: bool,
}

/// One other node.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) up: bool,
    pub(super) staging: Staging,
    pub(super) remotes: HashMap<SegmentId, Remote>,
}

impl Peer {
    /// Segments of one peer that are noted at the same time.
    pub(super) const REMOTES_MAX: usize = 1 << 16;
}

/// All other nodes that were ever named to this one.
#[derive(Debug, Default)]
pub(super) struct Peers {
    by_id: BTreeMap<NodeId, Peer>,
}

impl Peers {
    pub(super) fn get(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.by_id.get_mut(&node)
    }

    /// The peer, if it can be reached now.
    pub(super) fn reachable(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.get(node).filter(|peer| peer.up)
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.by_id.get(&node).is_some_and(|peer| peer.up)
    }

    pub(super) fn add(&mut self, node: NodeId) -> &mut Peer {
        self.by_id.entry(node).or_default()
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        self.by_id.remove(&node);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, bool)> + '_ {
        self.by_id.iter().map(|(&node, peer)| (node, peer.up))
    }
}
