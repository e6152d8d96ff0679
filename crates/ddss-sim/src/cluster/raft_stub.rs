//! Stub of the Raft group that decides about replicated segments. Each reachable node gets all decisions, late but in
//! order; isolated nodes get none. The Raft group itself is tested elsewhere.

use super::decisions::{Decision, NodeMessage};
use super::network::Event;
use super::simulator::Simulator;
use ddss_core::{NodeId, Record, SegmentId};
use ddss_engine::{Proposal, ProposalKind, RoleAssignment};

impl Simulator {
    /// Lease of a home after a heartbeat.
    const HOME_LEASE_US: u64 = 20_000;
    /// Silence after which a node is declared dead.
    const DEAD_US: u64 = 30_000;
    /// Interval of the heartbeats.
    const BEAT_US: u64 = 3000;

    /// Sends a heartbeat of a node.
    pub(crate) fn beat(&mut self, node: usize) {
        self.send_to_raft(node, NodeMessage::Here(self.now_us));
        self.network.at(self.now_us + Self::BEAT_US, Event::Beat { node });
    }

    pub(crate) fn send_to_raft(&mut self, node: usize, said: NodeMessage) {
        if self.faults.partitions[node] == 0 {
            let (later_us, life) = (self.raft_delay(), self.nodes[node].life);
            self.network.at(self.now_us + later_us, Event::AtCouncil { node, life, said });
        }
    }

    fn raft_delay(&mut self) -> u64 {
        let longest = if self.random.one_in(10) { 4000 } else { 400 };
        1 + self.random.below(longest)
    }

    pub(crate) fn receive_at_raft(&mut self, node: usize, life: u64, said: NodeMessage) {
        if self.faults.partitions[node] != 0 || life < self.raft.lives[node].run {
            return;
        }
        self.raft.lives[node].run = life;
        match said {
            NodeMessage::Here(sent_us) => {
                let known = &mut self.raft.lives[node];
                known.heard_us = self.now_us;
                if !std::mem::replace(&mut known.alive, true) {
                    self.publish(Decision::Alive(node));
                }
                self.declare_vacant(node);
                let lease_until_us = (sent_us + Self::HOME_LEASE_US).max(1);
                self.reply_from_raft(node, if self.needs_lease(node) { lease_until_us } else { 0 });
            }
            NodeMessage::Decide(decision) => self.apply_decision(node, &decision),
        }
    }

    /// Returns true if a node renews its lease, as daemons do: until it has had one, and while it is the home of a
    /// replicated segment.
    fn needs_lease(&self, node: usize) -> bool {
        let is_home = |assignment: &RoleAssignment| usize::from(assignment.home.0) == node + 1;
        !self.nodes[node].has_lease || self.raft.assignments.values().any(is_home)
    }

    fn reply_from_raft(&mut self, node: usize, lease_until_us: u64) {
        let (later_us, life, upto) = (self.raft_delay(), self.nodes[node].life, self.raft.news.len());
        self.network.at(self.now_us + later_us, Event::FromCouncil { node, life, upto, lease_until_us });
    }

    fn publish(&mut self, news: Decision) {
        self.raft.news.push(news);
        for node in 0..self.plan.nodes {
            self.reply_from_raft(node, 0);
        }
    }

    /// Declares the segments vacant whose home restarted without its memory.
    fn declare_vacant(&mut self, node: usize) {
        let id = NodeId(node as u16 + 1);
        let homes: Vec<RoleAssignment> =
            self.raft.assignments.values().filter(|assignment| assignment.home == id).copied().collect();
        for assignment in homes {
            if !assignment.vacant && !self.nodes[node].dead && !self.holds(node, assignment.segment) {
                let vacant = RoleAssignment { vacant: true, ..assignment };
                self.raft.assignments.insert(assignment.segment, vacant);
                self.publish(Decision::RoleAssigned(vacant));
            }
        }
        // Without a replica the segment is lost with the home's memory: the replica may have been removed after the crash.
        self.find_lost();
    }

    fn apply_decision(&mut self, node: usize, decision: &Proposal) {
        let Proposal { segment, epoch, turn, word, .. } = *decision;
        let here = NodeId(node as u16 + 1);
        let known = self.raft.assignments.get(&segment).copied();
        if self.segments.lost.contains_key(&segment) {
            return;
        }
        let first =
            RoleAssignment { segment, home: here, replica: here, epoch: 1, turn: 0, paired: false, vacant: false };
        let assignment = known.unwrap_or(first);
        let is_home = assignment.home == here && assignment.epoch == epoch && turn > assignment.turn;
        let new = match word {
            ProposalKind::Pair(replica) if is_home => {
                RoleAssignment { replica, turn, paired: true, vacant: false, ..assignment }
            }
            ProposalKind::Part if is_home => RoleAssignment { turn, paired: false, vacant: false, ..assignment },
            ProposalKind::TakeOver if assignment.paired && assignment.replica == here && assignment.epoch == epoch => {
                let home = usize::from(assignment.home.0) - 1;
                if self.raft.lives[home].alive && !assignment.vacant {
                    return;
                }
                self.report.takeovers += 1;
                self.faults.last_us = self.now_us;
                let newest = self.newest_at(node, segment);
                self.segments.oldest.insert(segment, newest);
                if let Some(record) = self.record_at(node, segment) {
                    self.checks.permissions.note(self.now_us, &record);
                }
                let (home, replica, epoch) = (here, assignment.home, epoch + 1);
                RoleAssignment { segment, home, replica, epoch, turn: 0, paired: false, vacant: false }
            }
            _ => return,
        };
        self.report.pairings += u64::from(new.paired && !assignment.paired);
        self.raft.assignments.insert(segment, new);
        self.publish(Decision::RoleAssigned(new));
    }

