//! The names that this node owns in the directory.

use super::bridge::{ControlEvent, EventSenders};
use super::raft::directory::{Directory, NameOwner};
use super::raft::types::Command;
use crate::control::identity::{are_names_compared, mark_names_compared};
use ddss_core::limits::SEGMENTS_PER_NODE_MAX;
use ddss_core::{Name, SegmentId};
use ddss_engine::{NameState, RoleAssignment};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Names {
    /// Claim of each name; `None` accepts the claim in the directory.
    claims: HashMap<String, Option<u64>>,
    /// Segments found at the start of which the directory decides: owned if it says so.
    adopted: HashSet<String>,
    /// Segments found at the start that this node took over in an earlier cluster: each id, and the epoch of that home.
    taken_over: HashMap<String, (u64, u32)>,
    /// Claims of released segments that the directory may still hold.
    released: HashMap<String, u64>,
    /// Number of them at which those that the directory does not hold are forgotten: twice as many as it held last, and
    /// [`RELEASED_MIN`] at least. It holds [`SEGMENTS_PER_NODE_MAX`] names of a node.
    released_max: usize,
    /// Segments that this node should take over and does not have, with epoch and turn of their roles.
    lost: HashMap<u64, (u32, u64)>,
    /// Incremented with each change that the directory may not know.
    changes: u64,
}

/// Smallest bound of the releases between two comparisons.
const RELEASED_MIN: usize = 1024;

impl Names {
    /// Forgets the releases that the directory does not hold.
    fn forget_decided(&mut self, directory: &Directory) {
        self.released.retain(|name, claim| directory.holder(name).is_some_and(|holder| holder.claim == *claim));
        self.released_max = (2 * self.released.len()).clamp(RELEASED_MIN, 2 * SEGMENTS_PER_NODE_MAX);
    }
}

/// The names that this node owns or is about to own. Clones share the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedNames(Arc<Mutex<Names>>);

impl OwnedNames {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the names of the segments that were found at the start.
    pub(super) fn add_recovered(&self, found: &[(Name, NameState)]) {
        let mut names = self.names();
        names.changes += 1;
        for (name, state) in found {
            let name = name.as_str().to_owned();
            match *state {
                NameState::Owned => drop(names.claims.insert(name, None)),
                NameState::Undecided => drop(names.adopted.insert(name)),
                NameState::TakenOver { segment, epoch } => {
                    names.taken_over.insert(name.clone(), (segment.to_bits(), epoch));
                    names.adopted.insert(name);
                }
            }
        }
    }

    pub(super) fn insert(&self, name: &str, claim: u64) {
        let mut names = self.names();
        names.changes += 1;
        names.claims.insert(name.to_owned(), Some(claim));
        drop(names);
        // A takeover may have the claim of an earlier one.
        self.forget_release(name, claim);
    }

    /// Removes a name whose segment this node has released; returns its claim.
    pub(super) fn release(&self, name: &str, directory: &Directory, node: u16) -> Option<u64> {
        let mut names = self.names();
        names.changes += 1;
        names.taken_over.remove(name);
        let known = names.claims.remove(name).or_else(|| names.adopted.remove(name).then_some(None));
        let held = directory.holder(name).filter(|holder| holder.home == node).map(|holder| holder.claim);
        let claim = known?.or(held)?;
        if names.released.len() >= names.released_max {
            names.forget_decided(directory);
        }
        names.released.insert(name.to_owned(), claim);
        Some(claim)
    }

    /// Forgets a release: the directory does not hold its claim.
    pub(super) fn forget_release(&self, name: &str, claim: u64) {
        let mut names = self.names();
        if names.released.get(name) == Some(&claim) {
            names.released.remove(name);
        }
    }

    /// Returns a number that changes with the names.
    pub(super) fn changes(&self) -> u64 {
        self.names().changes
    }

    /// Removes a name if its claim is still the given one.
    pub(super) fn remove_claim(&self, name: &str, claim: u64) {
        let mut names = self.names();
        if names.claims.get(name) == Some(&Some(claim)) {
            names.changes += 1;
            names.claims.remove(name);
        }
    }

