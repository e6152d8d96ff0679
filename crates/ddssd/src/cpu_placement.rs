//! Placement of progress threads on cores when the configuration names none.
//!
//! Several daemons on one machine spread out: each claims a core by an abstract socket name, which the kernel releases
//! when the daemon ends in any way.

use crate::start_error::StartError;
use ddss_admin::CoreChoice;
use ddss_runtime::{Topology, allowed_cores};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Core and memory node of one progress thread.
#[derive(Debug, Default)]
pub(crate) struct CorePlacement {
    pub(crate) core: Option<usize>,
    /// Memory node of that core, on a machine with several.
    pub(crate) memory: Option<usize>,
    _claim: Option<UnixDatagram>,
}

/// Checks that the number of named cores equals the number of progress threads, and that this process may use each
/// core.
pub(crate) fn check(choice: &CoreChoice, threads: u8) -> Result<(), StartError> {
    let named = match choice {
        CoreChoice::Auto | CoreChoice::Unpinned => return Ok(()),
        CoreChoice::Core(core) => std::slice::from_ref(core),
        CoreChoice::Cores(cores) => cores,
    };
    if named.len() != usize::from(threads) {
        return Err(StartError::Cores { named: named.len(), threads });
    }
    // If the kernel does not list the allowed cores, pinning the thread reports the error later.
    let Ok(allowed) = allowed_cores() else { return Ok(()) };
    match named.iter().find(|core| !allowed.contains(core)) {
        Some(&core) => Err(StartError::NoSuchCore { core, allowed: ranges(&allowed) }),
        None => Ok(()),
    }
}

/// Formats cores in the kernel's list format: `0-3,8`.
fn ranges(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => parts.push((core, core)),
        }
    }
    let words =
        parts.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    words.collect::<Vec<_>>().join(",")
}

/// Selects a placement for each progress thread.
pub(crate) fn placements(choice: &CoreChoice, threads: u8) -> Result<Vec<CorePlacement>, StartError> {
    let topology = Topology::detect();
    let at = |core: usize| {
        let memory = if topology.is_uniform() { None } else { topology.node_of_core(core) };
        CorePlacement { core: Some(core), memory, _claim: None }
    };
    let named: Vec<usize> = match choice {
        CoreChoice::Unpinned => return Ok((0..threads).map(|_| CorePlacement::default()).collect()),
        CoreChoice::Auto => {
            let allowed = allowed_cores().unwrap_or_default();
            let taken = spread(&allowed, &topology, threads, claim);
            return Ok(taken
                .into_iter()
                .map(|taken| match taken {
                    CoreGrant::Own(core, claim) => CorePlacement { _claim: Some(claim), ..at(core) },
                    CoreGrant::Shared(core) => at(core),
                    CoreGrant::None => CorePlacement::default(),
                })
                .collect());
        }
        CoreChoice::Core(core) => vec![*core],
        CoreChoice::Cores(cores) => cores.clone(),
    };
    check(choice, threads)?;
    Ok(named.into_iter().map(at).collect())
}

/// Result of the core search for one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CoreGrant<T> {
    /// A core that no other daemon has claimed.
    Own(usize, T),
    /// A core that another daemon uses as well.
    Shared(usize),
    None,
}

/// Selects a core for each thread, from the last free core downwards. The first core stays free for applications.
///
/// With several memory nodes the threads go round them, so that each thread has local memory and no node serves all.
/// If all cores are claimed, the first thread shares the last core: two daemons that wait for each other do well on
/// one core. Further threads stay unpinned: threads of one daemon do not wait for each other and would only compete
/// for a shared core.
fn spread<T>(
    allowed: &[usize],
    topology: &Topology,
    threads: u8,
    mut claim: impl FnMut(usize) -> Option<T>,
) -> Vec<CoreGrant<T>> {
    let others = allowed.get(1..).unwrap_or_default();
    // Unclaimed cores of each memory node, last core first; the node of the last core comes first.
    let mut nodes: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for &core in others.iter().rev() {
        let node = topology.node_of_core(core);
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, cores)) => cores.push(core),
            None => nodes.push((node, vec![core])),
        }
    }
    let count = nodes.len().max(1);
    let mut unclaimed: Vec<_> = nodes.into_iter().map(|(_, cores)| cores.into_iter()).collect();
    (0..usize::from(threads))
        .map(|thread| {
            let nodes_in_turn = (0..unclaimed.len()).map(|turn| (thread + turn) % count);
            let mut found = None;
            for node in nodes_in_turn {
                found = unclaimed[node].by_ref().find_map(|core| Some((core, claim(core)?)));
                if found.is_some() {
                    break;
                }
            }
            match (found, others.last()) {
                (Some((core, claim)), _) => CoreGrant::Own(core, claim),
                (None, Some(&last)) if thread == 0 => CoreGrant::Shared(last),
                _ => CoreGrant::None,
            }
        })
        .collect()
}