    /// Declares silent nodes dead.
    pub(crate) fn declare_dead_nodes(&mut self) {
        for node in 0..self.plan.nodes {
            let life = &mut self.raft.lives[node];
            if life.alive && self.now_us > life.heard_us + Self::DEAD_US {
                life.alive = false;
                self.publish(Decision::Dead(node));
            }
        }
        self.network.at(self.now_us + 1000, Event::Watch);
    }

    /// Delivers decisions to a node.
    pub(crate) fn receive_decisions(&mut self, node: usize, life: u64, upto: usize, lease_until_us: u64) {
        if self.faults.partitions[node] != 0 || self.nodes[node].life != life {
            return;
        }
        let now = self.now(node);
        while self.raft.told[node] < upto {
            let news = self.raft.news[self.raft.told[node]];
            self.raft.told[node] += 1;
            let engine = &mut self.nodes[node].engine;
            match news {
                Decision::RoleAssigned(assignment) => engine.assign_role(now, &assignment),
                Decision::Gone(segment) => engine.remove_role(now, segment),
                Decision::Dead(dead) => engine.node_dead(now, NodeId(dead as u16 + 1)),
                Decision::Alive(alive) => engine.node_alive(NodeId(alive as u16 + 1)),
            }
            self.perform(node);
        }
        if lease_until_us > 0 {
            self.nodes[node].has_lease = true;
            let uptime_us = self.nodes[node].uptime_us;
            self.nodes[node].engine.lease(now, lease_until_us + uptime_us);
            self.perform(node);
        }
    }

    /// Returns true if a node stores a replicated segment, as home or as replica.
    pub(crate) fn holds(&self, node: usize, id: SegmentId) -> bool {
        self.place_at(node, id).is_some()
    }

    pub(crate) fn place_at(&self, node: usize, id: SegmentId) -> Option<u64> {
        self.record_at(node, id).map(|record| record.at)
    }

    fn record_at(&self, node: usize, id: SegmentId) -> Option<Record> {
        let is_it = |slot: &SegmentId| usize::from(slot.home().0) == node + 1;
        self.segments
            .records
            .iter()
            .find(|&(slot, record)| is_it(slot) && record.known_as == id)
            .map(|(_, record)| *record)
    }

    /// Records the permissions that the home has written; those of a replica are a late copy.
    pub(crate) fn record_permissions(&mut self, node: usize, record: &Record) {
        let home =
            self.raft.assignments.get(&record.known_as).map_or(record.known_as.home(), |assignment| assignment.home);
        if usize::from(home.0) == node + 1 {
            self.checks.permissions.note(self.now_us, record);
        }
    }

    fn newest_at(&self, node: usize, id: SegmentId) -> u64 {
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

    /// Finds lost segments: the home has lost its memory and no replica is complete.
    pub(crate) fn find_lost(&mut self) {
        let replicated: Vec<SegmentId> = self.segments.replicated.iter().copied().collect();
        for id in replicated {
            let assignment = self.raft.assignments.get(&id).copied();
            let home = assignment.map_or(id.home(), |assignment| assignment.home);
            let replica = assignment.filter(|assignment| assignment.paired).map(|assignment| assignment.replica);
            let keepers = [Some(home), replica];
            if keepers.into_iter().flatten().any(|node| self.holds(usize::from(node.0) - 1, id)) {
                continue;
            }
            self.report.lost_twice += 1;
            self.segments.replicated.remove(&id);
            self.segments.lost.entry(id).or_insert(self.now_us);
            self.raft.assignments.remove(&id);
            self.publish(Decision::Gone(id));
            if let Some(index) = self.segments.targets.iter().position(|target| target.id == id) {
                self.segments.gone.push(self.segments.targets[index]);
                self.segments.to_allocate.insert(index);
            }
        }
    }

    /// Separates some nodes from the others and from the Raft stub.
    pub(crate) fn isolate(&mut self, first: usize, second: Option<usize>, until_us: u64) {
        if self.faults.partitions.iter().any(|&island| island != 0) {
            return;
        }
        self.report.isolations += 1;
        self.faults.last_us = self.now_us;
        for node in [Some(first), second].into_iter().flatten() {
            self.faults.partitions[node] = 1;
        }
        for a in 0..self.plan.nodes {
            for b in a + 1..self.plan.nodes {
                if self.faults.partitions[a] != self.faults.partitions[b] {
                    self.cut(a, b);
                }
            }
        }
        self.network.at(until_us, Event::Heal);
    }

    pub(crate) fn heal(&mut self) {
        self.faults.partitions.fill(0);
    }
}
