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

    /// Records the permissions that the home has written; those of a replica are a late copy.
    pub(crate) fn record_permissions(&mut self, node: usize, record: &Record) {
        let home =
            self.raft.assignments.get(&record.known_as).map_or(record.known_as.home(), |assignment| assignment.home);
        if usize::from(home.0) == node + 1 {
            self.checks.permissions.note(self.now_us, record);
        }
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
}
