//! Placement of a thread: its core, and the memory node of its memory.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Returns the cores that this process may use.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Pins the calling thread to a core.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Prefers a memory node for pages that the calling thread touches first; another node is used only when that one is
/// full. Fails if the machine has no such node or the system forbids it.
pub fn prefer_memory_node(node: usize) -> io::Result<()> {
    /// Size of the node mask; the kernel knows no more nodes.
    const NODES: usize = 1024;
    const WORD: usize = libc::c_ulong::BITS as usize;
    if node >= NODES {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut mask: [libc::c_ulong; NODES / WORD] = [0; NODES / WORD];
    mask[node / WORD] = 1 << (node % WORD);
    // SAFETY: the kernel reads no more than NODES bits behind the pointer, which `mask` has, and retains no pointer.
    // The call changes the placement of this thread's new pages and nothing that exists.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, mask.as_ptr(), NODES) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getcpu;

    #[test]
    fn pinned_thread_runs_on_its_core() {
        // If this failed, the progress thread would migrate to its clients' cores and lose its own.
        let cores = allowed_cores().unwrap();
        let last = *cores.last().unwrap();
        let seen = std::thread::spawn(move || pin_to(last).map(|()| sched_getcpu())).join().unwrap();
        assert_eq!(seen.unwrap(), last);
        assert!(pin_to(1 << 20).is_err());
    }

    #[test]
    fn existing_memory_node_can_be_preferred() {
        // If this failed, a thread would work with memory of the other socket.
        assert!(prefer_memory_node(1 << 20).is_err());
        let preferred = std::thread::spawn(|| {
            let preferred = prefer_memory_node(0);
            // The allocation has to come from some node.
            let touched: Vec<u8> = vec![1; 1 << 20];
            (preferred, touched.len())
        });
        match preferred.join().unwrap() {
            (Ok(()), bytes) => assert_eq!(bytes, 1 << 20),
            (Err(error), _) => println!("skipped: this system forbids memory policies ({error})"),
        }
    }
}
