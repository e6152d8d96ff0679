//! Events of the control plane: names, members, roles and leases.

use crate::control::ControlEvent;
use crate::peers::links::Links;
use crate::shard::clock::Clock;
use crate::status::Recorder;
use ddss_admin::PeerAddress;
use ddss_core::status::Counter;
use ddss_engine::Engine;

/// Parts of a shard that learn of the cluster's decisions.
pub(crate) struct ControlEvents<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) links: &'a mut Links,
    pub(crate) clock: &'a Clock,
    pub(crate) recorder: &'a mut Recorder,
    /// Set when the list of members has changed: a peer may be due for a connection.
    pub(crate) members_changed: &'a mut bool,
}

impl ControlEvents<'_> {
    pub(crate) fn handle(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::Name { name, home } => self.engine.set_home(name, home),
            ControlEvent::Names(homes) => self.engine.set_homes(homes),
            ControlEvent::Members(members) => self.set_members(&members),
            ControlEvent::Dead(node) => {
                self.links.close_connection(node);
                self.engine.on_node_dead(self.clock.now(), node);
            }
            ControlEvent::Alive(node) => self.engine.on_node_alive(node),
            ControlEvent::Removed(node) => self.links.mark_removed(node),
            ControlEvent::RoleAssigned(assignment) => self.engine.assign_role(self.clock.now(), &assignment),
            ControlEvent::RoleReleased(segment) => self.engine.remove_role(self.clock.now(), segment),
            ControlEvent::GivenUp(_) => self.recorder.count(Counter::SegmentsLost),
            ControlEvent::Lease { until } => {
                self.engine.lease(self.clock.now(), self.clock.steady_us(until));
            }
            ControlEvent::Claimed { claim, result } => self.engine.on_claimed(self.clock.now(), claim, result),
            ControlEvent::Disclaimed { claim, result } => self.engine.on_disclaimed(claim, result),
            ControlEvent::Majority(has_majority) => self.engine.set_majority(has_majority),
            ControlEvent::Confirmed { step, result } => self.engine.on_confirmed(step, result),
        }
    }

    /// Replaces the list of peers with the members of the cluster.
    fn set_members(&mut self, members: &[PeerAddress]) {
        for node in self.links.nodes() {
            if !members.iter().any(|member| member.node == node) {
                tracing::info!(node = node.0, "a node left this cluster");
                self.links.remove(node);
                self.engine.peer_gone(self.clock.now(), node);
            }
        }
        for member in members {
            self.add_peer(member);
            self.engine.peer_known(member.node);
        }
        *self.members_changed = true;
    }

    /// Adds a peer, or updates its address.
    fn add_peer(&mut self, member: &PeerAddress) {
        if let Err(error) = self.links.add(member) {
            tracing::warn!(node = member.node.0, error, "cannot create staging memory for the peer");
        }
    }
}