    pub(super) fn abandon(&self, name: &str) {
        let mut names = self.names();
        names.changes += 1;
        names.claims.remove(name);
        names.taken_over.remove(name);
    }

    /// Adds a segment that this node should take over and does not have.
    pub(super) fn add_lost(&self, roles: &RoleAssignment) {
        let mut names = self.names();
        names.changes += 1;
        names.lost.insert(roles.segment.to_bits(), (roles.epoch, roles.turn));
    }

    /// Returns the segments to give up, at most `max`: their homes came back without them, and this node has no copy.
    pub(super) fn given_up(&self, directory: &Directory, max: usize) -> Vec<(SegmentId, Command)> {
        let lost = &mut self.names().lost;
        if lost.is_empty() {
            return Vec::new();
        }
        let mut held = HashMap::new();
        for (name, NameOwner { roles, .. }) in directory.names() {
            let Some(roles) = roles.filter(|roles| lost.get(&roles.segment) == Some(&(roles.epoch, roles.turn))) else {
                continue;
            };
            let command = Command::GiveUp { name: name.to_owned(), epoch: roles.epoch, turn: roles.turn };
            held.insert(roles.segment, command);
        }
        lost.retain(|segment, _| held.contains_key(segment));
        held.into_iter().take(max).map(|(segment, command)| (SegmentId::from_bits(segment), command)).collect()
    }

    /// Returns the commands that make the directory and this node agree, at most `max`.
    pub(super) fn reconcile(&self, directory: &Directory, node: u16, max: usize) -> Vec<Command> {
        let mut names = self.names();
        names.forget_decided(directory);
        let Names { claims, adopted, released, taken_over, .. } = &mut *names;
        taken_over.retain(|name, (segment, epoch)| {
            let roles = directory.holder(name).and_then(|holder| holder.roles);
            !roles.is_some_and(|roles| roles.segment == *segment && roles.epoch >= *epoch)
        });
        let mut commands = Vec::new();
        for (name, NameOwner { claim, roles, .. }) in directory.names().filter(|(_, holder)| holder.home == node) {
            if adopted.remove(name) {
                claims.insert(name.to_owned(), None);
            }
            match (claims.get_mut(name), roles) {
                // Its replica must not come back with it.
                _ if released.get(name) == Some(&claim) => {
                    commands.push(Command::Disclaim { name: name.to_owned(), claim });
                }
                (Some(ours @ None), _) => *ours = Some(claim),
                (Some(Some(ours)), _) if *ours == claim => {}
                // The home came back without the segment: its replica has it.
                (_, Some(roles)) if roles.paired => {
                    let (name, epoch) = (name.to_owned(), roles.epoch);
                    commands.extend((!roles.vacant).then_some(Command::Yield { name, home: node, epoch }));
                }
                _ => commands.push(Command::Disclaim { name: name.to_owned(), claim }),
            }
            if commands.len() == max {
                return commands;
            }
        }
        // A replicated segment that has its home elsewhere by now is a replica here.
        let is_ours = |name: &String| match directory.holder(name) {
            None => true,
            Some(holder) => holder.home != node && holder.roles.is_none(),
        };
        let unknown = claims.iter().filter(|(name, claim)| claim.is_none() && is_ours(name));
        let wanted = unknown.map(|(name, _)| Command::Claim { name: name.clone(), home: node, claim: 0 });
        let lost = taken_over.iter().map(|(name, &(segment, epoch))| {
            // Differs from each claim of a name and of a takeover: the run is missing.
            let (name, claim) = (name.clone(), 1 << 31 | u64::from(epoch));
            Command::Reclaim { name, node, segment, epoch, claim }
        });
        commands.extend(lost.chain(wanted).take(max));
        commands
    }
}

