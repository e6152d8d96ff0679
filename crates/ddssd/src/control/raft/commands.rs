//! Commands on the directory: what each changes, or why it is refused. Every node applies them in the same order.

use super::directory::{Directory, DirectoryChange, NameOwner, NodeStatus, ReplicaRecord};
use super::replicated_counts::ReplicatedCounts;
use super::types::{Command, CommandResult};
use ddss_core::limits::SEGMENTS_PER_NODE_MAX;

/// A home's report about its replica: its sender and its order.
#[derive(Clone, Copy)]
struct HomeReport {
    home: u16,
    run: u32,
    epoch: u32,
    turn: u64,
}

impl Directory {
    /// Applies a command, and reports each change.
    pub(crate) fn apply(&mut self, command: &Command, on_change: impl FnMut(DirectoryChange)) -> CommandResult {
        let home = |directory: &Self| command.replicated_name().and_then(|name| directory.replicated_home(name));
        let before = home(self);
        let result = self.apply_command(command, on_change);
        if let Command::Gone { .. } = command {
            self.replicated = ReplicatedCounts::default();
        }
        let after = home(self);
        self.replicated.record(before, after);
        result
    }

    /// Returns the home of a name if its segment is replicated.
    fn replicated_home(&self, name: &str) -> Option<u16> {
        self.names.get(name).filter(|owner| owner.roles.is_some()).map(|owner| owner.home)
    }

    fn apply_command(&mut self, command: &Command, mut on_change: impl FnMut(DirectoryChange)) -> CommandResult {
        if command.target_nodes().into_iter().flatten().any(|node| self.is_removed(node)) {
            return CommandResult::Refused;
        }
        match command {
            Command::Claim { name, home, claim } => {
                return self.claim(name, NameOwner { home: *home, claim: *claim, roles: None }, on_change);
            }
            Command::Disclaim { name, claim } => {
                if self.names.get(name).is_some_and(|owner| owner.claim == *claim) {
                    self.free_name(name, on_change);
                }
            }
            Command::GiveUp { name, epoch, turn } => {
                let roles = self.names.get(name).and_then(|owner| owner.roles);
                if !roles.is_some_and(|roles| (roles.epoch, roles.turn) == (*epoch, *turn) && roles.is_lost_at_home()) {
                    return CommandResult::Refused;
                }
                self.free_name(name, on_change);
            }
            Command::Register { node, registration } => {
                if self.registration(*node).is_some_and(|known| !known.admits(*registration)) {
                    return CommandResult::Refused;
                }
                self.registrations.insert(*node, *registration);
                self.former_members.remove(node);
            }
            Command::Alive { node, run } => return self.declare_alive(*node, *run, on_change),
            Command::Dead { node, epoch } => {
                let life = self.lives.entry(*node).or_default();
                if life.alive && life.epoch == *epoch {
                    life.alive = false;
                    on_change(DirectoryChange::Dead(*node));
                }
            }
            Command::Gone { node } => self.remove_node(*node, on_change),
            Command::Pair { name, home, run, segment, epoch, turn, replica } => {
                let report = HomeReport { home: *home, run: *run, epoch: *epoch, turn: *turn };
                let (segment, replica) = (*segment, *replica);
                let fresh = ReplicaRecord { segment, replica, epoch: 1, turn: 0, paired: false, vacant: false };
                return self.apply_home_report(name, report, Some(fresh), on_change, |old| ReplicaRecord {
                    replica,
                    paired: true,
                    vacant: false,
                    ..old
                });
            }
            Command::Part { name, home, run, epoch, turn } => {
                let report = HomeReport { home: *home, run: *run, epoch: *epoch, turn: *turn };
                return self
                    .apply_home_report(name, report, None, on_change, |old| ReplicaRecord { paired: false, ..old });
            }
            Command::TakeOver { name, node, epoch, claim } => {
                return self.take_over(name, *node, *epoch, *claim, on_change);
            }
            Command::Reclaim { name, node, segment, epoch, claim } => {
                return self.reclaim(name, *node, (*segment, *epoch), *claim, on_change);
            }
            Command::Yield { name, home, epoch } => {
                return self.leave_to_replica(name, *home, *epoch, on_change);
            }
        }
        CommandResult::Done
    }

