//! Which cores lie beside which memory.
//!
//! A machine with several sockets has several *memory nodes* (NUMA): a core reaches the memory of its own node sooner than
//! that of another. The kernel tells it under `/sys/devices/system/node`, one folder a node.

use std::io;
use std::path::Path;

/// Memory, and the cores beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNode {
    /// What the kernel calls it.
    pub number: usize,
    /// Its cores, in order. Memory without cores has none.
    pub cores: Vec<usize>,
}

/// The memory nodes of a machine, in order.
///
/// ```
/// use ddss_runtime::{MemoryNode, Topology};
/// let here = Topology::here();
/// let [one, other] = [0, 1].map(|number| MemoryNode { number, cores: vec![2 * number, 2 * number + 1] });
/// let two = Topology { nodes: vec![one, other] };
/// assert_eq!((two.node_of(3), two.is_uniform()), (Some(1), false));
/// println!("{} memory nodes", here.nodes.len().max(1));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    /// Each of them; none where the kernel does not say.
    pub nodes: Vec<MemoryNode>,
}

impl Topology {
    const FOLDER: &str = "/sys/devices/system/node";
    /// Cores and nodes that are taken seriously: more says that the text is something else.
    const NUMBER_MAX: usize = 1 << 14;

    /// This machine's. One that does not tell has one memory for all.
    pub fn here() -> Self {
        Self::read(Path::new(Self::FOLDER)).unwrap_or_default()
    }

    /// What a folder like the kernel's says: `node0/cpulist`, `node1/cpulist`, and so on.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut nodes = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("node")?.parse::<usize>().ok());
            let Some(number) = number.filter(|&number| number < Self::NUMBER_MAX) else { continue };
            let list = std::fs::read_to_string(entry.path().join("cpulist"))?;
            let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("{list:?} is no list of cores"));
            nodes.push(MemoryNode { number, cores: core_list(&list).ok_or_else(wrong)? });
        }
        nodes.sort_unstable_by_key(|node| node.number);
        Ok(Self { nodes })
    }

    /// Whether all cores have the same memory beside them, as far as is known.
    pub fn is_uniform(&self) -> bool {
        self.nodes.iter().filter(|node| !node.cores.is_empty()).count() <= 1
    }

    /// The memory node beside a core.
    pub fn node_of(&self, core: usize) -> Option<usize> {
        self.nodes.iter().find(|node| node.cores.contains(&core)).map(|node| node.number)
    }
}

/// Cores as the kernel writes them: `0-3,8,10-11`; nothing for none.
fn core_list(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= Topology::NUMBER_MAX {
            return None;
        }
        cores.extend(first..=last);
    }
    cores.sort_unstable();
    cores.dedup();
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_as_the_kernel_writes_them() {
        // If this broke, a thread would be put on a core of another socket than its memory.
        assert_eq!(core_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(core_list("\n"), Some(vec![]));
        for wrong in ["a", "3-1", "1-", "-1", "0-99999999999", "1 2"] {
            assert_eq!(core_list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_folder_like_the_kernels_is_read_whole() {
        // If this broke, a machine with two sockets would be taken for one, or a file beside the nodes for a node.
        let folder = std::env::temp_dir().join(format!("ddss-topology-{}", std::process::id()));
        for (name, cores) in [("node1", "4-7\n"), ("node0", "0-3\n"), ("node10", "\n"), ("power", "0\n")] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("cpulist"), cores).unwrap();
        }
        std::fs::write(folder.join("online"), "0-1,10\n").unwrap();
        let read = Topology::read(&folder).unwrap();
        let numbers: Vec<usize> = read.nodes.iter().map(|node| node.number).collect();
        assert_eq!(numbers, [0, 1, 10]);
        assert_eq!((read.node_of(5), read.node_of(8), read.is_uniform()), (Some(1), None, false));
        // Memory without a core beside it is no second socket.
        std::fs::remove_dir_all(folder.join("node1")).unwrap();
        assert!(Topology::read(&folder).unwrap().is_uniform());
        std::fs::write(folder.join("node0/cpulist"), "many").unwrap();
        assert_eq!(Topology::read(&folder).unwrap_err().kind(), io::ErrorKind::InvalidData);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Topology::read(&folder).is_err());
    }
}
