//! The cluster's word about mirrored segments, as the nodes get it from their Raft group: one order of decisions, told to
//! each node late but in order, and to nobody who is cut off. That group itself is tested elsewhere.

use super::network::Event;
use super::simulator::World;
use ddss_core::engine::{Proposal, ProposalKind, RoleAssignment};
use ddss_core::{NodeId, Record, SegmentId};
use std::collections::BTreeMap;

/// What a node says to the council.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    /// It is there; said at that time.
    Here(u64),
    /// It wants that decided.
    Decide(Proposal),
}

/// What was decided.
#[derive(Clone, Copy, Debug)]
enum News {
    Duty(RoleAssignment),
    Gone(SegmentId),
    Dead(usize),
    Alive(usize),
}

#[derive(Clone, Copy, Debug)]
struct Life {
    heard_us: u64,
    alive: bool,
    run: u64,
}

/// All that was decided.
#[derive(Debug, Default)]
pub(crate) struct Council {
    pub(crate) duties: BTreeMap<SegmentId, RoleAssignment>,
    lives: Vec<Life>,
    news: Vec<News>,
    /// How much of it each node has heard.
    told: Vec<usize>,
}

impl Council {
    pub(crate) fn new(nodes: usize) -> Self {
        let lives = vec![Life { heard_us: 0, alive: true, run: 0 }; nodes];
        Self { lives, told: vec![0; nodes], ..Self::default() }
    }

    /// A node was started anew: it hears everything from the beginning.
    pub(crate) fn forget_told(&mut self, node: usize) {
        self.told[node] = 0;
    }
}

impl World {
    /// How long a home may serve after it said that it is there.
    const HOME_LEASE_US: u64 = 20_000;
    /// Who says nothing for so long is declared dead.
    const DEAD_US: u64 = 30_000;
    /// How often a node says that it is there.
    const BEAT_US: u64 = 3000;

    /// A node says that it is there.
    pub(crate) fn beat(&mut self, node: usize) {
        self.say_to_council(node, Said::Here(self.now_us));
        self.network.at(self.now_us + Self::BEAT_US, Event::Beat { node });
    }

    pub(crate) fn say_to_council(&mut self, node: usize, said: Said) {
        if self.islands[node] == 0 {
            let (later_us, life) = (self.council_delay(), self.nodes[node].life);
            self.network.at(self.now_us + later_us, Event::AtCouncil { node, life, said });
        }
    }

    fn council_delay(&mut self) -> u64 {
        let longest = if self.random.one_in(10) { 4000 } else { 400 };
        1 + self.random.below(longest)
    }

    pub(crate) fn at_council(&mut self, node: usize, life: u64, said: Said) {
        if self.islands[node] != 0 || life < self.council.lives[node].run {
            return;
        }
        self.council.lives[node].run = life;
        match said {
            Said::Here(sent_us) => {
                let known = &mut self.council.lives[node];
                known.heard_us = self.now_us;
                if !std::mem::replace(&mut known.alive, true) {
                    self.publish(News::Alive(node));
                }
                self.find_vacant(node);
                let lease_until_us = (sent_us + Self::HOME_LEASE_US).max(1);
                self.answer_from_council(node, lease_until_us);
            }
            Said::Decide(decision) => self.decided(node, &decision),
        }
    }

    fn answer_from_council(&mut self, node: usize, lease_until_us: u64) {
        let (later_us, life, upto) = (self.council_delay(), self.nodes[node].life, self.council.news.len());
        self.network.at(self.now_us + later_us, Event::FromCouncil { node, life, upto, lease_until_us });
    }

    fn publish(&mut self, news: News) {
        self.council.news.push(news);
        for node in 0..self.plan.nodes {
            self.answer_from_council(node, 0);
        }
    }

    /// What a node that came back without its memory says about what it is the home of.
    fn find_vacant(&mut self, node: usize) {
        let id = NodeId(node as u16 + 1);
        let homes: Vec<RoleAssignment> = self.council.duties.values().filter(|duty| duty.home == id).copied().collect();
        for duty in homes {
            if !duty.vacant && !self.nodes[node].dead && !self.holds(node, duty.segment) {
                let vacant = RoleAssignment { vacant: true, ..duty };
                self.council.duties.insert(duty.segment, vacant);
                self.publish(News::Duty(vacant));
            }
        }
        // What had no mirror goes with its home's memory: the mirror may have been let go after the home died.
        self.find_lost();
    }

    fn decided(&mut self, node: usize, decision: &Proposal) {
        let Proposal { segment, epoch, turn, word, .. } = *decision;
        let here = NodeId(node as u16 + 1);
        let known = self.council.duties.get(&segment).copied();
        if self.lost.contains_key(&segment) {
            return;
        }
        let first =
            RoleAssignment { segment, home: here, mirror: here, epoch: 1, turn: 0, paired: false, vacant: false };
        let duty = known.unwrap_or(first);
        let is_home = duty.home == here && duty.epoch == epoch && turn > duty.turn;
        let new = match word {
            ProposalKind::Pair(mirror) if is_home => {
                RoleAssignment { mirror, turn, paired: true, vacant: false, ..duty }
            }
            ProposalKind::Part if is_home => RoleAssignment { turn, paired: false, vacant: false, ..duty },
            ProposalKind::TakeOver if duty.paired && duty.mirror == here && duty.epoch == epoch => {
                let home = usize::from(duty.home.0) - 1;
                if self.council.lives[home].alive && !duty.vacant {
                    return;
                }
                self.report.takeovers += 1;
                self.trouble_us = self.now_us;
                let newest = self.newest_at(node, segment);
                self.oldest.insert(segment, newest);
                if let Some(record) = self.record_at(node, segment) {
                    self.rights.note(self.now_us, &record);
                }
                let (home, mirror, epoch) = (here, duty.home, epoch + 1);
                RoleAssignment { segment, home, mirror, epoch, turn: 0, paired: false, vacant: false }
            }
            _ => return,
        };
        self.report.pairings += u64::from(new.paired && !duty.paired);
        self.council.duties.insert(segment, new);
        self.publish(News::Duty(new));
    }

