//! The state that all nodes have in common: names and their homes, nodes and their epochs.

use super::types::{Answer, Command};
use crate::control::membership::incarnation::Registration;
use ddss_core::limits::SEGMENTS_PER_NODE_MAX;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) home: u16,
    /// The home's own number for this claim; a name that is made again has another.
    pub(crate) claim: u64,
    /// If the segment has a mirror, and the cluster has heard of it.
    #[serde(default)]
    pub(crate) mirrored: Option<ReplicaRecord>,
}

/// What was decided about a mirrored segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReplicaRecord {
    pub(crate) segment: u64,
    pub(crate) mirror: u16,
    /// Which of its homes this is, one after the other.
    pub(crate) epoch: u32,
    /// How often this home had something decided.
    pub(crate) turn: u64,
    /// The mirror may take over.
    pub(crate) paired: bool,
    /// The home has lost it.
    pub(crate) vacant: bool,
}

/// How a node is, as the cluster has agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Goes up each time that the node is found alive again: a death is declared once in each.
    pub(crate) epoch: u64,
    pub(crate) alive: bool,
    pub(crate) run: u32,
}

/// What a command changed, for those who keep a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DirectoryChange {
    Name {
        name: String,
        home: Option<u16>,
    },
    Dead(u16),
    Alive(u16),
    Duty {
        home: u16,
        mirrored: ReplicaRecord,
    },
    NoDuty {
        segment: u64,
    },
    /// A node was removed.
    Gone(u16),
}

/// Names and nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Directory {
    names: BTreeMap<String, Holder>,
    /// How many of them each home has.
    counts: BTreeMap<u16, u32>,
    lives: BTreeMap<u16, NodeStatus>,
    /// The numbers of nodes that left or were removed. No command gives anything to them, and no other node gets their numbers.
    #[serde(default)]
    removed: BTreeSet<u16>,
    /// What each node has registered.
    #[serde(default)]
    registrations: BTreeMap<u16, Registration>,
}

impl Directory {
    pub(crate) fn holder(&self, name: &str) -> Option<Holder> {
        self.names.get(name).copied()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, Holder)> {
        self.names.iter().map(|(name, &holder)| (name.as_str(), holder))
    }

    /// How many names a home has.
    fn count(&self, home: u16) -> usize {
        self.counts.get(&home).map_or(0, |&count| count as usize)
    }

    pub(crate) fn life(&self, node: u16) -> NodeStatus {
        self.lives.get(&node).copied().unwrap_or_default()
    }

    /// What a node has registered last.
    pub(crate) fn registration(&self, node: u16) -> Option<Registration> {
        self.registrations.get(&node).copied()
    }

