//! Deaths, stops, and what the coordinator makes of them.

use super::event::Event;
use super::plan::{Fault, LEASE_US, Member, STALL_US};
use super::world::World;
use ddss_river_core::{ConsumerEvent, ConsumerId, ProducerEvent, ProducerId};

/// Consumers of a run at most. A few die by faults, and three by a message that ends its consumers.
const CONSUMERS_MAX: usize = 32;

impl World {
    pub(crate) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(producer, consumer) => {
                let (one, other) = (Member::Producer(producer), Member::Consumer(consumer));
                if self.has(one) && self.has(other) && self.link(one, other).is_intact {
                    self.counts.cuts += 1;
                    self.cut(one, other);
                }
            }
            Fault::Kill(member) => self.kill(member),
            Fault::Stop(member, for_us) => self.stop(member, for_us),
            Fault::Withdraw(consumer, for_us) => self.withdraw(consumer, for_us),
        }
    }

    fn kill(&mut self, member: Member) {
        if !self.has(member) || !self.life(member).is_alive() {
            return;
        }
        self.counts.kills += 1;
        let life = self.life(member);
        life.is_killed = true;
        life.deferred.clear();
        for peer in self.peers(member) {
            // What has left arrives, and the end of the connection behind it.
            let earliest_us = self.agenda.now_us + self.random.below(800);
            let link = self.link(member, peer);
            let (has, epoch) = (link.has(peer), link.epoch);
            link.is_intact = false;
            link.drop_side(member);
            let at_us = link.arrival_us(peer, earliest_us);
            if has {
                self.agenda.add_at(at_us, Event::NoticeLoss { at: peer, peer: member, epoch });
            }
        }
        self.agenda.add(LEASE_US, Event::Declare(member));
        if let Member::Consumer(id) = member {
            self.replace(id);
        }
    }

    /// Starts a consumer in place of one that is gone.
    fn replace(&mut self, id: u16) {
        if self.consumers.len() == CONSUMERS_MAX {
            return self.checker.complain(format!("end: {CONSUMERS_MAX} consumers were not enough"));
        }
        let service_us = self.consumers[usize::from(id)].service_us;
        let successor = self.add_consumer(service_us, 1);
        self.join(successor);
        let after_us = self.random.below(3_000);
        self.agenda.add(after_us, Event::Start(successor));
    }

    /// Introduces a consumer to the producers, which connect to it later.
    pub(crate) fn join(&mut self, consumer: u16) {
        for producer in 0..self.producers.len() as u16 {
            if self.plan.is_static && producer != consumer {
                continue;
            }
            self.links.entry((producer, consumer)).or_default();
            let joined = ConsumerEvent::Joined(ProducerId(producer));
            self.consumer_event(consumer, joined);
            if self.producers[usize::from(producer)].life.is_dead {
                self.consumer_event(consumer, ConsumerEvent::Dead(ProducerId(producer)));
            } else {
                let after_us = if self.plan.has_jitter { self.random.below(300) } else { 0 };
                self.agenda.add(after_us, Event::Connect(producer, consumer));
            }
        }
    }

    fn stop(&mut self, member: Member, for_us: u64) {
        if !self.has(member) || !self.life(member).can_connect() {
            return;
        }
        self.counts.stops += 1;
        self.life(member).is_stopped = true;
        if for_us > STALL_US {
            self.agenda.add(STALL_US, Event::Stall(member));
        }
        if for_us > LEASE_US {
            self.agenda.add(LEASE_US, Event::Declare(member));
        }
        self.agenda.add(for_us, Event::Resume(member));
    }

    /// The peers of a stopped process end their connections.
    pub(crate) fn stall(&mut self, member: Member) {
        for peer in self.peers(member) {
            if self.link(member, peer).is_intact {
                self.cut(member, peer);
            }
        }
    }

    pub(crate) fn resume(&mut self, member: Member) {
        let life = self.life(member);
        life.is_stopped = false;
        for event in std::mem::take(&mut life.deferred) {
            self.agenda.add(0, event);
        }
    }

    /// Declares a process dead: its peers learn it, and the process itself if it still runs.
    pub(crate) fn declare(&mut self, member: Member) {
        if self.life(member).is_dead {
            return;
        }
        self.life(member).is_dead = true;
        for peer in self.peers(member) {
            self.link(member, peer).cut();
            let after_us = self.random.below(500);
            self.agenda.add(after_us, Event::NoticeDeath { at: peer, of: member });
        }
        if self.life(member).is_alive() {
            self.counts.fenced += 1;
            self.agenda.add(0, Event::NoticeFence(member));
            if let Member::Consumer(id) = member {
                self.replace(id);
            }
        }
    }

    pub(crate) fn notice_death(&mut self, at: Member, of: Member) {
        self.link(at, of).drop_side(at);
        match (at, of) {
            (Member::Producer(id), Member::Consumer(of)) => {
                self.producer_event(id, ProducerEvent::Dead(ConsumerId(of)));
            }
            (Member::Consumer(id), Member::Producer(of)) => {
                // No other process has its messages.
                let held = |world: &Self| world.consumers[usize::from(id)].engine.held();
                let before = held(self);
                self.consumer_event(id, ConsumerEvent::Dead(ProducerId(of)));
                if held(self) != before {
                    self.checker.complain(format!("lost: consumer {id} dropped messages of the dead producer {of}"));
                }
            }
            _ => unreachable!("peers"),
        }
    }

    /// A process learns that it was declared dead. A producer ends.
    pub(crate) fn notice_fence(&mut self, member: Member) {
        for peer in self.peers(member) {
            self.link(member, peer).drop_side(member);
        }
        match member {
            Member::Producer(_) => self.life(member).is_killed = true,
            Member::Consumer(id) => self.consumer_event(id, ConsumerEvent::Fenced),
        }
    }

    fn withdraw(&mut self, id: u16, for_us: u64) {
        let member = Member::Consumer(id);
        if !self.has(member) || !self.life(member).can_connect() {
            return;
        }
        let process = &mut self.consumers[usize::from(id)];
        if !process.has_started || process.has_ended {
            return;
        }
        self.counts.withdrawals += 1;
        process.has_started = false;
        for taken in process.in_work.drain(..) {
            self.checker.on_rejected(taken.producer.0, taken.header.attempt.index);
        }
        let mut out = Vec::new();
        process.engine.withdraw(&mut out);
        self.execute_consumer(id, out);
        self.agenda.add(for_us, Event::Start(id));
    }
}
