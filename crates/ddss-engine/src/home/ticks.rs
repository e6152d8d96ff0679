//! Work of the home that is due at a time: transitions of replicas, leases and deadlines, and sweeps.

use crate::config::Now;
use crate::home::handler::Home;

impl Home<'_> {
    /// Does everything that is due.
    pub(crate) fn tick(&mut self, now: Now) {
        self.tick_replication(now);
        self.tick_lock_queues(now);
        self.operate(|operations| operations.tick_sweeps(now));
    }

    /// Continues all unfinished transitions.
    pub(crate) fn tick_replication(&mut self, now: Now) {
        for id in self.replicas.transitions() {
            self.replicate(|replication| replication.continue_transition(now, id));
        }
    }

    /// Expires leases, and the deadlines of waiters and watchers.
    pub(crate) fn tick_lock_queues(&mut self, now: Now) {
        self.segments.find_due(now.steady_us);
        let mut next = 0;
        while let Some(id) = self.segments.due(next) {
            next += 1;
            self.segments.update_lock_gate(now, self.replicas, id);
            self.replicate(|replication| {
                replication.expire_forward(now, id);
                replication.continue_large_forward(now, id);
            });
            self.operate(|operations| operations.expire_waits(now, id));
            self.segments.schedule(id);
        }
        self.segments.forget_idle();
    }
}