    /// Applies a command, and tells what it changed.
    pub(crate) fn apply(&mut self, command: &Command, mut tell: impl FnMut(DirectoryChange)) -> Answer {
        if command.gives_to().into_iter().flatten().any(|node| self.is_removed(node)) {
            return Answer::Refused;
        }
        match command {
            Command::Claim { name, home, claim } => {
                let wanted = Holder { home: *home, claim: *claim, mirrored: None };
                match self.names.get(name) {
                    Some(&held) if (held.home, held.claim) != (*home, *claim) => {
                        return Answer::Taken { home: held.home };
                    }
                    Some(_) => {}
                    None if self.count(*home) >= SEGMENTS_PER_NODE_MAX => return Answer::Full,
                    None => {
                        *self.counts.entry(*home).or_default() += 1;
                        self.names.insert(name.clone(), wanted);
                        tell(DirectoryChange::Name { name: name.clone(), home: Some(*home) });
                    }
                }
            }
            Command::Disclaim { name, claim } => {
                if let Some(&Holder { home, mirrored, .. }) = self.names.get(name).filter(|held| held.claim == *claim) {
                    self.names.remove(name);
                    if let Some(count) = self.counts.get_mut(&home) {
                        *count -= 1;
                    }
                    tell(DirectoryChange::Name { name: name.clone(), home: None });
                    if let Some(ReplicaRecord { segment, .. }) = mirrored {
                        tell(DirectoryChange::NoDuty { segment });
                    }
                }
            }
            Command::Register { node, registration } => {
                if self.registration(*node).is_some_and(|known| !known.admits(*registration)) {
                    return Answer::Refused;
                }
                self.registrations.insert(*node, *registration);
            }
            Command::Alive { node, run } => {
                if self.registration(*node).is_some_and(|known| known.run != *run) {
                    return Answer::Refused;
                }
                let life = self.lives.entry(*node).or_default();
                if !life.alive || life.run != *run {
                    *life = NodeStatus { epoch: life.epoch + 1, alive: true, run: *run };
                    tell(DirectoryChange::Alive(*node));
                }
            }
            Command::Dead { node, epoch } => {
                let life = self.lives.entry(*node).or_default();
                if life.alive && life.epoch == *epoch {
                    life.alive = false;
                    tell(DirectoryChange::Dead(*node));
                }
            }
            Command::Gone { node } => self.gone(*node, tell),
            Command::Pair { name, home, run, segment, epoch, turn, mirror } => {
                let said = Said { home: *home, run: *run, epoch: *epoch, turn: *turn };
                let (segment, mirror) = (*segment, *mirror);
                let fresh = ReplicaRecord { segment, mirror, epoch: 1, turn: 0, paired: false, vacant: false };
                return self.by_home(name, said, Some(fresh), tell, |old| ReplicaRecord {
                    mirror,
                    paired: true,
                    vacant: false,
                    ..old
                });
            }
            Command::Part { name, home, run, epoch, turn } => {
                let said = Said { home: *home, run: *run, epoch: *epoch, turn: *turn };
                return self.by_home(name, said, None, tell, |old| ReplicaRecord { paired: false, ..old });
            }
            Command::TakeOver { name, node, epoch, claim } => return self.take_over(name, *node, *epoch, *claim, tell),
            Command::Yield { name, home, epoch } => {
                let Some(held) = self.names.get_mut(name).filter(|held| held.home == *home) else {
                    return Answer::Refused;
                };
                let lost = held.mirrored.as_mut().filter(|mirrored| mirrored.epoch == *epoch && mirrored.paired);
                let Some(mirrored) = lost else { return Answer::Refused };
                mirrored.vacant = true;
                tell(DirectoryChange::Duty { home: *home, mirrored: *mirrored });
            }
        }
        Answer::Done
    }

    /// A node left for good. Where a mirror has everything, the mirror takes over.
    fn gone(&mut self, node: u16, mut tell: impl FnMut(DirectoryChange)) {
        self.lives.remove(&node);
        self.removed.insert(node);
        tell(DirectoryChange::Gone(node));
        self.registrations.remove(&node);
        let (mut left, names) = (0, &mut self.names);
        names.retain(|name, holder| {
            if holder.home != node {
                return true;
            }
            if let Some(mirrored) = holder.mirrored.as_mut().filter(|mirrored| mirrored.paired) {
                left += 1;
                mirrored.vacant = true;
                tell(DirectoryChange::Duty { home: node, mirrored: *mirrored });
                return true;
            }
            tell(DirectoryChange::Name { name: name.clone(), home: None });
            if let Some(ReplicaRecord { segment, .. }) = holder.mirrored {
                tell(DirectoryChange::NoDuty { segment });
            }
            false
        });
        match left {
            0 => self.counts.remove(&node),
            left => self.counts.insert(node, left),
        };
    }

