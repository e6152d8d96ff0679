//! NUMA topology: the cores of each memory node.
//!
//! A machine with several sockets has several *memory nodes* (NUMA): a core reaches the memory of its own node faster
//! than that of another. The kernel lists them under `/sys/devices/system/node`, one directory for each node.

use std::io;
use std::path::Path;

/// A memory node and its cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNode {
    /// Number in the kernel's list.
    pub number: usize,
    /// Cores, in order. Memory without cores has none.
    pub cores: Vec<usize>,
}

/// The memory nodes of a machine, in order.
///
/// ```
/// use ddss_runtime::{MemoryNode, Topology};
/// let machine = Topology::detect();
/// let [one, other] = [0, 1].map(|number| MemoryNode { number, cores: vec![2 * number, 2 * number + 1] });
/// let two = Topology { nodes: vec![one, other] };
/// assert_eq!((two.node_of_core(3), two.is_uniform()), (Some(1), false));
/// println!("{} memory nodes", machine.nodes.len().max(1));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    /// Nodes; empty if the kernel lists none.
    pub nodes: Vec<MemoryNode>,
}

impl Topology {
    const FOLDER: &str = "/sys/devices/system/node";
    /// Upper bound of core and node numbers: a larger number means that the text is something else.
    const NUMBER_MAX: usize = 1 << 14;

    /// Detects the topology of this machine. Without information, all memory counts as one node.
    pub fn detect() -> Self {
        Self::read(Path::new(Self::FOLDER)).unwrap_or_default()
    }

    /// Reads a directory in the kernel's format: `node0/cpulist`, `node1/cpulist`, and so on.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut nodes = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("node")?.parse::<usize>().ok());
            let Some(number) = number.filter(|&number| number < Self::NUMBER_MAX) else { continue };
            let list = std::fs::read_to_string(entry.path().join("cpulist"))?;
            let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("{list:?} is not a list of cores"));
            nodes.push(MemoryNode { number, cores: core_list(&list).ok_or_else(wrong)? });
        }
        nodes.sort_unstable_by_key(|node| node.number);
        Ok(Self { nodes })
    }

    /// Returns true if all cores are known to share one memory node, or nothing is known.
    pub fn is_uniform(&self) -> bool {
        self.nodes.iter().filter(|node| !node.cores.is_empty()).count() <= 1
    }

    /// Returns the memory node of a core.
    pub fn node_of_core(&self, core: usize) -> Option<usize> {
        self.nodes.iter().find(|node| node.cores.contains(&core)).map(|node| node.number)
    }
}

/// Parses the kernel's list of cores, such as `0-3,8,10-11`; empty text means none.
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
    fn core_lists_of_the_kernel_are_parsed() {
        // If this failed, a thread would be placed on another socket than its memory.
        assert_eq!(core_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(core_list("\n"), Some(vec![]));
        for wrong in ["a", "3-1", "1-", "-1", "0-99999999999", "1 2"] {
            assert_eq!(core_list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn topology_is_read_from_sysfs_format() {
        // If this failed, a machine with two sockets would count as one, or a file next to the nodes as a node.
        let folder = std::env::temp_dir().join(format!("ddss-topology-{}", std::process::id()));
        for (name, cores) in [("node1", "4-7\n"), ("node0", "0-3\n"), ("node10", "\n"), ("power", "0\n")] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("cpulist"), cores).unwrap();
        }
        std::fs::write(folder.join("online"), "0-1,10\n").unwrap();
        let read = Topology::read(&folder).unwrap();
        let numbers: Vec<usize> = read.nodes.iter().map(|node| node.number).collect();
        assert_eq!(numbers, [0, 1, 10]);
        assert_eq!((read.node_of_core(5), read.node_of_core(8), read.is_uniform()), (Some(1), None, false));
        // Memory without cores is no second socket.
        std::fs::remove_dir_all(folder.join("node1")).unwrap();
        assert!(Topology::read(&folder).unwrap().is_uniform());
        std::fs::write(folder.join("node0/cpulist"), "many").unwrap();
        assert_eq!(Topology::read(&folder).unwrap_err().kind(), io::ErrorKind::InvalidData);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Topology::read(&folder).is_err());
    }
}
