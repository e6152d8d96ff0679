//! Program of a worker: it renews its claim until the end of its unit, as `ddss-river` does.

use super::world::{Event, RENEW_US, World};
use ddss_river_core::{Claim, PutResult, UnitAction, WorkerId};

impl World {
    /// Begins a claimed unit.
    pub(crate) fn begin(&mut self, id: u32, claim: Claim) {
        let number = self.workers[id as usize].number;
        self.workers[id as usize].claim = Some(claim);
        self.agenda.add(RENEW_US, Event::Renew(id, number));
        let after_us = 1 + self.random.below(2 * self.plan.work_us);
        self.agenda.add(after_us, Event::Worked(id));
    }

    /// Renews a claim, unless it has ended.
    pub(crate) fn renew(&mut self, id: u32, number: WorkerId) {
        let worker = &mut self.workers[id as usize];
        let Some(claim) = worker.claim.filter(|_| worker.number == number) else { return };
        worker.is_renewing = true;
        let (latency_us, is_lost) = (self.latency_us(), self.is_lost());
        if self.agenda.now_us < self.away_until_us {
            // The table is away: the next renewal follows.
            return self.agenda.add(latency_us, Event::Renewed(id, PutResult::Unknown));
        }
        if is_lost {
            self.agenda.add(latency_us, Event::Renewed(id, PutResult::Unknown));
        }
        if !is_lost || !self.random.one_in(3) {
            let late_us = if is_lost { self.random.below(4 * self.plan.latency_us) } else { 0 };
            self.agenda.add(latency_us + late_us, Event::Renewal(id, number, claim, is_lost));
        }
    }

    /// Executes a renewal at the table.
    pub(crate) fn execute_renewal(&mut self, id: u32, number: WorkerId, claim: Claim, is_lost: bool) {
        let result = self.table.put(number, claim.unit, &claim.row, claim.version, self.agenda.now_us);
        if !is_lost {
            let latency_us = self.latency_us();
            self.agenda.add(latency_us, Event::Renewed(id, result));
        }
    }

    /// Ends a renewal.
    pub(crate) fn end_renewal(&mut self, id: u32, result: PutResult) {
        match result {
            PutResult::Done(version) => {
                self.counts.renewals += 1;
                self.set_version(id, version);
                self.go_on(id);
            }
            PutResult::Conflict | PutResult::Unknown => {
                let latency_us = self.latency_us();
                self.agenda.add(latency_us, Event::CheckClaim(id));
            }
        }
    }

    /// Reads the row of a claim: an earlier renewal of unknown outcome may have come to its end.
    pub(crate) fn check_claim(&mut self, id: u32) {
        let claim = self.workers[id as usize].claim.expect("a claim that is renewed");
        if self.agenda.now_us >= self.away_until_us {
            let (row, version) = self.table.row(claim.unit);
            if row == claim.row {
                self.set_version(id, version);
            }
        }
        self.go_on(id);
    }

    fn set_version(&mut self, id: u32, version: u64) {
        let worker = &mut self.workers[id as usize];
        worker.engine.renewed(version);
        worker.claim.as_mut().expect("a claim that is renewed").version = version;
    }

    /// Goes on behind a renewal.
    fn go_on(&mut self, id: u32) {
        let worker = &mut self.workers[id as usize];
        worker.is_renewing = false;
        if worker.has_worked {
            return self.end_unit(id);
        }
        let number = worker.number;
        self.agenda.add(RENEW_US, Event::Renew(id, number));
    }

    /// Ends the unit of a worker, behind a renewal that is under way.
    pub(crate) fn end_unit(&mut self, id: u32) {
        let (gives_up, is_fault) =
            (self.plan.give_up_one_in > 0 && self.random.one_in(self.plan.give_up_one_in), self.random.one_in(2));
        let worker = &mut self.workers[id as usize];
        worker.has_worked = worker.is_renewing;
        if worker.is_renewing {
            return;
        }
        worker.claim = None;
        let mut out: Vec<UnitAction> = Vec::new();
        match (gives_up, is_fault) {
            (false, _) => worker.engine.finish(8, &mut out),
            (true, true) => worker.engine.fail(0, &mut out),
            (true, false) => worker.engine.release(&mut out),
        }
        self.execute(id, out);
    }
}
