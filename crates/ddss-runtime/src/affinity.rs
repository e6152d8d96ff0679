//! Which core a thread runs on, and whose memory it takes.

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

/// Memory that the calling thread is the first to touch comes from that memory node, and from another one only when that
/// is full. A machine that does not know the node, or a system that forbids it, says so.
pub fn prefer_memory_of(node: usize) -> io::Result<()> {
    /// Nodes that the mask has room for; the kernel knows at most so many.
    const NODES: usize = 1024;
    const WORD: usize = libc::c_ulong::BITS as usize;
    if node >= NODES {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut mask: [libc::c_ulong; NODES / WORD] = [0; NODES / WORD];
    mask[node / WORD] = 1 << (node % WORD);
    // SAFETY: the kernel reads no more than NODES bits behind the pointer, which `mask` has, and keeps no pointer; what it
    // changes is where new pages of this thread come from, and nothing that is there.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, mask.as_ptr(), NODES) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

    #[test]
    fn memory_of_a_node_that_is_there_can_be_preferred() {
        // If this broke, a thread would work with memory of the other socket.
        assert!(prefer_memory_of(1 << 20).is_err());
        let told = std::thread::spawn(|| {
            let told = prefer_memory_of(0);
            // What is touched now has to come from somewhere.
            let touched: Vec<u8> = vec![1; 1 << 20];
            (told, touched.len())
        });
        match told.join().unwrap() {
            (Ok(()), bytes) => assert_eq!(bytes, 1 << 20),
            (Err(error), _) => println!("skipped: this system forbids to choose memory ({error})"),
        }
    }
}
