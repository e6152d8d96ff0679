//! Liveness: after the last fault each replicated segment is in sync again, if any node has room for its replica.

use crate::cluster::simulator::Simulator;
use ddss_core::{NodeId, SegmentId};

impl Simulator {
    /// Maximum time after the last fault for restarts, timeouts, refusals and resyncs.
    const RESYNC_TIME_MAX_US: u64 = 3_000_000;

    /// Returns the node without room for replicas in this run, if there is one.
    pub(crate) fn full_node(seed: u64, nodes: usize) -> Option<usize> {
        seed.is_multiple_of(3).then_some((seed / 3 % nodes as u64) as usize)
    }

    /// Ends all faults and runs until each replicated segment is in sync, or until the time limit.
    pub(crate) fn restore_redundancy(&mut self) {
        self.faults.have_ended = true;
        self.heal();
        let end_us = self.now_us + Self::RESYNC_TIME_MAX_US;
        let mut looked_us = 0;
        while self.now_us < end_us {
            if looked_us != self.now_us / 1000 {
                looked_us = self.now_us / 1000;
                if self.nodes.iter().all(|node| !node.dead) && self.segments_without_replica().is_empty() {
                    return;
                }
            }
            if !self.step() {
                break;
            }
        }
        for id in self.segments_without_replica() {
            let assignment = self.raft.assignments.get(&id).copied();
            let full = self.faults.full_node.map(|node| node + 1);
            let nodes = 0..self.plan.nodes;
            let holders: Vec<usize> = nodes.filter(|&node| self.holds(node, id)).map(|node| node + 1).collect();
            self.violation(format!(
                "segment {id} is still not in sync {} ms after the last fault: {assignment:?}, on nodes {holders:?}, full {full:?}",
                Self::RESYNC_TIME_MAX_US / 1000
            ));
        }
    }

    /// Returns the replicated segments on one node only, although another node has room.
    fn segments_without_replica(&self) -> Vec<SegmentId> {
        let index = |node: NodeId| usize::from(node.0) - 1;
        let is_redundant = |id: SegmentId| {
            let assignment =
                self.raft.assignments.get(&id).filter(|assignment| assignment.paired && !assignment.vacant);
            assignment.is_some_and(|assignment| {
                [assignment.home, assignment.replica]
                    .into_iter()
                    .all(|node| !self.nodes[index(node)].dead && self.holds(index(node), id))
            })
        };
        let can_be = |id: SegmentId| {
            let home = index(self.raft.assignments.get(&id).map_or(id.home(), |assignment| assignment.home));
            (0..self.plan.nodes).any(|node| node != home && self.faults.full_node != Some(node))
        };
        self.segments.replicated.iter().copied().filter(|&id| !is_redundant(id) && can_be(id)).collect()
    }
}