/// Times at which the names are compared with the directory. Both may hold a million names, so they are not compared while neither
/// changes, and the comparisons take a twentieth of the time at most.
#[derive(Debug, Default)]
pub(super) struct ComparisonSchedule {
    /// Changes of the directory and of the names when the two last agreed.
    agreed: Option<(u64, u64)>,
    not_before: Option<Instant>,
}

impl ComparisonSchedule {
    const PAUSE_FACTOR: u32 = 20;

    /// Returns true if a comparison is due, for these numbers of changes.
    pub(super) fn is_due(&self, now: Instant, changes: (u64, u64)) -> bool {
        self.agreed != Some(changes) && self.not_before.is_none_or(|time| now >= time)
    }

    /// Records a comparison that began at a time, before these changes were exceeded.
    pub(super) fn record(&mut self, began: Instant, changes: (u64, u64), agrees: bool) {
        let ended = Instant::now();
        self.agreed = agrees.then_some(changes);
        self.not_before = ended.checked_add(ended.duration_since(began) * Self::PAUSE_FACTOR);
    }
}

/// Comparison of this node's names with the directory.
#[derive(Debug)]
pub(super) struct NameComparison {
    pub(super) owned: OwnedNames,
    pub(super) schedule: ComparisonSchedule,
    events: EventSenders,
    state_folder: PathBuf,
    /// The state folder records that both have agreed once.
    is_marked: bool,
}

impl NameComparison {
    pub(super) fn new(owned: OwnedNames, events: EventSenders, state_folder: PathBuf) -> Self {
        let is_marked = are_names_compared(&state_folder);
        Self { owned, schedule: ComparisonSchedule::default(), events, state_folder, is_marked }
    }

    /// Tells the progress thread of a segment that was given up, which counts it.
    pub(super) fn count_lost(&self, segment: SegmentId) {
        self.events.send(ControlEvent::GivenUp(segment));
    }

