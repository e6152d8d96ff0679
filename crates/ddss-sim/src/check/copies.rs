//! Copies: when a put is acknowledged, both nodes of a segment that was in sync at the time of the call have it.

use crate::cluster::simulator::Simulator;
use crate::load::calls::{Kind, PendingCall};
use ddss_core::NodeId;

impl Simulator {
    /// Time after a fault for which a home may have lost its replica.
    const PARTING_TIME_US: u64 = 100_000;

    /// Checks that both nodes have a change that is acknowledged now. After faults and changes of permissions a home may
    /// have gone on without its replica.
    pub(crate) fn check_copies(&mut self, asked: &PendingCall, version: u64) {
        let changes = asked.mark.is_some() || asked.adds() || matches!(asked.kind, Kind::ChangeEntry(..));
        let Some(before) = asked.pairing.filter(|_| changes) else { return };
        let had_fault = self.plan.faults && self.faults.last_us + Self::PARTING_TIME_US >= asked.began_us;
        let target = asked.target;
        if had_fault || !self.segments.replicated.contains(&target.id) {
            return;
        }
        if self.pairing(target.id) != Some(before) {
            if !self.plan.changes_permissions && !self.plan.faults {
                self.violation(format!("a put was acknowledged after its home parted from its replica: {asked:?}"));
            }
            return;
        }
        for node in [before.home, before.replica] {
            let found = self.version_at(usize::from(node.0) - 1, &target);
            if found < version {
                self.violation(format!("version {version} was acknowledged, and {node} has {found}: {asked:?}"));
            }
        }
        self.report.copies_checked += 1;
    }

    /// Counts a large put that its replica has refused; the answer names the replica's node.
    pub(crate) fn note_refused_put(&mut self, asked: &PendingCall, node: u64) {
        let nodes = asked.pairing.map(|pairing| [pairing.home, pairing.replica]);
        if nodes.is_some_and(|nodes| !nodes.contains(&NodeId(node as u16))) && !self.plan.faults {
            self.violation(format!("node {node} is said to have no room, and has no copy: {asked:?}"));
        }
        self.report.large_puts_refused += 1;
    }
}
