//! Which core a thread runs on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io;

/// The cores that this process may use.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// A core for a progress thread when none is named: the last one that is allowed, since applications start from the
/// first; none where there is only one.
pub fn choose_core() -> io::Result<Option<usize>> {
    let cores = allowed_cores()?;
    Ok(if cores.len() > 1 { cores.last().copied() } else { None })
}

/// Pins the calling thread.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// The core that the calling thread runs on at this moment.
pub fn current_core() -> usize {
    sched_getcpu()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_was_put() {
        // If this broke, the progress thread would wander onto its clients' cores and lose its own.
        let cores = allowed_cores().unwrap();
        let last = *cores.last().unwrap();
        let seen = std::thread::spawn(move || pin_to(last).map(|()| current_core())).join().unwrap();
        assert_eq!(seen.unwrap(), last);
        assert!(pin_to(1 << 20).is_err());
    }
}
