//! Which cores a daemon takes when none is named: one for each of its progress threads. Several daemons of one machine
//! spread: a core that is taken is claimed by a name that ends with its daemon, however that ends.

use crate::config::config::CoreChoice;
use crate::node::StartError;
use ddss_runtime::{Topology, allowed_cores};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where one progress thread runs.
#[derive(Debug, Default)]
pub(crate) struct CorePlacement {
    pub(crate) core: Option<usize>,
    /// The memory node beside that core, on a machine that has several.
    pub(crate) memory: Option<usize>,
    _claim: Option<UnixDatagram>,
}

/// Whether as many cores are named as there are progress threads, if any are, and this process may run on each of them.
pub(crate) fn check(choice: &CoreChoice, threads: u8) -> Result<(), StartError> {
    let named = match choice {
        CoreChoice::Sensible | CoreChoice::Unpinned => return Ok(()),
        CoreChoice::Core(core) => std::slice::from_ref(core),
        CoreChoice::Cores(cores) => cores,
    };
    if named.len() != usize::from(threads) {
        return Err(StartError::Cores { named: named.len(), threads });
    }
    // Where the kernel does not say which cores there are, the thread itself is told when it is pinned.
    let Ok(allowed) = allowed_cores() else { return Ok(()) };
    match named.iter().find(|core| !allowed.contains(core)) {
        Some(&core) => Err(StartError::NoSuchCore { core, allowed: ranges(&allowed) }),
        None => Ok(()),
    }
}

/// Cores in the words of the kernel: `0-3,8`.
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

/// A seat for each of so many progress threads.
pub(crate) fn seats(choice: &CoreChoice, threads: u8) -> Result<Vec<CorePlacement>, StartError> {
    let topology = Topology::detect();
    let at = |core: usize| {
        let memory = if topology.is_uniform() { None } else { topology.node_of_core(core) };
        CorePlacement { core: Some(core), memory, _claim: None }
    };
    let named: Vec<usize> = match choice {
        CoreChoice::Unpinned => return Ok((0..threads).map(|_| CorePlacement::default()).collect()),
        CoreChoice::Sensible => {
            let allowed = allowed_cores().unwrap_or_default();
            let taken = spread(&allowed, &topology, threads, claim);
            return Ok(taken
                .into_iter()
                .map(|taken| match taken {
                    Taken::Own(core, claim) => CorePlacement { _claim: Some(claim), ..at(core) },
                    Taken::Shared(core) => at(core),
                    Taken::None => CorePlacement::default(),
                })
                .collect());
        }
        CoreChoice::Core(core) => vec![*core],
        CoreChoice::Cores(cores) => cores.clone(),
    };
    check(choice, threads)?;
    Ok(named.into_iter().map(at).collect())
}

/// What there was for a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taken<T> {
    /// A core that no other daemon took.
    Own(usize, T),
    /// One that another daemon has, too.
    Shared(usize),
    None,
}

