//! One run of workers.

use super::world::{Event, Fault, LEASE_US, UnitCounts, UnitsPlan, World};
use crate::random::Random;
use ddss_river_core::{PutResult, UnitAction, UnitEvent, WorkerId};

/// Workers of a run at most. A few die by faults, and three by a unit that ends its workers.
const WORKERS_MAX: usize = 32;
/// Events of a run at most.
const EVENTS_MAX: u64 = 500_000;

/// Result of one run.
pub(crate) struct UnitsResult {
    pub(crate) counts: UnitCounts,
    pub(crate) trace: u64,
    pub(crate) violations: Vec<String>,
}

/// Runs a plan to its end.
pub(crate) fn run_units(plan: UnitsPlan, random: Random) -> UnitsResult {
    let mut world = World::new(plan, random);
    for _ in 0..world.plan.workers {
        let id = world.add_worker();
        world.agenda.add(0, Event::Start(id));
    }
    for (at_us, fault) in world.plan.faults.clone() {
        world.agenda.add_at(at_us, Event::Fault(fault));
    }
    let (mut trace, mut events) = (0_u64, 0);
    while let Some(event) = world.agenda.next() {
        events += 1;
        trace = (trace.rotate_left(5) ^ world.agenda.now_us).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        world.handle(event);
        if !world.table.violations.is_empty() || events > EVENTS_MAX {
            break;
        }
    }
    world.check_end();
    world.counts.failed = world.table.failed();
    UnitsResult { counts: world.counts, trace, violations: world.table.violations }
}

impl World {
    fn handle(&mut self, event: Event) {
        let target = match &event {
            Event::Reply(id, _) | Event::Worked(id) | Event::Changed(id) | Event::Start(id) => Some(*id),
            Event::Fence(id) | Event::NoticeDeath(id, _) => Some(*id),
            _ => None,
        };
        if let Some(worker) = target.map(|id| &mut self.workers[id as usize]) {
            if worker.is_killed {
                return;
            }
            if worker.is_stopped {
                return worker.deferred.push(event);
            }
        }
        match event {
            Event::Call(caller, call, is_lost) => self.call(caller, call, is_lost),
            Event::Reply(id, event) => self.worker_event(id, event),
            Event::NoticeDeath(id, dead) => self.worker_event(id, UnitEvent::Dead(dead)),
            Event::Worked(id) => {
                let mut out = Vec::new();
                self.workers[id as usize].engine.finish(8, &mut out);
                self.execute(id, out);
            }
            Event::Changed(id) => {
                self.workers[id as usize].seen = self.table.changes;
                self.worker_event(id, UnitEvent::Changed);
            }
            Event::Start(id) => self.claim(id),
            Event::Declare(id) => self.declare(id),
            Event::Fence(id) => {
                self.workers[id as usize].has_ended = true;
                self.worker_event(id, UnitEvent::Fenced);
            }
            Event::Resume(id) => {
                let worker = &mut self.workers[id as usize];
                worker.is_stopped = false;
                std::mem::take(&mut worker.deferred).into_iter().for_each(|event| self.agenda.add(0, event));
            }
            Event::Fault(fault) => self.inject(fault),
        }
    }

    fn latency_us(&mut self) -> u64 {
        1 + self.random.below(2 * self.plan.latency_us)
    }

    fn claim(&mut self, id: u32) {
        let worker = &mut self.workers[id as usize];
        worker.seen = self.table.changes;
        let mut out = Vec::new();
        worker.engine.claim(&mut out);
        self.execute(id, out);
    }

    fn worker_event(&mut self, id: u32, event: UnitEvent) {
        let mut out = Vec::new();
        self.workers[id as usize].engine.handle(event, &mut out);
        self.execute(id, out);
    }

    fn execute(&mut self, id: u32, actions: Vec<UnitAction>) {
        for action in actions {
            match action {
                UnitAction::Add(_) | UnitAction::Put { .. } | UnitAction::Get(_) => {
                    self.send(id, action);
                }
                UnitAction::Claimed(claim) => {
                    self.counts.claims += 1;
                    if self.plan.poison == Some(claim.unit) {
                        self.agenda.add(0, Event::Fault(Fault::Kill(id)));
                    } else {
                        let after_us = 1 + self.random.below(2 * self.plan.work_us);
                        self.agenda.add(after_us, Event::Worked(id));
                    }
                }
                UnitAction::Finished(_) => {
                    self.counts.finished += 1;
                    self.agenda.add(0, Event::Start(id));
                }
                UnitAction::Refused(_) => {
                    self.counts.refused += 1;
                    self.agenda.add(0, Event::Start(id));
                }
                UnitAction::Wait => {
                    let worker = &mut self.workers[id as usize];
                    worker.is_waiting = worker.seen == self.table.changes;
                    if !worker.is_waiting {
                        self.agenda.add(1, Event::Changed(id));
                    }
                }
                UnitAction::Ended => self.end_worker(id),
            }
        }
    }

