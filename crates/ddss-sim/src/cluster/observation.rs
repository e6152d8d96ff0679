//! Observations of the simulated cluster: times, places and versions of segments, and violations.

use super::node::Node;
use super::simulator::Simulator;
use crate::load::calls::Target;
use crate::random::Random;
use ddss_core::{Header, NodeId, Record, SegmentId, TableLayout};
use ddss_engine::{Now, RoleAssignment};

impl Simulator {
    pub(crate) fn violation(&mut self, what: String) {
        self.report.violations.push(what);
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        (1..=self.plan.nodes as u16).map(NodeId).collect()
    }

    pub(crate) fn trace(&mut self, value: u64) {
        self.report.trace = Random::new(self.report.trace ^ value).word();
    }

    pub(crate) fn now(&self, node: usize) -> Now {
        let Node { skew_us, uptime_us, .. } = self.nodes[node];
        Now { steady_us: self.now_us + uptime_us, wall_us: self.now_us + skew_us }
    }

    /// Returns the newest version in the memory of a segment's home.
    pub(crate) fn newest(&self, target: &Target) -> u64 {
        let id = target.id;
        if let Some(row) = target.row {
            let layout = TableLayout::new(target.length as u32).expect("a table has rows");
            let place = layout.record(row);
            let at = match self.segments.replicated.contains(&id) {
                true => self.home_of_replicated(id),
                false => self.segments.header_locations.get(&id).copied(),
            };
            return at.map_or(0, |(node, at)| self.nodes[node].record(place.of_segment(at).header).0 >> 1);
        }
        if self.segments.replicated.contains(&id) {
            return self.newest_replicated(id);
        }
        self.segments.header_locations.get(&id).map_or(0, |&(node, at)| self.nodes[node].header(at).state >> 1)
    }

    /// Returns true if a segment may be lost or released.
    pub(crate) fn is_gone(&self, id: SegmentId) -> bool {
        self.segments.erased.contains(&id) || self.segments.lost.contains_key(&id)
    }

    /// Returns true if a node stores a replicated segment, as home or as replica.
    pub(crate) fn holds(&self, node: usize, id: SegmentId) -> bool {
        self.place_at(node, id).is_some()
    }

    pub(crate) fn place_at(&self, node: usize, id: SegmentId) -> Option<u64> {
        self.record_at(node, id).map(|record| record.at)
    }

    pub(crate) fn record_at(&self, node: usize, id: SegmentId) -> Option<Record> {
        let is_it = |slot: &SegmentId| usize::from(slot.home().0) == node + 1;
        self.segments
            .records
            .iter()
            .find(|&(slot, record)| is_it(slot) && record.known_as == id)
            .map(|(_, record)| *record)
    }

    pub(crate) fn newest_at(&self, node: usize, id: SegmentId) -> u64 {
        self.place_at(node, id).map_or(0, |at| self.nodes[node].header(at).state >> 1)
    }

    /// Returns the present home of a replicated segment, and its place there.
    pub(crate) fn home_of_replicated(&self, id: SegmentId) -> Option<(usize, u64)> {
        let home = self.raft.assignments.get(&id).map_or(id.home(), |assignment| assignment.home);
        let node = usize::from(home.0) - 1;
        Some((node, self.place_at(node, id)?))
    }

    /// Returns the newest version of a replicated segment at its present home.
    pub(crate) fn newest_replicated(&self, id: SegmentId) -> u64 {
        self.home_of_replicated(id).map_or(0, |(node, at)| self.nodes[node].header(at).state >> 1)
    }

    /// Returns the newest decision about a segment, if its home and its replica are in sync.
    pub(crate) fn pairing(&self, id: SegmentId) -> Option<RoleAssignment> {
        self.raft.assignments.get(&id).filter(|assignment| assignment.paired && !assignment.vacant).copied()
    }

    /// Returns the newest version in a node's memory.
    pub(crate) fn version_at(&self, node: usize, target: &Target) -> u64 {
        let Some(at) = self.place_at(node, target.id) else { return 0 };
        let Some(row) = target.row else { return self.nodes[node].header(at).state >> 1 };
        let layout = TableLayout::new(target.length as u32).expect("a table has rows");
        self.nodes[node].record(layout.record(row).of_segment(at).header).0 >> 1
    }

    /// Checks that the counter lies between the certain and the possible additions.
    pub(crate) fn check_counter(&mut self) {
        let Some(&(node, at)) = self.segments.header_locations.get(&self.segments.targets[0].id) else { return };
        if self.nodes[node].dead {
            return;
        }
        let word = self.nodes[node].word(at + Header::DATA_OFFSET);
        let (sure, maybe) = (self.checks.additions.len() as u64, self.report.additions_unknown);
        let open = self.nodes.iter().flat_map(|node| &node.clients).filter_map(|client| client.asked.as_ref());
        let open = open.filter(|asked| asked.adds()).count() as u64;
        if word < sure || word > sure + maybe + open {
            self.violation(format!("the counter is {word} after {sure} additions and {maybe} unsure ones"));
        }
    }

    #[cfg(feature = "planted")]
    pub(crate) fn plant(&mut self) {
        for node in &mut self.nodes {
            node.engine.plant(self.plan.bug);
        }
    }

    #[cfg(not(feature = "planted"))]
    pub(crate) fn plant(&mut self) {}
}
