//! Placement of segments on the NUMA node of their progress thread's core. On a machine with one node the test is
//! skipped; `scripts/vm` has two.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Spec};
use ddss_runtime::Topology;
use ddss_testkit::{DaemonOptions, skipped};

const BYTES: u64 = 4 << 20;

/// Pages of the files below a directory that a process has mapped, by memory node.
fn pages_of(pid: u32, folder: &str) -> Vec<usize> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap();
    let mut pages = vec![0; 64];
    for line in maps.lines().filter(|line| line.contains(folder)) {
        for word in line.split(' ').filter_map(|word| word.strip_prefix('N')) {
            let Some((node, count)) = word.split_once('=') else { continue };
            pages[node.parse::<usize>().unwrap()] += count.parse::<usize>().unwrap();
        }
    }
    pages
}

// If this failed, each get and put on a machine with two sockets would cross to the other one and back.
#[test]
fn segments_are_on_the_numa_node_of_their_core() {
    let topology = Topology::detect();
    if topology.is_uniform() {
        skipped("segments_are_on_the_numa_node_of_their_core", "one memory node; scripts/vm has two");
        return;
    }
    for beside in topology.nodes.iter().filter(|node| !node.cores.is_empty()) {
        let daemon = DaemonOptions::new(1).unwrap().core(beside.cores[0]).start().unwrap();
        let pages = || pages_of(daemon.pid(), daemon.folder().join("memory").to_str().unwrap());
        let before = pages();
        let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).local_reads(false)).unwrap();
        let segment = client.segment("beside").allocate(Spec::new(BYTES)).unwrap();
        for at in (0..BYTES).step_by(1 << 19) {
            segment.put(at, &vec![7; 1 << 19]).unwrap();
        }
        let taken: Vec<usize> =
            pages().iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect();
        let (there, all) = (taken[beside.number], taken.iter().sum::<usize>());
        assert!(all as u64 >= BYTES / 4096, "{taken:?}");
        assert!(there * 50 >= all * 49, "of {all} pages {there} are on node {}: {taken:?}", beside.number);
    }
}
