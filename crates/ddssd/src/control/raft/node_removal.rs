//! Removal of a node from the directory: its names go, or wait for their replicas.

use super::directory::{Directory, DirectoryChange, NameOwner, ReplicaRecord};
use super::types::Command;
use ddss_core::SegmentId;

impl Directory {
    /// Removes a name, and the roles of its segment.
    pub(super) fn free_name(&mut self, name: &str, mut on_change: impl FnMut(DirectoryChange)) {
        let Some(NameOwner { home, roles, .. }) = self.names.remove(name) else { return };
        if let Some(count) = self.counts.get_mut(&home) {
            *count -= 1;
        }
        on_change(DirectoryChange::Name { name: name.to_owned(), home: None });
        if let Some(ReplicaRecord { segment, .. }) = roles {
            on_change(DirectoryChange::RoleReleased { segment });
        }
    }

    /// Returns segments of which no node can have a copy, at most `max`, and the commands that give them up.
    pub(crate) fn orphans(&self, max: usize) -> Vec<(SegmentId, Command)> {
        if self.removed.is_empty() {
            return Vec::new();
        }
        let is_orphan = |roles: &ReplicaRecord| roles.is_lost_at_home() && self.removed.contains(&roles.replica);
        let orphans = self.names.iter().filter_map(|(name, owner)| Some((name, owner.roles.filter(is_orphan)?)));
        let give_up = |(name, roles): (&String, ReplicaRecord)| {
            let ReplicaRecord { segment, epoch, turn, .. } = roles;
            (SegmentId::from_bits(segment), Command::GiveUp { name: name.clone(), epoch, turn })
        };
        orphans.take(max).map(give_up).collect()
    }

    /// Removes a node for good. A replica that is in sync takes over.
    pub(super) fn remove_node(&mut self, node: u16, mut on_change: impl FnMut(DirectoryChange)) {
        self.lives.remove(&node);
        self.removed.insert(node);
        on_change(DirectoryChange::Removed(node));
        self.registrations.remove(&node);
        self.former_members.remove(&node);
        let (mut vacant_count, mut lost_count, names) = (0, 0, &mut self.names);
        names.retain(|name, holder| {
            if holder.home != node {
                return true;
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
    use super::super::types::CommandResult;
    use super::*;

    /// Makes a directory with a segment of node 1, whose replica at node 2 is in sync.
    fn paired() -> Directory {
        let mut directory = Directory::default();
        let name = || "x".to_owned();
        let life = |node| Command::Alive { node, run: 0 };
        let claim = Command::Claim { name: name(), home: 1, claim: 5 };
        let pair = Command::Pair { name: name(), home: 1, run: 0, segment: 11, epoch: 1, turn: 1, replica: 2 };
        for command in [life(1), life(2), claim, pair] {
            directory.apply(&command, |_| {});
        }
        directory
    }

    #[test]
    fn name_without_any_copy_is_given_up_in_each_order() {
        // If this broke, not even the removal of its nodes would free the name of a lost segment.
        let yields = Command::Yield { name: "x".to_owned(), home: 1, epoch: 1 };
        let (first, second) = (Command::Gone { node: 1 }, Command::Gone { node: 2 });
        for order in [[&yields, &second], [&second, &yields], [&first, &second], [&second, &first]] {
            let mut directory = paired();
            assert_eq!(directory.orphans(9), [], "{order:?}");
            for command in order {
                directory.apply(command, |_| {});
            }
            let orphans = directory.orphans(9);
            assert_eq!(orphans.len(), 1, "{order:?}");
            let mut changes = Vec::new();
            assert_eq!(
                directory.apply(&orphans[0].1, |change| changes.push(format!("{change:?}"))),
                CommandResult::Done
            );
            assert!(changes.iter().any(|change| change.contains("RoleReleased")), "{changes:?}");
            assert!(directory.holder("x").is_none() && directory.counts.values().all(|&count| count == 0));
            assert_eq!(directory.apply(&orphans[0].1, |_| panic!("changed again")), CommandResult::Refused);
        }
    }

    #[test]
    fn segment_that_came_back_is_not_given_up() {
        // If this broke, a late report would delete a segment that its home or its replica serves again.
        let give_up = |turn| Command::GiveUp { name: "x".to_owned(), epoch: 1, turn };
        let mut directory = paired();
        assert_eq!(directory.apply(&give_up(1), |_| panic!("changed")), CommandResult::Refused, "its home has it");
        directory.apply(&Command::Yield { name: "x".to_owned(), home: 1, epoch: 1 }, |_| {});
        let mut taken_over = directory.clone();
        taken_over.apply(&Command::TakeOver { name: "x".to_owned(), node: 2, epoch: 1, claim: 9 }, |_| {});
        assert_eq!(taken_over.apply(&give_up(1), |_| panic!("changed")), CommandResult::Refused);
        // The home found its memory again.
        directory.apply(&Command::Part { name: "x".to_owned(), home: 1, run: 0, epoch: 1, turn: 2 }, |_| {});
        assert_eq!(directory.apply(&give_up(1), |_| panic!("changed")), CommandResult::Refused);
        assert_eq!(directory.apply(&give_up(2), |_| panic!("changed")), CommandResult::Refused);
    }
}