    /// What the home of a segment says about its mirror: heard if it is the home still, in this run of its daemon, and
    /// has said nothing newer.
    fn by_home(
        &mut self,
        name: &str,
        said: Said,
        fresh: Option<ReplicaRecord>,
        mut tell: impl FnMut(DirectoryChange),
        change: impl FnOnce(ReplicaRecord) -> ReplicaRecord,
    ) -> Answer {
        let Said { home, run, epoch, turn } = said;
        let is_this_run = self.life(home).run == run;
        let Some(held) = self.names.get_mut(name).filter(|held| held.home == home && is_this_run) else {
            return Answer::Refused;
        };
        let Some(old) = held.mirrored.or(fresh) else { return Answer::Refused };
        if old.epoch == epoch && old.turn == turn {
            return Answer::Done;
        }
        if old.epoch != epoch || old.turn > turn {
            return Answer::Refused;
        }
        let mirrored = ReplicaRecord { turn, ..change(old) };
        held.mirrored = Some(mirrored);
        tell(DirectoryChange::Duty { home, mirrored });
        Answer::Done
    }

    /// A mirror becomes the home, if it has everything and the home is dead or has lost it.
    fn take_over(
        &mut self,
        name: &str,
        node: u16,
        epoch: u32,
        claim: u64,
        mut tell: impl FnMut(DirectoryChange),
    ) -> Answer {
        let Some(held) = self.names.get(name).copied() else { return Answer::Refused };
        if (held.home, held.claim) == (node, claim) && held.mirrored.is_some_and(|now| now.epoch == epoch + 1) {
            return Answer::Done;
        }
        let Some(old) = held.mirrored.filter(|old| old.mirror == node && old.epoch == epoch && old.paired) else {
            return Answer::Refused;
        };
        if self.life(held.home).alive && !old.vacant {
            return Answer::Refused;
        }
        if let Some(count) = self.counts.get_mut(&held.home) {
            *count -= 1;
        }
        *self.counts.entry(node).or_default() += 1;
        let mirrored =
            ReplicaRecord { mirror: held.home, epoch: epoch + 1, turn: 0, paired: false, vacant: false, ..old };
        self.names.insert(name.to_owned(), Holder { home: node, claim, mirrored: Some(mirrored) });
        tell(DirectoryChange::Name { name: name.to_owned(), home: Some(node) });
        tell(DirectoryChange::Duty { home: node, mirrored });
        Answer::Done
    }

    /// Whether a node left or was removed.
    pub(crate) fn is_removed(&self, node: u16) -> bool {
        self.removed.contains(&node)
    }

    /// The nodes that left or were removed.
    pub(crate) fn removed(&self) -> impl Iterator<Item = u16> + '_ {
        self.removed.iter().copied()
    }

    /// The nodes that have a life: members, and those whose removal has not come to its end.
    pub(crate) fn known(&self) -> impl Iterator<Item = u16> + '_ {
        self.lives.keys().copied()
    }

    /// These are members now. Earlier releases gave the numbers of removed nodes again, and logs have it.
    pub(crate) fn admit(&mut self, members: impl Iterator<Item = u16>) {
        for node in members {
            self.removed.remove(&node);
        }
    }

    /// Whether a node is the home of a mirrored segment.
    pub(crate) fn has_mirrors(&self, node: u16) -> bool {
        self.names.values().any(|holder| holder.home == node && holder.mirrored.is_some())
    }

    /// Whether there is anything of a node that would go with it.
    pub(crate) fn knows(&self, node: u16) -> bool {
        let is_his = |holder: &Holder| holder.home == node && !holder.mirrored.is_some_and(|mirrored| mirrored.vacant);
        self.lives.contains_key(&node) || self.names.values().any(is_his)
    }

    /// The names of the segments that are at home on a node and nowhere else: they go with it. A mirror that is dead keeps nothing.
    pub(crate) fn only_at(&self, node: u16) -> impl Iterator<Item = &str> {
        let is_kept = |mirrored: ReplicaRecord| mirrored.paired && self.life(mirrored.mirror).alive;
        let is_lost = move |holder: &Holder| holder.home == node && !holder.mirrored.is_some_and(is_kept);
        self.names.iter().filter(move |(_, holder)| is_lost(holder)).map(|(name, _)| name.as_str())
    }

    /// The nodes that are declared dead.
    pub(crate) fn dead(&self) -> impl Iterator<Item = u16> + '_ {
        self.lives.iter().filter(|(_, life)| !life.alive && life.epoch > 0).map(|(&node, _)| node)
    }
}