    /// Gives a name to a home, unless another home or another claim has it.
    fn claim(&mut self, name: &str, wanted: NameOwner, mut on_change: impl FnMut(DirectoryChange)) -> CommandResult {
        let NameOwner { home, claim, .. } = wanted;
        match self.names.get(name) {
            Some(owner) if (owner.home, owner.claim) != (home, claim) => {
                return CommandResult::Taken { home: owner.home };
            }
            Some(_) => {}
            None if self.count(home) >= SEGMENTS_PER_NODE_MAX => return CommandResult::Full,
            None => {
                *self.counts.entry(home).or_default() += 1;
                self.names.insert(name.to_owned(), wanted);
                on_change(DirectoryChange::Name { name: name.to_owned(), home: Some(home) });
            }
        }
        CommandResult::Done
    }

    /// Declares a run of a node alive, unless another run is registered.
    fn declare_alive(&mut self, node: u16, run: u32, mut on_change: impl FnMut(DirectoryChange)) -> CommandResult {
        if self.registration(node).is_some_and(|known| known.run != run) {
            return CommandResult::Refused;
        }
        let life = self.lives.entry(node).or_default();
        if !life.alive || life.run != run {
            *life = NodeStatus { epoch: life.epoch + 1, alive: true, run };
            on_change(DirectoryChange::Alive(node));
        }
        CommandResult::Done
    }

    /// Leaves a segment that its home has lost to its replica, if that is in sync.
    fn leave_to_replica(
        &mut self,
        name: &str,
        home: u16,
        epoch: u32,
        mut on_change: impl FnMut(DirectoryChange),
    ) -> CommandResult {
        let owner = self.names.get_mut(name).filter(|owner| owner.home == home);
        let roles = owner.and_then(|owner| owner.roles.as_mut()).filter(|roles| roles.epoch == epoch && roles.paired);
        let Some(roles) = roles else { return CommandResult::Refused };
        roles.vacant = true;
        on_change(DirectoryChange::RoleAssigned { home, roles: *roles });
        CommandResult::Done
    }

    /// Applies a report of a home about its replica. The report must come from the present home, in the present run
    /// of its daemon, and must not be older than the last one.
    fn apply_home_report(
        &mut self,
        name: &str,
        report: HomeReport,
        fresh: Option<ReplicaRecord>,
        mut on_change: impl FnMut(DirectoryChange),
        change: impl FnOnce(ReplicaRecord) -> ReplicaRecord,
    ) -> CommandResult {
        let HomeReport { home, run, epoch, turn } = report;
        let is_this_run = self.node_status(home).run == run;
        let Some(owner) = self.names.get_mut(name).filter(|owner| owner.home == home && is_this_run) else {
            return CommandResult::Refused;
        };
        let Some(old) = owner.roles.or(fresh) else { return CommandResult::Refused };
        if old.epoch == epoch && old.turn == turn {
            return CommandResult::Done;
        }
        if old.epoch != epoch || old.turn > turn {
            return CommandResult::Refused;
        }
        let roles = ReplicaRecord { turn, ..change(old) };
        owner.roles = Some(roles);
        on_change(DirectoryChange::RoleAssigned { home, roles });
        CommandResult::Done
    }