/// Takes a core for each thread: the last free ones, and never the first one, which is left to the applications. Where
/// there are several memory nodes the threads go round them, so that each has memory beside it and none has all. When
/// all cores are taken the first thread shares the last one: two daemons that wait for each other do well on one core.
/// The others run where the kernel puts them: threads of one daemon do not wait for each other, and on one core would
/// only take it from each other.
fn spread<T>(
    allowed: &[usize],
    topology: &Topology,
    threads: u8,
    mut claim: impl FnMut(usize) -> Option<T>,
) -> Vec<Taken<T>> {
    let others = allowed.get(1..).unwrap_or_default();
    // The cores of each memory node that are left, the last one first; first the node of the last core.
    let mut nodes: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for &core in others.iter().rev() {
        let node = topology.node_of_core(core);
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, cores)) => cores.push(core),
            None => nodes.push((node, vec![core])),
        }
    }
    let count = nodes.len().max(1);
    let mut left: Vec<_> = nodes.into_iter().map(|(_, cores)| cores.into_iter()).collect();
    (0..usize::from(threads))
        .map(|thread| {
            let turns = (0..left.len()).map(|turn| (thread + turn) % count);
            let mut found = None;
            for node in turns {
                found = left[node].by_ref().find_map(|core| Some((core, claim(core)?)));
                if found.is_some() {
                    break;
                }
            }
            match (found, others.last()) {
                (Some((core, claim)), _) => Taken::Own(core, claim),
                (None, Some(&last)) if thread == 0 => Taken::Shared(last),
                _ => Taken::None,
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

    /// More than any kernel has.
    const CORES_MAX: usize = 100_000;

    #[test]
    fn a_core_is_taken_once_and_given_back() {
        // If this broke, all daemons of a machine would sit on one core.
        let core = usize::MAX;
        let first = claim(core).unwrap();
        assert!(claim(core).is_none());
        drop(first);
        assert!(claim(core).is_some());
    }

    /// The cores that so many threads get while others have some.
    fn cores(allowed: &[usize], nodes: &[&[usize]], threads: u8, busy: &[usize]) -> Vec<Option<usize>> {
        let nodes = nodes.iter().enumerate().map(|(number, cores)| MemoryNode { number, cores: cores.to_vec() });
        let topology = Topology { nodes: nodes.collect() };
        let taken = spread(allowed, &topology, threads, |core| (!busy.contains(&core)).then_some(()));
        let core = |taken| match taken {
            Taken::Own(core, ()) | Taken::Shared(core) => Some(core),
            Taken::None => None,
        };
        taken.into_iter().map(core).collect()
    }

    #[test]
    fn threads_get_cores_of_their_own_and_the_first_one_stays_free() {
        // If this broke, progress threads would take each other's core, or the one on which applications start.
        let one: &[&[usize]] = &[&[0, 1, 2, 3]];
        assert_eq!(cores(&[0, 1, 2, 3], one, 1, &[]), [Some(3)]);
        assert_eq!(cores(&[0, 1, 2, 3], one, 2, &[]), [Some(3), Some(2)]);
        assert_eq!(cores(&[0, 1, 2, 3], one, 2, &[3]), [Some(2), Some(1)]);
        // More threads than cores: they are left to the kernel, and do not share.
        assert_eq!(cores(&[0, 1], one, 2, &[]), [Some(1), None]);
        assert_eq!(cores(&[0, 1], one, 2, &[1]), [Some(1), None], "the first one shares with another daemon");
        assert_eq!(cores(&[5], one, 2, &[]), [None, None]);
        assert_eq!(cores(&[], &[], 1, &[]), [None]);
    }

    #[test]
    fn threads_spread_over_the_memory_nodes() {
        // If this broke, one socket would do all the work, with half of its memory on the other one.
        let two: &[&[usize]] = &[&[0, 1, 2, 3], &[4, 5, 6, 7]];
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(cores(&all, two, 1, &[]), [Some(7)]);
        assert_eq!(cores(&all, two, 4, &[]), [7, 3, 6, 2].map(Some));
        // A socket that is full leaves its turn to the other one.
        assert_eq!(cores(&all, two, 3, &[4, 5, 6, 7]), [3, 2, 1].map(Some));
        // Cores that alternate, as some machines number them.
        assert_eq!(cores(&[0, 1, 2, 3], &[&[0, 2], &[1, 3]], 2, &[]), [3, 2].map(Some));
    }

    #[test]
    fn named_cores_are_as_many_as_threads() {
        // If this broke, a thread would run where nobody put it.
        let here = allowed_cores().unwrap()[0];
        let named = seats(&CoreChoice::Cores(vec![here, here]), 2).unwrap();
        assert_eq!(named.iter().map(|seat| seat.core).collect::<Vec<_>>(), [Some(here), Some(here)]);
        let error = seats(&CoreChoice::Core(0), 2).unwrap_err().to_string();
        assert!(error.contains("--core") && error.contains('2'), "{error}");
        let error = check(&CoreChoice::Core(CORES_MAX), 1).unwrap_err().to_string();
        assert!(error.contains("core 100000") && error.contains("taskset"), "{error}");
        assert_eq!([ranges(&[]), ranges(&[3]), ranges(&[0, 1, 2, 5, 7, 8])], ["", "3", "0-2,5,7-8"]);
    }
}
