//! Faults, and what users do meanwhile.

use super::world::{Event, Fault, World};

/// Workers of a run at most. A few die by faults, and three by a unit that ends its workers each time that it is opened.
const WORKERS_MAX: usize = 64;

impl World {
    pub(crate) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(id) => {
                let Some(worker) = self.workers.get_mut(id as usize).filter(|worker| !worker.is_killed) else { return };
                worker.is_killed = true;
                self.counts.deaths += 1;
                self.start_worker();
            }
            Fault::Stop(id, for_us) => {
                let Some(worker) = self.workers.get_mut(id as usize) else { return };
                if worker.is_killed || worker.is_stopped {
                    return;
                }
                worker.is_stopped = true;
                self.agenda.add(for_us, Event::Resume(id));
            }
            Fault::Outage(for_us) => {
                let now_us = self.agenda.now_us;
                // Two that touch are one.
                if now_us > self.away_until_us {
                    self.away_until_us = now_us + for_us;
                    self.table.add_outage(now_us, self.away_until_us);
                    self.counts.outages += 1;
                }
            }
            Fault::Add(list, units) => {
                self.table.grow(list, units);
                self.start_worker();
            }
            Fault::Retry => {
                self.table.reopen();
                self.start_worker();
            }
        }
    }

    /// Starts a worker: in place of one that is gone, or for units that others may not look at any more.
    fn start_worker(&mut self) {
        if self.workers.len() == WORKERS_MAX {
            return self.table.violations.push(format!("end: {WORKERS_MAX} workers were not enough"));
        }
        let (id, after_us) = (self.add_worker(), self.random.below(1_000));
        self.agenda.add(after_us, Event::Search(id));
    }
}
