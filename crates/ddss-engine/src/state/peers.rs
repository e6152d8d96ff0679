//! Other nodes as this one sees them: connection state, room in their staging memory, known remote segments, and bytes on
//! their way to them.

use crate::config::Now;
use crate::state::get_buffers::GetBuffers;
use crate::state::memory::staging::Staging;
use ddss_core::limits::REMOTE_SEGMENTS_MAX;
use ddss_core::{HybridClock, Name, NodeId, RemoteWindow, SegmentId, SegmentInfo, Timestamp};
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
    /// Its clock at its last message, less this node's steady clock, in microseconds.
    clock_us: Option<i64>,
}

impl Peer {
    /// Known segments of one peer.
    pub(crate) const REMOTES_MAX: usize = REMOTE_SEGMENTS_MAX;

    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Records the clock that came with a message of this peer.
    pub(crate) fn note_clock(&mut self, now: Now, clock: Timestamp) {
        self.clock_us = Some(clock.micros().cast_signed() - now.steady_us.cast_signed());
    }
}

/// All other nodes that this one was told of.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_id: BTreeMap<NodeId, Peer>,
    /// Pool bytes on their way to peers.
    pub(crate) get_buffers: GetBuffers,
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
    pub(crate) fn connect(&mut self, node: NodeId) -> &mut Peer {
        let peer = self.add(node);
        assert!(!peer.up && peer.remotes.is_empty(), "a peer goes down before it comes up again");
        peer.up = true;
        peer
    }

    /// Marks a peer as lost, with all that belonged to the connection; `false` if it was not connected.
    pub(crate) fn disconnect(&mut self, node: NodeId) -> bool {
        let Some(peer) = self.reachable(node) else { return false };
        *peer = Peer { clock_us: peer.clock_us, ..Peer::default() };
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

    /// Returns true if this node's wall clock is far ahead of the clocks of all peers that are known, and one is. A peer whose clock
    /// is far ahead of this one's says nothing: it is wrong itself.
    pub(crate) fn is_clock_ahead(&self, now: Now) -> bool {
        let (steady_us, wall_us) = (now.steady_us.cast_signed(), now.wall_us.cast_signed());
        let ahead_max_us = HybridClock::AHEAD_MAX_US.cast_signed();
        let clocks = self.by_id.values().filter_map(|peer| Some(peer.clock_us?.saturating_add(steady_us)));
        let newest = clocks.filter(|clock_us| clock_us.saturating_sub(ahead_max_us) <= wall_us).max();
        newest.is_some_and(|newest_us| wall_us > newest_us.saturating_add(ahead_max_us))
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

/// Rendezvous weight of a name on a node (FNV-1a over both, mixed once more). Each name goes to the node with the
/// highest weight, so a node that joins or leaves moves only its own names.
pub(crate) fn weight(node: NodeId, name: &Name) -> u64 {
    let bytes = node.0.to_le_bytes().into_iter().chain(name.as_str().bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ hash >> 32
}