fn claim(core: usize) -> Option<UnixDatagram> {
    let address = SocketAddr::from_abstract_name(format!("ddssd-core-{core}")).ok()?;
    UnixDatagram::bind_addr(&address).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_runtime::MemoryNode;

    /// Above the number of cores of any kernel.
    const CORES_MAX: usize = 100_000;

    #[test]
    fn core_claim_is_exclusive_and_released() {
        // If this broke, all daemons of a machine would share one core.
        let core = usize::MAX;
        let first = claim(core).unwrap();
        assert!(claim(core).is_none());
        drop(first);
        assert!(claim(core).is_some());
    }

    /// Returns the cores that `threads` threads get while the cores in `busy` are claimed.
    fn cores(allowed: &[usize], nodes: &[&[usize]], threads: u8, busy: &[usize]) -> Vec<Option<usize>> {
        let nodes = nodes.iter().enumerate().map(|(number, cores)| MemoryNode { number, cores: cores.to_vec() });
        let topology = Topology { nodes: nodes.collect() };
        let taken = spread(allowed, &topology, threads, |core| (!busy.contains(&core)).then_some(()));
        let core = |taken| match taken {
            CoreGrant::Own(core, ()) | CoreGrant::Shared(core) => Some(core),
            CoreGrant::None => None,
        };
        taken.into_iter().map(core).collect()
    }

    #[test]
    fn threads_get_own_cores_and_first_core_stays_free() {
        // If this broke, progress threads would compete for a core, or for the one on which applications start.
        let one: &[&[usize]] = &[&[0, 1, 2, 3]];
        assert_eq!(cores(&[0, 1, 2, 3], one, 1, &[]), [Some(3)]);
        assert_eq!(cores(&[0, 1, 2, 3], one, 2, &[]), [Some(3), Some(2)]);
        assert_eq!(cores(&[0, 1, 2, 3], one, 2, &[3]), [Some(2), Some(1)]);
        // More threads than cores: the kernel places the rest, and they do not share.
        assert_eq!(cores(&[0, 1], one, 2, &[]), [Some(1), None]);
        assert_eq!(cores(&[0, 1], one, 2, &[1]), [Some(1), None], "the first one shares with another daemon");
        assert_eq!(cores(&[5], one, 2, &[]), [None, None]);
        assert_eq!(cores(&[], &[], 1, &[]), [None]);
    }

    #[test]
    fn threads_spread_over_the_memory_nodes() {
        // If this broke, one socket would do all the work, with half of its memory on the other socket.
        let two: &[&[usize]] = &[&[0, 1, 2, 3], &[4, 5, 6, 7]];
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(cores(&all, two, 1, &[]), [Some(7)]);
        assert_eq!(cores(&all, two, 4, &[]), [7, 3, 6, 2].map(Some));
        // A full socket passes its turn to the other one.
        assert_eq!(cores(&all, two, 3, &[4, 5, 6, 7]), [3, 2, 1].map(Some));
        // Cores that alternate, as some machines number them.
        assert_eq!(cores(&[0, 1, 2, 3], &[&[0, 2], &[1, 3]], 2, &[]), [3, 2].map(Some));
    }

    #[test]
    fn number_of_named_cores_must_match_threads() {
        // If this broke, a thread would run on a core that no setting named.
        let here = allowed_cores().unwrap()[0];
        let named = placements(&CoreChoice::Cores(vec![here, here]), 2).unwrap();
        assert_eq!(named.iter().map(|placement| placement.core).collect::<Vec<_>>(), [Some(here), Some(here)]);
        let error = placements(&CoreChoice::Core(0), 2).unwrap_err().to_string();
        assert!(error.contains("--core") && error.contains('2'), "{error}");
        let error = check(&CoreChoice::Core(CORES_MAX), 1).unwrap_err().to_string();
        assert!(error.contains("core 100000") && error.contains("taskset"), "{error}");
        assert_eq!([ranges(&[]), ranges(&[3]), ranges(&[0, 1, 2, 5, 7, 8])], ["", "3", "0-2,5,7-8"]);
    }
}
