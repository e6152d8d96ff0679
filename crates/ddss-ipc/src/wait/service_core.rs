//! Avoidance of the service's core, where only one of client and service can run.
//!
//! The kernel places a woken client next to its waker if no core is idle. So a client that sleeps on the service's core
//! stays there as long as the other cores have work, and each of its calls interrupts the service. Two clients on two
//! cores have two and a half times the throughput if that client moves (`docs/decisions/0007-wait-policy.md`).

use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::config::WAIT;

/// Waits of one channel's client on the service's core.
#[derive(Debug, Default)]
pub(crate) struct ServiceCore {
    waits: u32,
    left_at: Option<Instant>,
}

impl ServiceCore {
    /// Records a wait there. After some of them in a row it moves the calling thread to another core, if it may run on one.
    #[inline]
    pub(crate) fn record_wait(&mut self) {
        self.waits += 1;
        if self.waits >= WAIT.waits_on_service_core_max {
            self.waits = 0;
            self.leave();
        }
    }

    /// Records a wait on another core.
    #[inline]
    pub(crate) fn record_wait_elsewhere(&mut self) {
        self.waits = 0;
    }

    #[cold]
    fn leave(&mut self) {
        let now = Instant::now();
        if self.left_at.is_some_and(|left_at| now - left_at < WAIT.leave_interval) {
            return;
        }
        self.left_at = Some(now);
        leave_core(sched_getcpu());
    }
}

/// Makes the kernel pick another core for the calling thread. The cores on which the thread may run are the same
/// afterwards.
fn leave_core(core: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others: CpuSet = allowed;
    others.unset(core);
    if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
        // If the affinity cannot be restored, the thread keeps running on fewer cores, without the service's.
        let _ = sched_setaffinity(None, &allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores() -> Vec<usize> {
        let allowed = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect()
    }

    #[test]
    fn client_leaves_the_service_core_and_keeps_its_affinity() {
        // If this failed, a client would interrupt the service in each call, or lose a core for good.
        let allowed = cores();
        let mut moves = 0;
        for _ in 0..100 {
            let before = sched_getcpu();
            leave_core(before);
            // The kernel may have moved the thread in between.
            moves += usize::from(sched_getcpu() != before);
            assert_eq!(cores(), allowed);
        }
        assert!(moves > 0 || allowed.len() == 1, "the thread stayed in each of 100 attempts");
    }

    #[test]
    fn pinned_client_stays() {
        // If this failed, a client that may only run on the service's core would run elsewhere, or nowhere.
        std::thread::spawn(|| {
            let core = sched_getcpu();
            let mut one = CpuSet::new();
            one.set(core);
            sched_setaffinity(None, &one).unwrap();
            leave_core(core);
            assert_eq!((cores(), sched_getcpu()), (vec![core], core));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn moves_need_several_waits_and_an_interval() {
        // If this failed, a client that the kernel keeps putting back would make system calls in each call.
        let mut service_core = ServiceCore::default();
        (1..WAIT.waits_on_service_core_max).for_each(|_| service_core.record_wait());
        assert_eq!(service_core.left_at, None);
        service_core.record_wait();
        let first = Instant::now() + WAIT.leave_interval;
        assert!(service_core.left_at.is_some());
        // As if the next waits came within the interval.
        service_core.left_at = Some(first);
        (0..WAIT.waits_on_service_core_max).for_each(|_| service_core.record_wait());
        assert_eq!((service_core.left_at, service_core.waits), (Some(first), 0));
    }
}
