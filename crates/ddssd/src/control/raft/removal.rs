//! Removal of a node from the directory: its names go, or wait for their replicas.

use super::directory::{Directory, DirectoryChange, ReplicaRecord};

impl Directory {
    /// Removes a node for good. A replica that is in sync takes over.
    pub(super) fn remove_node(&mut self, node: u16, mut on_change: impl FnMut(DirectoryChange)) {
        self.lives.remove(&node);
        self.removed.insert(node);
        on_change(DirectoryChange::Removed(node));
        self.registrations.remove(&node);
        let (mut vacant_count, mut lost_count, names, counts) = (0, 0, &mut self.names, &mut self.counts);
        names.retain(|name, holder| {
            if holder.home != node {
                // The home came back without the segment, and its only copy goes with this node.
                let Some(roles) = holder.roles.filter(|roles| roles.vacant && roles.replica == node) else {
                    return true;
                };
                lost_count += 1;
                if let Some(count) = counts.get_mut(&holder.home) {
                    *count -= 1;
                }
                on_change(DirectoryChange::Name { name: name.clone(), home: None });
                on_change(DirectoryChange::RoleReleased { segment: roles.segment });
                return false;
            }
            if let Some(roles) = holder.roles.as_mut().filter(|roles| roles.paired) {
                vacant_count += 1;
                roles.vacant = true;
                on_change(DirectoryChange::RoleAssigned { home: node, roles: *roles });
                return true;
            }
            lost_count += 1;
            on_change(DirectoryChange::Name { name: name.clone(), home: None });
            if let Some(ReplicaRecord { segment, .. }) = holder.roles {
                on_change(DirectoryChange::RoleReleased { segment });
            }
            false
        });
        match vacant_count {
            0 => self.counts.remove(&node),
            vacant_count => self.counts.insert(node, vacant_count),
        };
        *self.lost_names.entry(node).or_default() += lost_count;
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Command;
    use super::*;

    #[test]
    fn name_whose_only_copy_goes_with_a_node_is_free() {
        // If this broke, not even the removal of its nodes would free the name of a lost segment.
        let mut directory = Directory::default();
        let name = || "x".to_owned();
        let life = |node| Command::Alive { node, run: 0 };
        let claim = Command::Claim { name: name(), home: 1, claim: 5 };
        let pair = Command::Pair { name: name(), home: 1, run: 0, segment: 11, epoch: 1, turn: 1, replica: 2 };
        for command in [life(1), life(2), claim, pair, Command::Yield { name: name(), home: 1, epoch: 1 }] {
            directory.apply(&command, |_| {});
        }
        assert_eq!(directory.names_only_at(2).collect::<Vec<_>>(), ["x"]);
        let mut freed = Vec::new();
        directory.apply(&Command::Gone { node: 2 }, |change| freed.push(format!("{change:?}")));
        assert!(
            directory.holder("x").is_none() && freed.iter().any(|change| change.contains("RoleReleased")),
            "{freed:?}"
        );
        assert_eq!((directory.lost_names(2), directory.counts[&1]), (1, 0));
    }
}