/// Who says something about its mirror, and when.
#[derive(Clone, Copy)]
struct Said {
    home: u16,
    run: u32,
    epoch: u32,
    turn: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::membership::incarnation::Incarnation;

    fn claim(name: &str, home: u16, claim: u64) -> Command {
        Command::Claim { name: name.to_owned(), home, claim }
    }

    #[test]
    fn one_of_two_claims_succeeds_and_a_claim_that_is_repeated_is_one() {
        // If this broke, one name would stand for two segments, or a retry would lose its own claim.
        let mut directory = Directory::default();
        let mut changes = Vec::new();
        assert_eq!(directory.apply(&claim("x", 1, 7), |change| changes.push(change)), Answer::Done);
        assert_eq!(directory.apply(&claim("x", 1, 7), |change| changes.push(change)), Answer::Done);
        assert_eq!(directory.apply(&claim("x", 2, 7), |_| panic!("changed")), Answer::Taken { home: 1 });
        assert_eq!(directory.apply(&claim("x", 1, 8), |_| panic!("changed")), Answer::Taken { home: 1 });
        assert_eq!(changes, [DirectoryChange::Name { name: "x".to_owned(), home: Some(1) }]);
        // A late word about an older claim takes nothing away.
        let disclaim = |claim| Command::Disclaim { name: "x".to_owned(), claim };
        directory.apply(&disclaim(6), |_| panic!("changed"));
        assert_eq!(directory.holder("x"), Some(Holder { home: 1, claim: 7, mirrored: None }));
        directory.apply(&disclaim(7), |change| changes.push(change));
        assert_eq!((changes.len(), directory.holder("x")), (2, None));
    }

    #[test]
    fn a_home_has_no_more_names_than_segments() {
        // If this broke, one node could fill the memory of all.
        let mut directory = Directory::default();
        for index in 0..SEGMENTS_PER_NODE_MAX as u64 {
            assert_eq!(directory.apply(&claim(&format!("n{index}"), 1, index), |_| {}), Answer::Done);
        }
        assert_eq!(directory.apply(&claim("more", 1, 1), |_| panic!("changed")), Answer::Full);
        assert_eq!(directory.apply(&claim("more", 2, 1), |_| {}), Answer::Done);
        directory.apply(&Command::Disclaim { name: "n5".to_owned(), claim: 5 }, |_| {});
        assert_eq!(directory.apply(&claim("again", 1, 1), |_| {}), Answer::Done);
    }