    /// Records a comparison. The first one without a difference shows that the directory has all names of this node.
    pub(super) fn record(&mut self, began: Instant, changes: (u64, u64), agrees: bool) {
        if agrees && !self.is_marked {
            let marked = mark_names_compared(&self.state_folder);
            self.is_marked = marked.inspect_err(|error| tracing::debug!(%error, "cannot mark the names")).is_ok();
        }
        self.schedule.record(began, changes, agrees && self.is_marked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    #[test]
    fn reconciliation_disclaims_lost_names_and_keeps_owned_names() {
        // If this broke, a crash would leave unusable names, or a restart would give away names in use.
        let mut directory = Directory::default();
        for (name, home, claim) in [("mine", 1, 5), ("lost", 1, 6), ("older", 1, 7), ("theirs", 2, 8), ("found", 1, 9)]
        {
            directory.apply(&Command::Claim { name: name.to_owned(), home, claim }, |_| {});
        }
        let owned = OwnedNames::default();
        let names =
            [("mine", Some(5)), ("older", Some(70)), ("found", None), ("unknown", None), ("under way", Some(1))];
        owned.names().claims.extend(names.map(|(name, claim)| (name.to_owned(), claim)));
        let disclaim = |name: &str, claim| Command::Disclaim { name: name.to_owned(), claim };
        let claim = |name: &str| Command::Claim { name: name.to_owned(), home: 1, claim: 0 };
        let commands = owned.reconcile(&directory, 1, 64);
        assert_eq!(commands, [disclaim("lost", 6), disclaim("older", 7), claim("unknown")]);
        assert_eq!(owned.names().claims["found"], Some(9), "adopts the claim of the directory");
        assert_eq!(owned.reconcile(&directory, 1, 1).len(), 1, "bounded");
    }

    #[test]
    fn names_are_compared_after_changes_and_for_part_of_the_time() {
        // If this broke, a node with a million names would do nothing but compare them, or keep a lost name for ever.
        let (mut schedule, began) = (ComparisonSchedule::default(), Instant::now());
        assert!(schedule.is_due(began, (1, 1)));
        schedule.record(began, (1, 1), true);
        let later = began + std::time::Duration::from_secs(3600);
        assert!(!schedule.is_due(later, (1, 1)), "nothing changed");
        assert!(schedule.is_due(later, (2, 1)) && schedule.is_due(later, (1, 2)));
        schedule.record(began, (1, 1), false);
        assert!(schedule.is_due(later, (1, 1)), "the names still differ");
        schedule.record(began.checked_sub(std::time::Duration::from_secs(9)).unwrap(), (1, 1), false);
        assert!(!schedule.is_due(Instant::now(), (2, 2)), "the last comparison was long");
    }

    #[test]
    fn name_with_synced_replica_is_yielded_not_disclaimed() {
        // If this broke, a home that returns empty would delete its replica, and a replaced home would claim the name
        // of the new home.
        let mut directory = Directory::default();
        for (index, name) in ["copied", "empty", "moved"].into_iter().enumerate() {
            let (name, claim) = (name.to_owned(), index as u64 + 1);
            directory.apply(&Command::Claim { name: name.clone(), home: 1, claim }, |_| {});
            let (segment, epoch, turn, replica) = (claim, 1, 1, 2);
            let pair = Command::Pair { name, home: 1, run: 0, segment, epoch, turn, replica };
            directory.apply(&pair, |_| {});
        }
        directory.apply(&Command::TakeOver { name: "moved".to_owned(), node: 2, epoch: 1, claim: 9 }, |_| {});
        let name = |text: &str| Name::new(text).unwrap();
        let old_home = OwnedNames::default();
        old_home.add_recovered(&[(name("copied"), NameState::Owned), (name("moved"), NameState::Owned)]);
        let lost = Command::Yield { name: "empty".to_owned(), home: 1, epoch: 1 };
        assert_eq!(old_home.reconcile(&directory, 1, 64), [lost]);
        // The new home finds the segment after a restart, under the id of the old home; a stray replica stays
        // unclaimed.
        let new_home = OwnedNames::default();
        new_home.add_recovered(&["moved", "copied", "stray"].map(|text| (name(text), NameState::Undecided)));
        assert_eq!(new_home.reconcile(&directory, 2, 64), []);
        assert_eq!(new_home.names().claims["moved"], Some(9));
    }

    /// Makes a directory with a segment of node 1 whose replica at node 2 is in sync, with claim 5.
    fn paired(name: &str) -> Directory {
        let mut directory = Directory::default();
        let name = name.to_owned();
        directory.apply(&Command::Claim { name: name.clone(), home: 1, claim: 5 }, |_| {});
        let (segment, epoch, turn, replica) = (1, 1, 1, 2);
        directory.apply(&Command::Pair { name, home: 1, run: 0, segment, epoch, turn, replica }, |_| {});
        directory
    }

    #[test]
    fn segment_taken_over_in_an_earlier_cluster_is_reclaimed_until_the_directory_decides() {
        // If this broke, a new cluster would not hear of the last home of a segment, or hear of it for ever.
        let (segment, epoch) = (SegmentId::new(ddss_core::NodeId(2), 1, 1), 2);
        let (mut directory, owned) = (Directory::default(), OwnedNames::default());
        owned.add_recovered(&[(Name::new("kept").unwrap(), NameState::TakenOver { segment, epoch })]);
        let commands = owned.reconcile(&directory, 1, 64);
        assert!(matches!(&commands[..], [Command::Reclaim { node: 1, epoch: 2, .. }]), "{commands:?}");
        assert_eq!(owned.reconcile(&directory, 1, 64), commands, "until it is applied");
        directory.apply(&commands[0], |_| {});
        assert_eq!(owned.reconcile(&directory, 1, 64), []);
        assert_eq!(owned.reconcile(&directory, 2, 64), [], "nothing for another node");
        assert!(owned.release("kept", &directory, 1).is_some());
        // A later home, or a new segment, has the name.
        let later = OwnedNames::default();
        later.add_recovered(&[(Name::new("kept").unwrap(), NameState::TakenOver { segment, epoch })]);
        let (name, node) = ("kept".to_owned(), 3);
        directory.apply(&Command::Reclaim { name, node, segment: segment.to_bits(), epoch: 3, claim: 9 }, |_| {});
        assert_eq!(later.reconcile(&directory, 1, 64), []);
        let refused = OwnedNames::default();
        refused.add_recovered(&[(Name::new("kept").unwrap(), NameState::TakenOver { segment, epoch })]);
        refused.abandon("kept");
        assert_eq!(refused.reconcile(&Directory::default(), 1, 64), []);
    }

    #[test]
    fn released_name_is_disclaimed_until_the_directory_does_not_hold_it() {
        // If this broke, a release during an election would be undone: its replica would return with the segment.
        let (mut directory, owned) = (paired("gone"), OwnedNames::default());
        owned.insert("gone", 5);
        assert_eq!(owned.release("gone", &directory, 1), Some(5));
        let disclaim = Command::Disclaim { name: "gone".to_owned(), claim: 5 };
        for _ in 0..2 {
            assert_eq!(owned.reconcile(&directory, 1, 64), slice::from_ref(&disclaim), "until it is applied");
        }
        // A new segment asks for the name meanwhile.
        owned.insert("gone", 6);
        assert_eq!(owned.reconcile(&directory, 1, 64), slice::from_ref(&disclaim));
        directory.apply(&disclaim, |_| {});
        assert_eq!(owned.reconcile(&directory, 1, 64), []);
        assert!(owned.names().released.is_empty());
    }

    #[test]
    fn release_is_forgotten_when_the_name_has_another_claim() {
        // If this broke, an old release would delete a new segment, or be remembered for ever.
        let (mut directory, owned) = (paired("moved"), OwnedNames::default());
        owned.insert("moved", 5);
        owned.release("moved", &directory, 1);
        directory.apply(&Command::Yield { name: "moved".to_owned(), home: 1, epoch: 1 }, |_| {});
        directory.apply(&Command::TakeOver { name: "moved".to_owned(), node: 2, epoch: 1, claim: 9 }, |_| {});
        assert_eq!(owned.reconcile(&directory, 1, 64), []);
        assert!(owned.names().released.is_empty());
        // A later takeover has the same claim.
        let (directory, owned) = (paired("again"), OwnedNames::default());
        owned.insert("again", 5);
        owned.release("again", &directory, 1);
        owned.insert("again", 5);
        assert_eq!(owned.reconcile(&directory, 1, 64), []);
    }

    #[test]
    fn releases_that_are_not_compared_are_bounded() {
        // If this broke, a node whose comparisons pause would remember each segment that was ever released.
        let (directory, owned) = (paired("stays"), OwnedNames::default());
        owned.insert("stays", 5);
        owned.release("stays", &directory, 1);
        for number in 0..4 * RELEASED_MIN as u64 {
            let name = format!("n{number}");
            owned.insert(&name, 10 + number);
            assert_eq!(owned.release(&name, &directory, 1), Some(10 + number));
            assert!(owned.names().released.len() <= RELEASED_MIN);
        }
        let disclaim = Command::Disclaim { name: "stays".to_owned(), claim: 5 };
        assert_eq!(owned.reconcile(&directory, 1, 64), [disclaim], "the directory still holds it");
    }

    #[test]
    fn release_of_a_found_segment_gives_its_name_back() {
        // If this broke, a segment that is released just after a start would leave its name in the directory.
        for state in [NameState::Owned, NameState::Undecided] {
            let (directory, owned) = (paired("found"), OwnedNames::default());
            owned.add_recovered(&[(Name::new("found").unwrap(), state)]);
            assert_eq!(owned.release("found", &directory, 1), Some(5), "{state:?}");
            let disclaim = Command::Disclaim { name: "found".to_owned(), claim: 5 };
            assert_eq!(owned.reconcile(&directory, 1, 64), [disclaim]);
            assert_eq!(owned.release("found", &directory, 1), None, "once");
        }
    }
}
