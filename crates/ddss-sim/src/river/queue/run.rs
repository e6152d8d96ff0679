//! One run of a queue.

use super::event::Event;
use super::plan::{Member, QueuePlan};
use super::world::{QueueCounts, World};
use crate::random::Random;

/// Events of a run at most.
const EVENTS_MAX: u64 = 2_000_000;

/// Result of one run.
pub(crate) struct QueueResult {
    pub(crate) counts: QueueCounts,
    pub(crate) trace: u64,
    pub(crate) violations: Vec<String>,
}

/// Runs a plan to its end.
pub(crate) fn run_queue(plan: QueuePlan, random: Random) -> QueueResult {
    let mut world = World::new(plan, random);
    for sink in world.plan.sinks.clone() {
        let id = world.add_consumer(sink.service_us, sink.workers);
        world.join(id);
        world.agenda.add(sink.start_us, Event::Start(id));
    }
    for id in 0..world.producers.len() as u16 {
        world.run_source(id);
    }
    for (at_us, fault) in world.plan.faults.clone() {
        world.agenda.add_at(at_us, Event::Fault(fault));
    }
    let (mut trace, mut events) = (0_u64, 0);
    while let Some(event) = world.agenda.next() {
        events += 1;
        trace = (trace.rotate_left(5) ^ event.number() ^ world.agenda.now_us << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        world.handle(event);
        if !world.checker.violations.is_empty() || world.is_flow_lost {
            break;
        }
        if events > EVENTS_MAX {
            world.checker.complain("end: the run does not end".to_owned());
        }
    }
    world.check_end();
    world.counts.doubles = world.checker.doubles;
    QueueResult { counts: world.counts, trace, violations: world.checker.violations }
}

impl World {
    fn handle(&mut self, event: Event) {
        if let Some(member) = event.target() {
            let life = self.life(member);
            if life.is_killed {
                return;
            }
            if life.is_stopped {
                return life.deferred.push(event);
            }
        }
        match event {
            Event::Made(producer, place) => self.put(producer, place),
            Event::Start(consumer) => {
                self.consumers[usize::from(consumer)].has_started = true;
                self.run_sink(consumer);
            }
            Event::Processed(consumer, taken) => self.finish(consumer, taken),
            Event::Arrive(transfer) => self.arrive(&transfer),
            Event::NoticeLoss { at, peer, epoch } => self.notice_loss(at, peer, epoch),
            Event::NoticeDeath { at, of } => self.notice_death(at, of),
            Event::NoticeFence(member) => self.notice_fence(member),
            Event::Connect(producer, consumer) => self.connect(producer, consumer),
            Event::Declare(member) => self.declare(member),
            Event::Stall(member) => self.stall(member),
            Event::Resume(member) => self.resume(member),
            Event::Fault(fault) => self.inject(fault),
        }
    }

    /// Checks that everything that can end has ended, and nothing is lost.
    fn check_end(&mut self) {
        if !self.checker.violations.is_empty() || self.is_flow_lost {
            return;
        }
        let living = self.living_producers();
        for &id in &living {
            if !self.producers[usize::from(id)].has_ended {
                self.checker.complain(format!("end: producer {id} did not end"));
            }
        }
        for id in 0..self.consumers.len() as u16 {
            let is_living = self.life(Member::Consumer(id)).is_alive();
            let process = &self.consumers[usize::from(id)];
            if is_living && !process.has_ended && !process.is_fenced {
                self.checker.complain(format!("end: consumer {id} did not end"));
            }
        }
        self.checker.on_end("the run", living.into_iter());
    }
}