    #[test]
    fn a_death_is_declared_once_for_each_life() {
        // If this broke, a node that came back could be declared dead by an old word, or die for ever.
        let mut directory = Directory::default();
        let mut deaths = 0;
        let mut apply = |directory: &mut Directory, command| {
            directory.apply(&command, |change| deaths += usize::from(change == DirectoryChange::Dead(3)));
            deaths
        };
        apply(&mut directory, Command::Alive { node: 3, run: 1 });
        let epoch = directory.life(3).epoch;
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch }), 1);
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch }), 1);
        apply(&mut directory, Command::Alive { node: 3, run: 1 });
        assert!(directory.life(3).alive && directory.life(3).epoch == epoch + 1);
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch }), 1, "an old word");
        assert_eq!(apply(&mut directory, Command::Dead { node: 3, epoch: epoch + 1 }), 2);
    }

    /// A name of node 1 with a mirror on node 2, both alive.
    fn with_mirror() -> Directory {
        let mut directory = Directory::default();
        for node in 1..=3 {
            directory.apply(&Command::Alive { node, run: 10 + u32::from(node) }, |_| {});
        }
        directory.apply(&claim("x", 1, 7), |_| {});
        directory
    }

    fn pair(run: u32, epoch: u32, turn: u64) -> Command {
        Command::Pair { name: "x".to_owned(), home: 1, run, segment: 77, epoch, turn, mirror: 2 }
    }

    fn part(turn: u64) -> Command {
        Command::Part { name: "x".to_owned(), home: 1, run: 11, epoch: 1, turn }
    }

    fn take_over(node: u16, epoch: u32) -> Command {
        Command::TakeOver { name: "x".to_owned(), node, epoch, claim: 99 }
    }

    fn dies(directory: &mut Directory, node: u16) {
        let epoch = directory.life(node).epoch;
        directory.apply(&Command::Dead { node, epoch }, |_| {});
    }

    #[test]
    fn only_a_mirror_in_sync_takes_over_and_only_from_the_dead() {
        // If this broke, two nodes would be the home of one segment, or a mirror would take over without the newest puts.
        let mut directory = with_mirror();
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), Answer::Refused, "never paired");
        assert_eq!(directory.apply(&pair(11, 1, 1), |_| {}), Answer::Done);
        assert_eq!(directory.apply(&pair(11, 1, 1), |_| panic!("changed")), Answer::Done, "said again");
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), Answer::Refused, "the home lives");
        assert_eq!(directory.apply(&part(2), |_| {}), Answer::Done);
        assert_eq!(directory.apply(&pair(11, 1, 1), |_| panic!("changed")), Answer::Refused, "a late word");
        dies(&mut directory, 1);
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), Answer::Refused, "parted");
        assert_eq!(directory.apply(&pair(10, 1, 3), |_| panic!("changed")), Answer::Refused, "of an older run");
        assert_eq!(directory.apply(&pair(11, 1, 3), |_| {}), Answer::Done);
        assert_eq!(directory.apply(&take_over(3, 1), |_| panic!("changed")), Answer::Refused, "not the mirror");
        assert_eq!(directory.apply(&take_over(2, 1), |_| {}), Answer::Done);
        assert_eq!(directory.apply(&take_over(2, 1), |_| panic!("changed")), Answer::Done, "said again");
        let held = directory.holder("x").unwrap();
        let now = held.mirrored.unwrap();
        assert_eq!((held.home, held.claim, now.mirror, now.epoch, now.paired), (2, 99, 1, 2, false));
        // The old home hears that it is none any more, whatever it says.
        for late in [pair(11, 1, 9), part(9)] {
            assert_eq!(directory.apply(&late, |_| panic!("changed")), Answer::Refused);
        }
        let disclaim = Command::Disclaim { name: "x".to_owned(), claim: 7 };
        directory.apply(&disclaim, |_| panic!("changed"));
    }

    #[test]
    fn what_a_home_has_lost_or_leaves_behind_its_mirror_takes() {
        // If this broke, a home that comes back empty, or leaves, would take the mirror's copy with it.
        for gone in [Command::Yield { name: "x".to_owned(), home: 1, epoch: 1 }, Command::Gone { node: 1 }] {
            let mut directory = with_mirror();
            directory.apply(&pair(11, 1, 1), |_| {});
            directory.apply(&gone, |_| {});
            assert_eq!(directory.knows(1), !matches!(gone, Command::Gone { .. }));
            assert!(directory.holder("x").unwrap().mirrored.unwrap().vacant);
            assert_eq!(directory.apply(&take_over(2, 1), |_| {}), Answer::Done);
            assert_eq!(directory.holder("x").unwrap().home, 2);
        }
    }

    #[test]
    fn a_segment_whose_mirror_has_parted_or_is_dead_is_only_at_its_home() {
        // If this broke, a node would leave with the only bytes of a segment, and nobody would have been told.
        let mut directory = with_mirror();
        assert_eq!((directory.only_at(1).count(), directory.only_at(2).count()), (1, 0), "no mirror yet");
        directory.apply(&pair(11, 1, 1), |_| {});
        assert_eq!(directory.only_at(1).count(), 0);
        let mut parted = directory.clone();
        parted.apply(&part(2), |_| {});
        assert_eq!(parted.only_at(1).collect::<Vec<_>>(), ["x"]);
        dies(&mut directory, 2);
        assert_eq!(directory.only_at(1).count(), 1);
    }

    #[test]
    fn a_node_is_alive_in_the_start_that_it_registered_last() {
        // If this broke, a copy of a state folder, or a voter that has lost its own, would take its node's place.
        let mut directory = Directory::default();
        let register = |folder, start, run| {
            let incarnation = Incarnation { folder, start };
            Command::Register { node: 1, registration: Registration { incarnation, run } }
        };
        let alive = |run| Command::Alive { node: 1, run };
        for (command, expected) in [
            (alive(10), Answer::Done),
            (register(7, 1, 11), Answer::Done),
            (register(7, 1, 11), Answer::Done),
            (alive(10), Answer::Refused),
            (alive(11), Answer::Done),
            (register(7, 2, 12), Answer::Done),
            (register(7, 1, 11), Answer::Refused),
            (register(8, 3, 13), Answer::Refused),
            (alive(11), Answer::Refused),
            (alive(12), Answer::Done),
        ] {
            assert_eq!(directory.apply(&command, |_| {}), expected, "{command:?}");
        }
        let kept = serde_json::to_string(&directory).unwrap();
        assert_eq!(serde_json::from_str::<Directory>(&kept).unwrap(), directory);
    }

    #[test]
    fn a_node_that_leaves_takes_its_names_with_it() {
        // If this broke, names of a node that is gone for good could never be used again.
        let mut directory = Directory::default();
        for (name, home) in [("a", 1), ("b", 2), ("c", 1)] {
            directory.apply(&claim(name, home, 1), |_| {});
        }
        let mut gone = Vec::new();
        directory.apply(&Command::Gone { node: 1 }, |change| gone.push(change));
        assert_eq!((gone.len(), &gone[0]), (3, &DirectoryChange::Gone(1)));
        assert_eq!(directory.names().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
        assert!(!directory.knows(1) && directory.knows(2));
        directory.apply(&Command::Alive { node: 3, run: 1 }, |_| {});
        assert!(directory.knows(3), "it has a life without names");
    }

    #[test]
    fn nothing_is_given_to_a_removed_node() {
        // If this broke, a node that was removed and returns would take its old names from those who have them now.
        let mut directory = with_mirror();
        directory.apply(&pair(11, 1, 1), |_| {});
        directory.apply(&Command::Gone { node: 2 }, |_| {});
        let before = directory.clone();
        let alive = Command::Alive { node: 2, run: 12 };
        let back = Command::Yield { name: "x".to_owned(), home: 2, epoch: 1 };
        dies(&mut directory, 1);
        for command in [claim("y", 2, 1), alive.clone(), back, pair(11, 1, 2), take_over(2, 1)] {
            assert_eq!(directory.apply(&command, |_| panic!("changed")), Answer::Refused, "{command:?}");
        }
        assert!(directory.is_removed(2) && !directory.knows(2));
        // It survives in the snapshot, and a snapshot of an earlier release has none of it.
        let kept = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Directory>(&kept).unwrap(), before);
        let older = kept.replace(",\"removed\":[2]", "");
        assert!(older != kept && !serde_json::from_str::<Directory>(&older).unwrap().is_removed(2));
        // A log of an earlier release has a membership with the number again.
        directory.admit([1, 2].into_iter());
        assert_eq!(directory.apply(&alive, |_| {}), Answer::Done);
    }
}
