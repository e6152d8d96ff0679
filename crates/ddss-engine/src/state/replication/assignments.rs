//! Decisions of the cluster about replicated segments, and how many of them say that the replica is in sync.

use crate::role::RoleAssignment;
use ddss_core::{NodeId, SegmentId};
use std::collections::HashMap;

/// Decisions about the segments of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    by_segment: HashMap<SegmentId, RoleAssignment>,
    /// Number of segments with a replica in sync, by home.
    in_sync: HashMap<NodeId, usize>,
}

impl Assignments {
    pub(crate) fn get(&self, segment: SegmentId) -> Option<&RoleAssignment> {
        self.by_segment.get(&segment)
    }

    pub(crate) fn insert(&mut self, assignment: RoleAssignment) {
        self.remove(assignment.segment);
        if is_in_sync(&assignment) {
            *self.in_sync.entry(assignment.home).or_default() += 1;
        }
        self.by_segment.insert(assignment.segment, assignment);
    }

    pub(crate) fn remove(&mut self, segment: SegmentId) {
        let removed = self.by_segment.remove(&segment);
        if let Some(known) = removed.filter(is_in_sync)
            && let Some(count) = self.in_sync.get_mut(&known.home)
        {
            *count -= 1;
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &RoleAssignment> {
        self.by_segment.values()
    }

    /// Returns the number of segments with that home whose replicas may take over.
    pub(crate) fn in_sync_at(&self, home: NodeId) -> usize {
        self.in_sync.get(&home).copied().unwrap_or_default()
    }
}

fn is_in_sync(assignment: &RoleAssignment) -> bool {
    assignment.paired && !assignment.vacant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_in_sync_are_counted_by_home() {
        // If this broke, a monitor would show replicas that do not exist, or the count would fall below zero.
        let (one, two) = (NodeId(1), NodeId(2));
        let assignment = |index, home, paired, vacant| RoleAssignment {
            segment: SegmentId::new(one, index, 1),
            home,
            replica: two,
            epoch: 1,
            turn: 0,
            paired,
            vacant,
        };
        let mut all = Assignments::default();
        let counts = |all: &Assignments| (all.in_sync_at(one), all.in_sync_at(two));
        for (change, expected) in [
            (assignment(1, one, false, false), (0, 0)),
            (assignment(1, one, true, false), (1, 0)),
            (assignment(1, one, true, false), (1, 0)),
            (assignment(2, one, true, false), (2, 0)),
            (assignment(2, two, true, false), (1, 1)),
            (assignment(1, one, true, true), (0, 1)),
            (assignment(1, one, true, false), (1, 1)),
        ] {
            all.insert(change);
            assert_eq!(counts(&all), expected, "{change:?}");
        }
        for _ in 0..2 {
            all.remove(SegmentId::new(one, 1, 1));
            assert_eq!(counts(&all), (0, 1));
        }
    }
}
