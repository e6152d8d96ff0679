//! The replicated directory: names and their homes, nodes and their epochs.

pub(crate) use super::records::{DirectoryChange, NameOwner, NodeStatus, ReplicaRecord};
use super::replicated_counts::ReplicatedCounts;
use crate::control::identity::member::Registration;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The directory of names and nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub(super) names: BTreeMap<String, NameOwner>,
    /// Number of names of each home.
    pub(super) counts: BTreeMap<u16, u32>,
    pub(super) lives: BTreeMap<u16, NodeStatus>,
    /// Ids of nodes that left or were removed. No command may name them as a target, and no other node gets their
    /// ids.
    #[serde(default)]
    pub(super) removed: BTreeSet<u16>,
    /// Number of names that existed only on a removed node, for the reply to a repeated request.
    #[serde(default)]
    pub(super) lost_names: BTreeMap<u16, usize>,
    /// Newest registration of each node.
    #[serde(default)]
    pub(super) registrations: BTreeMap<u16, Registration>,
    /// Nodes of the cluster from which this one was recovered that have not joined this one.
    #[serde(default, rename = "unreturned")]
    pub(super) former_members: BTreeSet<u16>,
    #[serde(skip)]
    pub(super) replicated: ReplicatedCounts,
}

impl Directory {
    pub(crate) fn holder(&self, name: &str) -> Option<NameOwner> {
        self.names.get(name).copied()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, NameOwner)> {
        self.names.iter().map(|(name, &holder)| (name.as_str(), holder))
    }

    /// Returns the names after one, in their order.
    pub(crate) fn names_after(&self, after: Option<&str>) -> impl Iterator<Item = (&str, NameOwner)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.range::<str, _>((from, Bound::Unbounded)).map(|(name, &owner)| (name.as_str(), owner))
    }

    /// Returns the number of names of all homes.
    pub(crate) fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Returns the number of names of a home.
    pub(super) fn count(&self, home: u16) -> usize {
        self.counts.get(&home).map_or(0, |&count| count as usize)
    }

    pub(crate) fn node_status(&self, node: u16) -> NodeStatus {
        self.lives.get(&node).copied().unwrap_or_default()
    }

    /// Returns the newest registration of a node.
    pub(crate) fn registration(&self, node: u16) -> Option<Registration> {
        self.registrations.get(&node).copied()
    }

    /// Makes a node the home of a replicated segment, in place of the present one.
    pub(super) fn set_home(
        &mut self,
        name: &str,
        home: u16,
        claim: u64,
        roles: ReplicaRecord,
        mut on_change: impl FnMut(DirectoryChange),
    ) {
        let before = self.names.insert(name.to_owned(), NameOwner { home, claim, roles: Some(roles) });
        if let Some(count) = before.and_then(|owner| self.counts.get_mut(&owner.home)) {
            *count -= 1;
        }
        *self.counts.entry(home).or_default() += 1;
        on_change(DirectoryChange::Name { name: name.to_owned(), home: Some(home) });
        on_change(DirectoryChange::RoleAssigned { home, roles });
    }

    /// Returns true if a node left or was removed.
    pub(crate) fn is_removed(&self, node: u16) -> bool {
        self.removed.contains(&node)
    }

    /// Returns the number of names that were lost with a removed node.
    pub(crate) fn lost_names(&self, node: u16) -> usize {
        self.lost_names.get(&node).copied().unwrap_or_default()
    }

    /// Returns the nodes that left or were removed.
    pub(crate) fn removed_nodes(&self) -> impl Iterator<Item = u16> + '_ {
        self.removed.iter().copied()
    }

    /// Returns the nodes with a status: members, and nodes whose removal is not complete.
    pub(crate) fn known_nodes(&self) -> impl Iterator<Item = u16> + '_ {
        self.lives.keys().copied().filter(|&node| !self.is_former_member(node))
    }

    /// Returns true if a node belongs to the cluster from which this one was recovered, and has not joined this one.
    pub(crate) fn is_former_member(&self, node: u16) -> bool {
        self.former_members.contains(&node)
    }

    /// Makes this the directory of a new cluster of one of its nodes. The others count as dead until they join.
    pub(crate) fn begin_new_cluster(&mut self, node: u16, members: impl Iterator<Item = u16>) {
        let known = self.lives.keys().chain(self.registrations.keys()).copied();
        self.former_members = known.chain(members).filter(|&other| other != node && !self.is_removed(other)).collect();
        for (_, life) in self.lives.iter_mut().filter(|(other, _)| **other != node) {
            life.alive = false;
        }
    }

    /// Clears the removed mark of members. Earlier releases reused the ids of removed nodes, and their logs contain
    /// it.
    pub(crate) fn clear_removed(&mut self, members: impl Iterator<Item = u16>) {
        for node in members {
            self.removed.remove(&node);
            self.lost_names.remove(&node);
        }
    }

    /// Returns true if a node is the home of a replicated segment.
    pub(crate) fn has_replicas(&mut self, node: u16) -> bool {
        let homes = || self.names.values().filter(|owner| owner.roles.is_some()).map(|owner| owner.home);
        self.replicated.count(node, homes) > 0
    }

    /// Returns true if the directory has a status or names that would go with a node.
    pub(crate) fn has_state_of(&self, node: u16) -> bool {
        let is_of_node = |holder: &NameOwner| holder.home == node && !holder.roles.is_some_and(|roles| roles.vacant);
        self.lives.contains_key(&node) || self.names.values().any(is_of_node)
    }

    /// Returns the names of segments that exist only on a node and go with it. A dead replica does not count.
    pub(crate) fn names_only_at(&self, node: u16) -> impl Iterator<Item = &str> {
        let is_kept = |roles: ReplicaRecord| roles.paired && self.node_status(roles.replica).alive;
        let is_at_replica = move |roles: ReplicaRecord| roles.vacant && roles.replica == node;
        let is_lost = move |holder: &NameOwner| {
            holder.roles.is_some_and(is_at_replica) || holder.home == node && !holder.roles.is_some_and(is_kept)
        };
        self.names.iter().filter(move |(_, holder)| is_lost(holder)).map(|(name, _)| name.as_str())
    }

    /// Returns the names of replicated segments that had a copy on a node, and have no other one in its place yet.
    pub(crate) fn names_uncopied_from(&self, node: u16) -> impl Iterator<Item = &str> {
        let is_uncopied =
            move |holder: &NameOwner| holder.roles.is_some_and(|roles| holder.home == node || roles.replica == node);
        self.names.iter().filter(move |(_, holder)| is_uncopied(holder)).map(|(name, _)| name.as_str())
    }

    /// Returns what an older directory has and this one lacks: released segments, and deaths of nodes that are alive again.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<DirectoryChange> {
        let segments = |directory: &Self| -> BTreeSet<u64> {
            directory.names.values().filter_map(|owner| Some(owner.roles?.segment)).collect()
        };
        let stored = segments(self);
        let released = segments(before).into_iter().filter(|segment| !stored.contains(segment));
        let alive = before.dead_nodes().filter(|&node| self.node_status(node).alive);
        let released = released.map(|segment| DirectoryChange::RoleReleased { segment });
        released.chain(alive.map(DirectoryChange::Alive)).collect()
    }

    /// Returns the nodes that are declared dead.
    pub(crate) fn dead_nodes(&self) -> impl Iterator<Item = u16> + '_ {
        self.lives.iter().filter(|(_, life)| !life.alive && life.epoch > 0).map(|(&node, _)| node)
    }
}
