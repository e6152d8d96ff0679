//! What has to come true once faults end: each mirrored segment is in sync again, if any node can take its mirror.

use crate::cluster::network::Event;
use crate::cluster::simulator::World;
use ddss_core::{NodeId, SegmentId};

impl World {
    /// How long the nodes may take after the last fault: restarts, patience, refusals and all copies.
    const REDUNDANT_US: u64 = 3_000_000;

    /// The node that has no room for a mirror in this run; `None`: each node has.
    pub(crate) fn full_node(seed: u64, nodes: usize) -> Option<usize> {
        seed.is_multiple_of(3).then_some((seed / 3 % nodes as u64) as usize)
    }

    /// Whether an event is a fault that no longer happens, since faults have ended.
    pub(crate) fn is_averted(&self, event: &Event) -> bool {
        let is_fault = matches!(
            event,
            Event::Kill { .. } | Event::Cut { .. } | Event::Crash { .. } | Event::Pause { .. } | Event::Isolate { .. }
        );
        self.is_calm && is_fault
    }

    /// Ends all faults and runs on until each mirrored segment is in sync, or for as long as that may take.
    pub(crate) fn restore_redundancy(&mut self) {
        self.is_calm = true;
        self.heal();
        let end_us = self.now_us + Self::REDUNDANT_US;
        let mut looked_us = 0;
        while self.now_us < end_us {
            if looked_us != self.now_us / 1000 {
                looked_us = self.now_us / 1000;
                if self.nodes.iter().all(|node| !node.dead) && self.without_mirror().is_empty() {
                    return;
                }
            }
            if !self.step() {
                break;
            }
        }
        for id in self.without_mirror() {
            let duty = self.council.duties.get(&id).copied();
            let full = self.full.map(|node| node + 1);
            let nodes = 0..self.plan.nodes;
            let holders: Vec<usize> = nodes.filter(|&node| self.holds(node, id)).map(|node| node + 1).collect();
            self.violation(format!(
                "segment {id} is still not in sync {} ms after the last fault: {duty:?}, on nodes {holders:?}, full {full:?}",
                Self::REDUNDANT_US / 1000
            ));
        }
    }

    /// The mirrored segments that are on one node only although another one could take them.
    fn without_mirror(&self) -> Vec<SegmentId> {
        let index = |node: NodeId| usize::from(node.0) - 1;
        let is_redundant = |id: SegmentId| {
            let duty = self.council.duties.get(&id).filter(|duty| duty.paired && !duty.vacant);
            duty.is_some_and(|duty| {
                [duty.home, duty.mirror]
                    .into_iter()
                    .all(|node| !self.nodes[index(node)].dead && self.holds(index(node), id))
            })
        };
        let can_be = |id: SegmentId| {
            let home = index(self.council.duties.get(&id).map_or(id.home(), |duty| duty.home));
            (0..self.plan.nodes).any(|node| node != home && self.full != Some(node))
        };
        self.mirrored.iter().copied().filter(|&id| !is_redundant(id) && can_be(id)).collect()
    }
}
