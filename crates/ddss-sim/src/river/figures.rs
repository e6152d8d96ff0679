//! The paper's figures in virtual time, as fractions of the peak. `cargo test --release -p ddss-sim river_figures`

use super::files::{CopyPlan, DiskPlan, FilesPlan, run_files};
use super::queue::{QueuePlan, Sink, Source, run_queue};
use crate::random::Random;
use ddss_river_core::{QueueConfig, ReadOrder};

/// Time of a disk for a message of 256 KiB at 5.45 MB/s.
const DISK_US: u64 = 48_100;
/// Time of a processor for a message, so that the processors are busy to 0.55 when nothing disturbs them: the paper's
/// figure 5 bends at 9 slow ones of 15.
const PROCESSOR_US: u64 = DISK_US * 55 / 100;
const MESSAGES: u64 = 200;

/// A queue without faults: `slow` sinks need `factor` times as long.
#[derive(Clone, Copy)]
struct Setting {
    nodes: usize,
    source_us: u64,
    sink_us: u64,
    slow: usize,
    factor: u64,
    is_static: bool,
    has_recall: bool,
}

impl Setting {
    const fn reading(nodes: usize, slow: usize) -> Self {
        let (source_us, sink_us, factor) = (DISK_US, PROCESSOR_US, 4);
        Self { nodes, source_us, sink_us, slow, factor, is_static: false, has_recall: true }
    }

    const fn writing(nodes: usize, slow: usize) -> Self {
        let (source_us, sink_us, factor) = (PROCESSOR_US, DISK_US, 2);
        Self { nodes, source_us, sink_us, slow, factor, is_static: false, has_recall: true }
    }

    /// Returns the fraction of the peak, which is the rate of all disks.
    fn fraction(self) -> f64 {
        let Self { nodes, source_us, sink_us, slow, factor, is_static, has_recall } = self;
        let service_us = |node| if node < slow { factor * sink_us } else { sink_us };
        let plan = QueuePlan {
            config: QueueConfig { has_recall, ..QueueConfig::default() },
            sources: vec![Source { messages: MESSAGES, message_us: source_us }; nodes],
            sinks: (0..nodes).map(|node| Sink { service_us: service_us(node), workers: 1, start_us: 0 }).collect(),
            is_static,
            has_jitter: false,
            latency_us: 100,
            faults: Vec::new(),
            poison: None,
            reject_one_in: 0,
            #[cfg(feature = "planted")]
            bug: None,
        };
        let result = run_queue(plan, Random::new(1));
        assert_eq!(result.violations, Vec::<String>::new());
        assert_eq!(result.counts.processed, nodes as u64 * MESSAGES);
        (MESSAGES * DISK_US) as f64 / result.counts.finished_us as f64
    }

    fn without_queue(self) -> f64 {
        Self { is_static: true, ..self }.fraction()
    }

    fn without_recall(self) -> f64 {
        Self { has_recall: false, ..self }.fraction()
    }
}

// The paper: 168.6 of 174.4 MB/s with 32 nodes, 0.97.
#[test]
fn river_figures_4_the_queue_scales_to_32_nodes() {
    for nodes in [1, 2, 4, 8, 16, 32] {
        let (reading, writing) = (Setting::reading(nodes, 0).fraction(), Setting::writing(nodes, 0).fraction());
        println!("figure 4: {nodes} nodes: reading {reading:.3}, writing {writing:.3}");
        assert!(reading >= 0.97 && writing >= 0.97, "{nodes} nodes: {reading:.3}, {writing:.3}");
    }
}

// The paper: flat until 8 to 10 of 15 processors are slow; static falls with the first.
#[test]
fn river_figures_5_slow_processors_cost_their_share() {
    let floors = [(0, 0.97), (1, 0.97), (2, 0.97), (4, 0.96), (6, 0.95), (8, 0.9)];
    for slow in 0..=15 {
        let setting = Setting::reading(15, slow);
        let (queue, fixed, plain) = (setting.fraction(), setting.without_queue(), setting.without_recall());
        println!("figure 5: {slow} slow: queue {queue:.3}, static {fixed:.3}, recall off {plain:.3}");
        let floor = floors.iter().find(|(at, _)| *at == slow).map_or(0.0, |(_, floor)| *floor);
        assert!(queue >= floor, "{slow} slow: {queue:.3}");
        assert!(slow == 0 || fixed <= 0.5, "{slow} slow, static: {fixed:.3}");
    }
    // Without a recall the tail of the slow ones decides.
    assert!(Setting::reading(15, 8).without_recall() < Setting::reading(15, 8).fraction());
}

