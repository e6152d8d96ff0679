//! One run of workers.

use super::world::{Event, Fault, UnitCounts, UnitsPlan, World};
use crate::random::Random;
use ddss_river_core::{ListId, PutResult, UnitAction, UnitEvent, UnitState, WorkerId};

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
        world.agenda.add(0, Event::Search(id));
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
            Event::Reply(id, _) | Event::Worked(id) | Event::Search(id) => Some(*id),
            Event::Renew(id, _) | Event::Renewed(id, _) | Event::CheckClaim(id) => Some(*id),
            Event::Call(..) | Event::Renewal(..) | Event::Resume(_) | Event::Fault(_) => None,
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
            Event::Call(..) | Event::Renewal(..) if self.agenda.now_us < self.away_until_us => {
                // A call waits for the table, and may come in another order then.
                let late_us = self.random.below(2 * self.plan.latency_us);
                self.agenda.add_at(self.away_until_us + late_us, event);
            }
            Event::Call(caller, by, call, is_lost) => self.call(caller, by, call, is_lost),
            Event::Reply(id, event) => self.worker_event(id, event),
            Event::Worked(id) => self.end_unit(id),
            Event::Search(id) => self.search(id),
            Event::Renew(id, number) => self.renew(id, number),
            Event::Renewal(id, number, claim, is_lost) => self.execute_renewal(id, number, claim, is_lost),
            Event::Renewed(id, result) => self.end_renewal(id, result),
            Event::CheckClaim(id) => self.check_claim(id),
            Event::Resume(id) => {
                let worker = &mut self.workers[id as usize];
                worker.is_stopped = false;
                std::mem::take(&mut worker.deferred).into_iter().for_each(|event| self.agenda.add(0, event));
            }
            Event::Fault(fault) => self.inject(fault),
        }
    }

    /// Looks for a unit under a new number, in the lists as they are now.
    fn search(&mut self, id: u32) {
        self.numbers += 1;
        let (number, counts, reopened) = (WorkerId(self.numbers), self.table.counts.clone(), self.table.reopened);
        let worker = &mut self.workers[id as usize];
        if worker.has_ended {
            return;
        }
        worker.number = number;
        worker.engine.renumber(number);
        for (list, count) in counts.iter().enumerate() {
            worker.engine.grow(ListId(list as u16), *count).expect("few units");
        }
        worker.counts = counts;
        if std::mem::replace(&mut worker.reopened, reopened) != reopened {
            worker.engine.reopen();
        }
        let mut out = Vec::new();
        worker.engine.claim(&mut out);
        self.execute(id, out);
    }

    fn worker_event(&mut self, id: u32, event: UnitEvent) {
        let now_us = self.agenda.now_us;
        let worker = &mut self.workers[id as usize];
        // Behind the read the table could be written: its reply says so.
        if let (UnitEvent::Got(row, version), Some(unit)) = (event, worker.reads.take()) {
            match row.state {
                UnitState::Claimed(dead) if worker.leases.observe(unit, version, now_us) => {
                    worker.engine.handle(UnitEvent::Dead(dead), &mut Vec::new());
                }
                UnitState::Claimed(_) => {}
                UnitState::Open | UnitState::Done(_) | UnitState::Failed => worker.leases.forget(unit),
            }
        }
        let mut out = Vec::new();
        worker.engine.handle(event, &mut out);
        self.execute(id, out);
    }

    pub(crate) fn execute(&mut self, id: u32, actions: Vec<UnitAction>) {
        for action in actions {
            match action {
                UnitAction::Add(_) | UnitAction::Put { .. } | UnitAction::Get(_) => {
                    if let UnitAction::Get(unit) = action {
                        self.workers[id as usize].reads = Some(unit);
                    }
                    self.send(id, action);
                }
                UnitAction::Claimed(claim) => {
                    self.counts.claims += 1;
                    if self.plan.poison == Some(claim.unit) {
                        self.agenda.add(0, Event::Fault(Fault::Kill(id)));
                    } else {
                        self.begin(id, claim);
                    }
                }
                UnitAction::Finished(_) => {
                    self.counts.finished += 1;
                    self.agenda.add(0, Event::Search(id));
                }
                UnitAction::Refused(_) => {
                    self.counts.refused += 1;
                    self.agenda.add(0, Event::Search(id));
                }
                UnitAction::Wait => {
                    let after_us = self.plan.look_us + self.random.below(self.plan.latency_us);
                    self.agenda.add(after_us, Event::Search(id));
                }
                UnitAction::Ended => self.end_worker(id),
            }
        }
    }

    fn end_worker(&mut self, id: u32) {
        let worker = &mut self.workers[id as usize];
        let knows_all = worker.reopened == self.table.reopened;
        if !std::mem::replace(&mut worker.has_ended, true)
            && knows_all
            && let Some(unit) = self.table.first_open(&worker.counts)
        {
            self.table.violations.push(format!("end: worker {id} ended before {unit:?}"));
        }
    }

    /// Sends a call, whose outcome may stay unknown: then it is executed later, or not at all.
    fn send(&mut self, caller: u32, call: UnitAction) {
        let is_lost = !matches!(call, UnitAction::Get(_)) && self.is_lost();
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
        let by = self.workers[caller as usize].number;
        self.agenda.add(latency_us + late_us, Event::Call(caller, by, call, is_lost));
    }

    fn call(&mut self, caller: u32, by: WorkerId, call: UnitAction, is_lost: bool) {
        let reply = self.table.execute(by, call, self.agenda.now_us);
        if !is_lost {
            let latency_us = self.latency_us();
            self.agenda.add(latency_us, Event::Reply(caller, reply));
        }
    }

    /// Checks that every unit is settled, and every worker has ended.
    fn check_end(&mut self) {
        if !self.table.violations.is_empty() {
            return;
        }
        if let Some(unit) = self.table.first_open(&self.table.counts) {
            self.table.violations.push(format!("lost: {unit:?} is neither done nor failed"));
        }
        let open = self.workers.iter().position(|worker| !worker.is_killed && !worker.has_ended);
        self.table.violations.extend(open.map(|id| format!("end: worker {id} did not end")));
    }
}