    /// Who has been silent for too long is declared dead.
    pub(crate) fn watch_lives(&mut self) {
        for node in 0..self.plan.nodes {
            let life = &mut self.council.lives[node];
            if life.alive && self.now_us > life.heard_us + Self::DEAD_US {
                life.alive = false;
                self.publish(News::Dead(node));
            }
        }
        self.network.at(self.now_us + 1000, Event::Watch);
    }

    /// The council's word arrives.
    pub(crate) fn hear_council(&mut self, node: usize, life: u64, upto: usize, lease_until_us: u64) {
        if self.islands[node] != 0 || self.nodes[node].life != life {
            return;
        }
        let now = self.now(node);
        while self.council.told[node] < upto {
            let news = self.council.news[self.council.told[node]];
            self.council.told[node] += 1;
            let engine = &mut self.nodes[node].engine;
            match news {
                News::Duty(duty) => engine.assign_role(now, &duty),
                News::Gone(segment) => engine.remove_role(now, segment),
                News::Dead(dead) => engine.node_dead(now, NodeId(dead as u16 + 1)),
                News::Alive(alive) => engine.node_alive(NodeId(alive as u16 + 1)),
            }
            self.perform(node);
        }
        if lease_until_us > 0 {
            let uptime_us = self.nodes[node].uptime_us;
            self.nodes[node].engine.lease(now, lease_until_us + uptime_us);
            self.perform(node);
        }
    }

    /// Whether a node has a mirrored segment in its memory, as its home or as its mirror.
    pub(crate) fn holds(&self, node: usize, id: SegmentId) -> bool {
        self.place_at(node, id).is_some()
    }

    fn place_at(&self, node: usize, id: SegmentId) -> Option<u64> {
        self.record_at(node, id).map(|record| record.at)
    }

    fn record_at(&self, node: usize, id: SegmentId) -> Option<Record> {
        let is_it = |slot: &SegmentId| usize::from(slot.home().0) == node + 1;
        self.records.iter().find(|&(slot, record)| is_it(slot) && record.known_as == id).map(|(_, record)| *record)
    }

    /// What a home writes down about permissions holds; what a mirror does is a copy, and late.
    pub(crate) fn note_rights(&mut self, node: usize, record: &Record) {
        let home = self.council.duties.get(&record.known_as).map_or(record.known_as.home(), |duty| duty.home);
        if usize::from(home.0) == node + 1 {
            self.rights.note(self.now_us, record);
        }
    }

    fn newest_at(&self, node: usize, id: SegmentId) -> u64 {
        self.place_at(node, id).map_or(0, |at| self.nodes[node].header(at).state >> 1)
    }

    /// The newest version of a mirrored segment, where its home is now.
    pub(crate) fn newest_mirrored(&self, id: SegmentId) -> u64 {
        let home = self.council.duties.get(&id).map_or(id.home(), |duty| duty.home);
        self.newest_at(usize::from(home.0) - 1, id)
    }

    /// A mirrored segment is gone when its home has lost it and no mirror has all of it.
    pub(crate) fn find_lost(&mut self) {
        let mirrored: Vec<SegmentId> = self.mirrored.iter().copied().collect();
        for id in mirrored {
            let duty = self.council.duties.get(&id).copied();
            let home = duty.map_or(id.home(), |duty| duty.home);
            let mirror = duty.filter(|duty| duty.paired).map(|duty| duty.mirror);
            let keepers = [Some(home), mirror];
            if keepers.into_iter().flatten().any(|node| self.holds(usize::from(node.0) - 1, id)) {
                continue;
            }
            self.report.lost_twice += 1;
            self.mirrored.remove(&id);
            self.lost.entry(id).or_insert(self.now_us);
            self.council.duties.remove(&id);
            self.publish(News::Gone(id));
            if let Some(index) = self.targets.iter().position(|target| target.id == id) {
                self.gone.push(self.targets[index]);
                self.to_make.insert(index);
            }
        }
    }

    /// Some nodes are cut off from the others; the council is with the others.
    pub(crate) fn isolate(&mut self, first: usize, second: Option<usize>, until_us: u64) {
        if self.islands.iter().any(|&island| island != 0) {
            return;
        }
        self.report.isolations += 1;
        self.trouble_us = self.now_us;
        for node in [Some(first), second].into_iter().flatten() {
            self.islands[node] = 1;
        }
        for a in 0..self.plan.nodes {
            for b in a + 1..self.plan.nodes {
                if self.islands[a] != self.islands[b] {
                    self.cut(a, b);
                }
            }
        }
        self.network.at(until_us, Event::Heal);
    }

    pub(crate) fn heal(&mut self) {
        self.islands.fill(0);
    }
}