// The paper: falls slowly; static falls at once.
#[test]
fn river_figures_6_slow_disks_cost_their_share() {
    for slow in 0..=15 {
        let setting = Setting::writing(15, slow);
        let (queue, fixed) = (setting.fraction(), setting.without_queue());
        let rest = (15.0 - slow as f64 / 2.0) / 15.0;
        println!("figure 6: {slow} slow: queue {queue:.3}, static {fixed:.3}, left {rest:.3}");
        assert!((queue - rest).abs() <= 0.03, "{slow} slow: {queue:.3} of {rest:.3}");
        assert!(slow == 0 || fixed <= 0.51, "{slow} slow, static: {fixed:.3}");
    }
}

/// Chunks of a part, of 512 KiB.
const CHUNKS: u32 = 200;
const CHUNK_US: u64 = 2 * DISK_US;

/// Returns the fraction of the peak, which is the rate of all disks without seeks. The disks in `slow` have a competing
/// stream.
fn read_parts(nodes: usize, slow: std::ops::Range<usize>, has_second: bool) -> f64 {
    let disk = |node: usize| {
        let factor = if slow.contains(&node) { 2 } else { 1 };
        DiskPlan { chunk_us: factor * CHUNK_US, seek_us: CHUNK_US / 10 }
    };
    let plan = FilesPlan {
        disks: (0..nodes).map(disk).collect(),
        copies: vec![[CopyPlan::default(), CopyPlan::default()]; nodes],
        chunks: vec![CHUNKS; nodes],
        window: 4,
        order: ReadOrder::Any,
        program_us: 0,
        latency_us: 100,
        has_jitter: false,
        has_second,
        faults: Vec::new(),
        #[cfg(feature = "planted")]
        bug: None,
    };
    let result = run_files(plan, Random::new(1));
    assert_eq!(result.violations, Vec::<String>::new());
    assert_eq!(result.counts.chunks, nodes as u64 * u64::from(CHUNKS));
    (u64::from(CHUNKS) * CHUNK_US) as f64 / result.counts.finished_us as f64
}

// The paper: 0.90 to 0.95 when quiet, and falls slowly; a plain mirror is at 0.5 with the first slow disk.
#[test]
fn river_figures_7_a_slow_disk_is_shared_by_all_readers() {
    let floors = [0.9, 0.8, 0.68, 0.57, 0.46];
    for (slow, floor) in floors.into_iter().enumerate() {
        let (graduated, plain) = (read_parts(4, 0..slow, true), read_parts(4, 0..slow, false));
        println!("figure 7: {slow} slow of 4: mirrored {graduated:.3}, plain {plain:.3}");
        assert!(graduated >= floor, "{slow} slow: {graduated:.3}");
        assert!(slow == 0 || plain <= 0.55, "{slow} slow, plain: {plain:.3}");
    }
}

// The ring bounds it: m - 1 parts have no other disks than m adjacent slow ones.
#[test]
fn river_figures_7_at_15_nodes() {
    for slow in [0, 1, 4, 8, 15] {
        let graduated = read_parts(15, 0..slow, true);
        let all = (15.0 - slow as f64 / 2.0) / 15.0;
        let ring = if slow < 2 { all } else { slow as f64 / 2.0 / (slow as f64 - 1.0) };
        println!("figure 7: {slow} adjacent slow of 15: mirrored {graduated:.3}, ring {ring:.3}, all disks {all:.3}");
        assert!(graduated <= ring.min(all) && graduated >= 0.9 * ring.min(all), "{slow} slow: {graduated:.3}");
    }
}