    /// Makes a replica the home, if it is in sync and the home is dead or has lost the segment.
    fn take_over(
        &mut self,
        name: &str,
        node: u16,
        epoch: u32,
        claim: u64,
        on_change: impl FnMut(DirectoryChange),
    ) -> CommandResult {
        let Some(owner) = self.names.get(name).copied() else { return CommandResult::Refused };
        if (owner.home, owner.claim) == (node, claim)
            && owner.roles.is_some_and(|now| now.epoch.checked_sub(1) == Some(epoch))
        {
            return CommandResult::Done;
        }
        let Some(old) = owner.roles.filter(|old| old.replica == node && old.epoch == epoch && old.paired) else {
            return CommandResult::Refused;
        };
        if self.node_status(owner.home).alive && !old.vacant {
            return CommandResult::Refused;
        }
        let Some(next) = epoch.checked_add(1) else { return CommandResult::Refused };
        let roles = ReplicaRecord { replica: owner.home, epoch: next, turn: 0, paired: false, vacant: false, ..old };
        self.set_home(name, node, claim, roles, on_change);
        CommandResult::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::identity::incarnation::Incarnation;
    use crate::control::identity::member::Registration;

    fn claim(name: &str, home: u16, claim: u64) -> Command {
        Command::Claim { name: name.to_owned(), home, claim }
    }

    #[test]
    fn one_of_two_claims_succeeds_and_repeated_claim_is_idempotent() {
        // If this broke, one name would stand for two segments, or a retry would lose its own claim.
        let mut directory = Directory::default();
        let mut changes = Vec::new();
        assert_eq!(directory.apply(&claim("x", 1, 7), |change| changes.push(change)), CommandResult::Done);
        assert_eq!(directory.apply(&claim("x", 1, 7), |change| changes.push(change)), CommandResult::Done);
        assert_eq!(directory.apply(&claim("x", 2, 7), |_| panic!("changed")), CommandResult::Taken { home: 1 });
        assert_eq!(directory.apply(&claim("x", 1, 8), |_| panic!("changed")), CommandResult::Taken { home: 1 });
        assert_eq!(changes, [DirectoryChange::Name { name: "x".to_owned(), home: Some(1) }]);
        // A late disclaim of an older claim changes nothing.
        let disclaim = |claim| Command::Disclaim { name: "x".to_owned(), claim };
        directory.apply(&disclaim(6), |_| panic!("changed"));
        assert_eq!(directory.holder("x"), Some(NameOwner { home: 1, claim: 7, roles: None }));
        directory.apply(&disclaim(7), |change| changes.push(change));
        assert_eq!((changes.len(), directory.holder("x")), (2, None));
    }

    #[test]
    fn names_of_one_home_are_limited() {
        // If this broke, one node could fill the memory of all nodes.
        let mut directory = Directory::default();
        for index in 0..10 {
            assert_eq!(directory.apply(&claim(&format!("n{index}"), 1, index), |_| {}), CommandResult::Done);
        }
        directory.counts.insert(1, SEGMENTS_PER_NODE_MAX as u32);
        assert_eq!(directory.apply(&claim("more", 1, 1), |_| panic!("changed")), CommandResult::Full);
        assert_eq!(directory.apply(&claim("more", 2, 1), |_| {}), CommandResult::Done);
        directory.apply(&Command::Disclaim { name: "n5".to_owned(), claim: 5 }, |_| {});
        assert_eq!(directory.apply(&claim("again", 1, 1), |_| {}), CommandResult::Done);
    }

    #[test]
    fn death_is_declared_once_in_each_epoch() {
        // If this broke, an old command could declare a restarted node dead, or a node would stay dead for ever.
        let mut directory = Directory::default();
        let mut deaths = 0;
        let mut apply = |directory: &mut Directory, command| {
            directory.apply(&command, |change| deaths += usize::from(change == DirectoryChange::Dead(3)));
            deaths
        };
        apply(&mut directory, Command::Alive { node: 3, run: 1 });
        let epoch = directory.node_status(3).epoch;
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch }), 1);
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch }), 1);
        apply(&mut directory, Command::Alive { node: 3, run: 1 });
        assert!(directory.node_status(3).alive && directory.node_status(3).epoch == epoch + 1);
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch }), 1, "an old command");
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch: epoch + 1 }), 2);
    }

    /// Directory with a name of node 1, and three live nodes.
    fn with_replica() -> Directory {
        let mut directory = Directory::default();
        for node in 1..=3 {
            directory.apply(&Command::Alive { node, run: 10 + u32::from(node) }, |_| {});
        }
        directory.apply(&claim("x", 1, 7), |_| {});
        directory
    }

    fn pair(run: u32, epoch: u32, turn: u64) -> Command {
        Command::Pair { name: "x".to_owned(), home: 1, run, segment: 77, epoch, turn, replica: 2 }
    }

    fn part(turn: u64) -> Command {
        Command::Part { name: "x".to_owned(), home: 1, run: 11, epoch: 1, turn }
    }

    fn take_over(node: u16, epoch: u32) -> Command {
        Command::TakeOver { name: "x".to_owned(), node, epoch, claim: 99 }
    }

    fn declare_dead(directory: &mut Directory, node: u16) {
        let epoch = directory.node_status(node).epoch;
        directory.apply(&Command::Dead { node, epoch }, |_| {});
    }

    #[test]
    fn homes_of_replicated_names_are_counted_like_the_names() {
        // If this broke, a home would let its lease end while others rely on it, or renew it for nothing.
        let mut directory = with_replica();
        let agree = |directory: &mut Directory, step: &str| {
            for node in 1..=3 {
                let found = directory.names().any(|(_, owner)| owner.home == node && owner.roles.is_some());
                assert_eq!(directory.has_replicas(node), found, "{step}: {node}");
            }
            let bytes = serde_json::to_vec(directory).unwrap();
            let mut stored: Directory = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(stored.has_replicas(1), directory.has_replicas(1), "{step}: from a snapshot");
        };
        agree(&mut directory, "plain");
        directory.apply(&pair(11, 1, 1), |_| {});
        assert!(directory.has_replicas(1));
        agree(&mut directory, "paired");
        directory.apply(&pair(11, 1, 1), |_| {});
        directory.apply(&part(2), |_| {});
        agree(&mut directory, "parted");
        directory.apply(&pair(11, 1, 3), |_| {});
        declare_dead(&mut directory, 1);
        directory.apply(&take_over(2, 1), |_| {});
        assert!(directory.has_replicas(2) && !directory.has_replicas(1));
        agree(&mut directory, "taken over");
        directory.apply(&Command::Gone { node: 2 }, |_| {});
        agree(&mut directory, "removed");
        directory.apply(&Command::Disclaim { name: "x".to_owned(), claim: 99 }, |_| {});
        agree(&mut directory, "disclaimed");
    }

    #[test]
    fn only_synced_replica_takes_over_and_only_from_dead_home() {
        // If this broke, two nodes would be the home of one segment, or a replica would take over without the newest
        // puts.
        let mut directory = with_replica();
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), CommandResult::Refused, "never paired");
        assert_eq!(directory.apply(&pair(11, 1, 1), |_| {}), CommandResult::Done);
        assert_eq!(directory.apply(&pair(11, 1, 1), |_| panic!("changed")), CommandResult::Done, "repeated");
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), CommandResult::Refused, "the home lives");
        assert_eq!(directory.apply(&part(2), |_| {}), CommandResult::Done);
        assert_eq!(directory.apply(&pair(11, 1, 1), |_| panic!("changed")), CommandResult::Refused, "a late report");
        declare_dead(&mut directory, 1);
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), CommandResult::Refused, "not in sync");
        assert_eq!(directory.apply(&pair(10, 1, 3), |_| panic!("changed")), CommandResult::Refused, "of an older run");
        assert_eq!(directory.apply(&pair(11, 1, 3), |_| {}), CommandResult::Done);
        assert_eq!(directory.apply(&take_over(3, 1), |_| panic!("changed")), CommandResult::Refused, "not the replica");
        assert_eq!(directory.apply(&take_over(2, 1), |_| {}), CommandResult::Done);
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), CommandResult::Done, "repeated");
        let owner = directory.holder("x").unwrap();
        let now = owner.roles.unwrap();
        assert_eq!((owner.home, owner.claim, now.replica, now.epoch, now.paired), (2, 99, 1, 2, false));
        // Reports of the old home are refused.
        for late in [pair(11, 1, 9), part(9)] {
            assert_eq!(directory.apply(&late, |_| panic!("changed")), CommandResult::Refused);
        }
        let disclaim = Command::Disclaim { name: "x".to_owned(), claim: 7 };
        directory.apply(&disclaim, |_| panic!("changed"));
    }

    #[test]
    fn replica_takes_over_when_home_lost_segment_or_left() {
        // If this broke, a home that returns empty, or leaves, would delete the replica.
        for gone in [Command::Yield { name: "x".to_owned(), home: 1, epoch: 1 }, Command::Gone { node: 1 }] {
            let mut directory = with_replica();
            directory.apply(&pair(11, 1, 1), |_| {});
            directory.apply(&gone, |_| {});
            assert_eq!(directory.has_state_of(1), !matches!(gone, Command::Gone { .. }));
            assert!(directory.holder("x").unwrap().roles.unwrap().vacant);
            assert_eq!(directory.apply(&take_over(2, 1), |_| {}), CommandResult::Done);
            assert_eq!(directory.holder("x").unwrap().home, 2);
        }
    }

    #[test]
    fn segment_without_synced_live_replica_is_only_at_its_home() {
        // If this broke, a node would leave with the only bytes of a segment, without a warning.
        let mut directory = with_replica();
        assert_eq!((directory.names_only_at(1).count(), directory.names_only_at(2).count()), (1, 0), "no replica yet");
        directory.apply(&pair(11, 1, 1), |_| {});
        assert_eq!(directory.names_only_at(1).count(), 0);
        let mut parted = directory.clone();
        parted.apply(&part(2), |_| {});
        assert_eq!(parted.names_only_at(1).collect::<Vec<_>>(), ["x"]);
        declare_dead(&mut directory, 2);
        assert_eq!(directory.names_only_at(1).count(), 1);
    }

    #[test]
    fn only_newest_registered_start_is_alive() {
        // If this broke, a copy of a state folder, or a voter that has lost its own, would take its node's place.
        let mut directory = Directory::default();
        let register = |folder, start, run| {
            let incarnation = Incarnation { folder, start };
            Command::Register { node: 1, registration: Registration { incarnation, run } }
        };
        let alive = |run| Command::Alive { node: 1, run };
        for (command, expected) in [
            (alive(10), CommandResult::Done),
            (register(7, 1, 11), CommandResult::Done),
            (register(7, 1, 11), CommandResult::Done),
            (alive(10), CommandResult::Refused),
            (alive(11), CommandResult::Done),
            (register(7, 2, 12), CommandResult::Done),
            (register(7, 1, 11), CommandResult::Refused),
            (register(8, 3, 13), CommandResult::Refused),
            (alive(11), CommandResult::Refused),
            (alive(12), CommandResult::Done),
        ] {
            assert_eq!(directory.apply(&command, |_| {}), expected, "{command:?}");
        }
        let stored = serde_json::to_string(&directory).unwrap();
        assert_eq!(serde_json::from_str::<Directory>(&stored).unwrap(), directory);
    }

    #[test]
    fn removed_node_loses_its_names() {
        // If this broke, names of a removed node could never be used again.
        let mut directory = Directory::default();
        for (name, home) in [("a", 1), ("b", 2), ("c", 1)] {
            directory.apply(&claim(name, home, 1), |_| {});
        }
        let mut gone = Vec::new();
        directory.apply(&Command::Gone { node: 1 }, |change| gone.push(change));
        assert_eq!((gone.len(), &gone[0]), (3, &DirectoryChange::Removed(1)));
        assert_eq!(directory.names().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
        directory.apply(&Command::Gone { node: 1 }, |_| {});
        assert_eq!((directory.lost_names(1), directory.lost_names(2)), (2, 0), "a repeated removal keeps the count");
        assert!(!directory.has_state_of(1) && directory.has_state_of(2));
        directory.apply(&Command::Alive { node: 3, run: 1 }, |_| {});
        assert!(directory.has_state_of(3), "it has a life without names");
    }

    #[test]
    fn command_for_removed_node_is_refused() {
        // If this broke, a removed node that returns would take its old names from their new owners.
        let mut directory = with_replica();
        directory.apply(&pair(11, 1, 1), |_| {});
        directory.apply(&Command::Gone { node: 2 }, |_| {});
        let before = directory.clone();
        let alive = Command::Alive { node: 2, run: 12 };
        let back = Command::Yield { name: "x".to_owned(), home: 2, epoch: 1 };
        declare_dead(&mut directory, 1);
        for command in [claim("y", 2, 1), alive.clone(), back, pair(11, 1, 2), take_over(2, 1)] {
            assert_eq!(directory.apply(&command, |_| panic!("changed")), CommandResult::Refused, "{command:?}");
        }
        assert!(directory.is_removed(2) && !directory.has_state_of(2));
        // The mark survives in the snapshot; a snapshot of an earlier release has no mark.
        let stored = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Directory>(&stored).unwrap(), before);
        let older = stored.replace(",\"removed\":[2]", "");
        assert!(older != stored && !serde_json::from_str::<Directory>(&older).unwrap().is_removed(2));
        // A log of an earlier release has a membership with the id again.
        directory.clear_removed([1, 2].into_iter());
        assert_eq!(directory.apply(&alive, |_| {}), CommandResult::Done);
    }
}
