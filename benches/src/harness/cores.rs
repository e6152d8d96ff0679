//! Placement of client and service on cores.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The core of the client and the core of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    /// Core of the measuring thread.
    pub client: usize,
    /// Core of the service thread.
    pub service: usize,
}

impl Cores {
    /// The first two cores that this process may use, or one core twice.
    pub fn of_this_machine() -> Cores {
        let allowed = sched_getaffinity(None).expect("a thread may ask where it may run");
        Cores::first_two((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)))
    }

    /// Returns true if client and service share one core, so that neither may only spin.
    pub fn is_shared(self) -> bool {
        self.client == self.service
    }

    fn first_two(mut cores: impl Iterator<Item = usize>) -> Cores {
        let client = cores.next().unwrap_or(0);
        Cores { client, service: cores.next().unwrap_or(client) }
    }
}

/// Keeps the calling thread, and the processes it starts from now on, on `core`.
pub fn pin(core: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}

/// Runs `start` on every core that this process may use, and restores the cores of the calling thread. Processes that
/// it starts may run on all of them: a daemon refuses a core that it may not use.
pub fn on_all_cores<T>(start: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).expect("a thread may ask where it may run");
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
    // The kernel leaves out the cores that this process may not use.
    sched_setaffinity(None, &all).expect("some core is left");
    let started = start();
    sched_setaffinity(None, &before).expect("the thread was there before");
    started
}

/// Requests priority over the processes of other sessions; returns true if it was granted.
///
/// The scheduler shares the machine between sessions first, and `nice` counts only inside of one.
pub(crate) fn come_first() -> bool {
    fs::write("/proc/self/autogroup", "-20").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, client and service would be measured on one core and called two.
    #[test]
    fn client_and_service_get_first_two_cores() {
        assert_eq!(Cores::first_two([3, 5, 7].into_iter()), Cores { client: 3, service: 5 });
        assert!(Cores::first_two([3].into_iter()).is_shared());
        assert!(!Cores::first_two([3, 5].into_iter()).is_shared());
    }

    // If this failed, no benchmark could start its daemons: each names a core that the pinned thread may not use.
    #[test]
    fn pinned_thread_starts_processes_on_all_cores() {
        let allowed = || sched_getaffinity(None).unwrap().count();
        std::thread::spawn(move || {
            let all = allowed();
            pin(Cores::of_this_machine().client).unwrap();
            assert_eq!((allowed(), on_all_cores(allowed), allowed()), (1, all, 1));
        })
        .join()
        .unwrap();
    }

    // If this failed, the scheduler would move the measured threads, and the figure would include the moves.
    #[test]
    fn pinned_thread_stays_on_its_core() {
        let core = Cores::of_this_machine().service;
        let thread = std::thread::spawn(move || {
            pin(core).unwrap();
            let allowed = sched_getaffinity(None).unwrap();
            (allowed.count(), allowed.is_set(core))
        });
        assert_eq!(thread.join().unwrap(), (1, true));
    }
}