    fn end_worker(&mut self, id: u32) {
        let worker = &mut self.workers[id as usize];
        if !std::mem::replace(&mut worker.has_ended, true)
            && let Some(unit) = self.table.first_open()
        {
            self.table.violations.push(format!("end: worker {id} ended before {unit:?}"));
        }
    }

    /// Sends a call, whose outcome may stay unknown: then it is executed later, or not at all.
    fn send(&mut self, caller: u32, call: UnitAction) {
        let can_be_lost = !matches!(call, UnitAction::Get(_));
        let is_lost = can_be_lost && self.plan.unknown_one_in > 0 && self.random.one_in(self.plan.unknown_one_in);
        let latency_us = self.latency_us();
        if is_lost {
            let unknown = match call {
                UnitAction::Add(_) => UnitEvent::Added(None),
                _ => UnitEvent::Put(PutResult::Unknown),
            };
            self.agenda.add(latency_us, Event::Reply(caller, unknown));
            if self.random.one_in(3) {
                return;
            }
        }
        let late_us = if is_lost { self.random.below(4 * self.plan.latency_us) } else { 0 };
        self.agenda.add(latency_us + late_us, Event::Call(caller, call, is_lost));
    }

    fn call(&mut self, caller: u32, call: UnitAction, is_lost: bool) {
        let changes = self.table.changes;
        let reply = self.table.execute(call);
        if !is_lost {
            let latency_us = self.latency_us();
            self.agenda.add(latency_us, Event::Reply(caller, reply));
        }
        if self.table.changes != changes {
            for id in 0..self.workers.len() as u32 {
                if std::mem::take(&mut self.workers[id as usize].is_waiting) {
                    let latency_us = self.latency_us();
                    self.agenda.add(latency_us, Event::Changed(id));
                }
            }
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(id) => {
                let Some(worker) = self.workers.get_mut(id as usize).filter(|worker| !worker.is_killed) else { return };
                worker.is_killed = true;
                self.counts.deaths += 1;
                self.agenda.add(LEASE_US, Event::Declare(id));
                self.replace();
            }
            Fault::Stop(id, for_us) => {
                let Some(worker) = self.workers.get_mut(id as usize) else { return };
                if worker.is_killed || worker.is_dead || worker.is_stopped {
                    return;
                }
                worker.is_stopped = true;
                self.agenda.add(for_us, Event::Resume(id));
                if for_us > LEASE_US {
                    self.agenda.add(LEASE_US, Event::Declare(id));
                }
            }
        }
    }

    /// Starts a worker in place of one that is gone.
    fn replace(&mut self) {
        if self.workers.len() == WORKERS_MAX {
            return self.table.violations.push(format!("end: {WORKERS_MAX} workers were not enough"));
        }
        let (id, after_us) = (self.add_worker(), self.random.below(1_000));
        for dead in self.table.dead.clone() {
            self.worker_event(id, UnitEvent::Dead(dead));
        }
        self.agenda.add(after_us, Event::Start(id));
    }

    fn declare(&mut self, id: u32) {
        let worker = &mut self.workers[id as usize];
        if std::mem::replace(&mut worker.is_dead, true) {
            return;
        }
        if !worker.is_killed {
            self.counts.fenced += 1;
            // The worker learns it late: until then it may try to finish its unit.
            let after_us = self.random.below(2_000);
            self.agenda.add(LEASE_US + after_us, Event::Fence(id));
            self.replace();
        }
        self.table.dead.insert(WorkerId(id));
        for other in (0..self.workers.len() as u32).filter(|other| *other != id) {
            let after_us = self.random.below(500);
            self.agenda.add(after_us, Event::NoticeDeath(other, WorkerId(id)));
        }
    }

    /// Checks that every unit is settled, and every worker has ended.
    fn check_end(&mut self) {
        if !self.table.violations.is_empty() {
            return;
        }
        if let Some(unit) = self.table.first_open() {
            self.table.violations.push(format!("lost: {unit:?} is neither done nor failed"));
        }
        let open = self.workers.iter().position(|worker| !worker.is_killed && !worker.has_ended);
        self.table.violations.extend(open.map(|id| format!("end: worker {id} did not end")));
    }
}
