//! Events of the cluster: its members, its decisions about names and replicated segments, and this node's lease.

use crate::config::Now;
use crate::engine::Engine;
use crate::role::RoleAssignment;
use crate::state::name_claims::NameClaims;
use ddss_core::{Name, NodeId, SegmentId};

/// Knowledge of a node that starts about the home of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameState {
    /// This node is the home.
    Owned,
    /// The directory decides whether this node is the home.
    Undecided,
    /// This node was the last home in a cluster whose state is lost: it took the segment over.
    TakenOver {
        /// Id of the segment.
        segment: SegmentId,
        /// Epoch of that home.
        epoch: u32,
    },
}

impl Engine {
    /// Switches to cluster-wide names: from now on this node claims them.
    pub fn enable_cluster_names(&mut self) {
        self.directory.get_or_insert_default();
        self.replicas.join_cluster();
    }

    /// Declares that the cluster's directory once had all names of this node: a replicated segment whose name it lacks was
    /// released since. Otherwise the cluster may be new, on the memory of an older one.
    pub fn set_names_compared(&mut self) {
        self.directory.get_or_insert_default().set_compared();
    }

    /// Returns the names of all segments here, each with what this node knows about the home.
    pub fn names(&self) -> Vec<(Name, NameState)> {
        let is_compared = self.directory.as_ref().is_some_and(NameClaims::is_compared);
        let state = |id| {
            let segment = self.segments.get(id).ok();
            let is_torn = segment.is_some_and(|segment| !segment.is_whole());
            let replication = segment.and_then(|segment| segment.replication.as_ref());
            match replication.map(|replication| replication.takeover()) {
                Some(_) if is_torn => NameState::Undecided,
                Some(epoch) if epoch > 0 && !is_compared => NameState::TakenOver { segment: id, epoch },
                Some(_) if is_compared || self.segments.is_adopted(id) => NameState::Undecided,
                _ => NameState::Owned,
            }
        };
        self.segments.names().map(|(name, id)| (name, state(id))).collect()
    }

    /// Sets whether a majority of the cluster's voters is reachable. Without it no segment is released, since its name
    /// could not be given back.
    pub fn set_majority(&mut self, has_majority: bool) {
        if let Some(directory) = &mut self.directory {
            directory.set_majority(has_majority);
        }
    }

    /// Sets or removes the home of a name.
    pub fn set_home(&mut self, name: Name, home: Option<NodeId>) {
        if let Some(directory) = &mut self.directory {
            directory.set_home(name, home);
        }
    }

    /// Replaces the whole copy of the directory.
    pub fn set_homes(&mut self, homes: impl IntoIterator<Item = (Name, NodeId)>) {
        if let Some(directory) = &mut self.directory {
            directory.set_homes(homes);
        }
    }

    /// Adds a member of the cluster, whether it is reachable or not.
    pub fn peer_known(&mut self, node: NodeId) {
        self.peers.add(node);
    }

    /// Removes a member of the cluster.
    pub fn peer_gone(&mut self, now: Now, node: NodeId) {
        self.on_peer_down(now, node);
        self.peers.remove(node);
    }

    /// Declares that a cluster decides about replicas, as one decides about names.
    pub fn enable_replication(&mut self) {
        self.replicas.join_cluster();
    }

    /// Sets the bytes of one resync piece, and how long a replica may be away before another is chosen.
    pub fn set_replication_limits(&mut self, piece_bytes: u32, patience_us: u64) {
        self.replicas.set_limits(piece_bytes, patience_us);
    }

    /// Handles the cluster's decision about a replicated segment.
    pub fn assign_role(&mut self, now: Now, assignment: &RoleAssignment) {
        let before = self.replicas.home_of(assignment.segment);
        self.home().assign_role(now, assignment);
        // A node that has just started hears decisions that may be older than the locks of its clients.
        if self.replicas.is_caught_up() && self.replicas.home_of(assignment.segment) != before {
            // All its locks are broken.
            self.remote_locks.remove_segment(assignment.segment);
        }
    }

    /// Handles the release of a replicated segment.
    pub fn remove_role(&mut self, now: Now, id: SegmentId) {
        self.home().remove_role(now, id);
    }

    /// Extends this node's lease: until then no replica takes over a segment at home here. Earlier decisions were
    /// delivered before this call.
    pub fn lease(&mut self, now: Now, until_us: u64) {
        self.home().lease(now, until_us);
    }

    /// Marks a node as dead. Where this node is the replica of its segments, it asks to take over.
    pub fn on_node_dead(&mut self, now: Now, node: NodeId) {
        self.home().node_dead(now, node);
    }

    /// Marks a node as alive.
    pub fn on_node_alive(&mut self, node: NodeId) {
        self.replicas.set_dead(node, false);
    }
}
