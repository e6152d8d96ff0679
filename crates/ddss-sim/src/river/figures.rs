//! The paper's figures in virtual time, as fractions of the peak.
//!
//! `cargo bench -p ddss-benches --bench river` draws them; `cargo test --release -p ddss-sim river_figures` checks them.

use super::files::{CopyPlan, DiskPlan, FilesPlan, run_files};
use super::queue::{QueuePlan, Sink, Source, run_queue};
use crate::random::Random;
use ddss_river_core::{QueueConfig, ReadOrder};
use std::ops::Range;

/// Time of a disk for a message of 256 KiB at 5.45 MB/s.
const DISK_US: u64 = 48_100;
/// Time of a processor for a message, so that the processors are busy to 0.55 when nothing disturbs them: the paper's
/// figure 5 bends at 9 slow ones of 15.
const PROCESSOR_US: u64 = DISK_US * 55 / 100;
const MESSAGES: u64 = 200;
/// How much longer a processor needs that has lost three quarters of its time.
const SLOW_PROCESSOR: u64 = 4;
/// How much longer a disk needs beside a competing stream.
const SLOW_DISK: u64 = 2;

/// A point of one of the paper's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FigurePoint {
    /// Number of the figure.
    pub figure: u8,
    /// Compared way: `queue`, `static`, `recall-off`, `mirrored`, `plain`, `ideal`, or a perturbation of figure 1.
    pub series: &'static str,
    /// Number of slow disks or processors.
    pub slow: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Rate as a part of the peak.
    pub fraction: f64,
}

/// Computes all points of all figures. The same code gives the same points.
pub fn river_figures() -> Vec<FigurePoint> {
    let mut points = Vec::new();
    let mut add = |figure, series, slow, nodes, fraction| {
        points.push(FigurePoint { figure, series, slow, nodes, fraction });
    };
    for (series, sink_us, factor) in
        [("disk-half", DISK_US, 2), ("disk-third", DISK_US, 3), ("processor-half", DISK_US, 2)]
    {
        let setting = Setting { source_us: DISK_US, sink_us, factor, ..Setting::writing(8, 1) };
        add(1, series, 1, 8, setting.without_queue());
    }
    for nodes in [1, 2, 4, 8, 16, 32] {
        add(4, "queue", 0, nodes, Setting::reading(nodes, 0).fraction());
        add(4, "queue-writing", 0, nodes, Setting::writing(nodes, 0).fraction());
        add(4, "ideal", 0, nodes, 1.0);
    }
    for (figure, setting) in [(5, Setting::reading as fn(usize, usize) -> Setting), (6, Setting::writing)] {
        for slow in 0..=15 {
            let setting = setting(15, slow);
            add(figure, "queue", slow, 15, setting.fraction());
            add(figure, "recall-off", slow, 15, setting.without_recall());
            add(figure, "static", slow, 15, setting.without_queue());
            add(figure, "ideal", slow, 15, setting.ideal());
        }
    }
    for nodes in [4, 15] {
        for slow in 0..=nodes {
            add(7, "mirrored", slow, nodes, read_parts(nodes, 0..slow, true));
            add(7, "plain", slow, nodes, read_parts(nodes, 0..slow, false));
            add(7, "ideal", slow, nodes, ideal_of_mirrors(nodes, slow));
        }
    }
    for nodes in 1..=14 {
        add(9, "static", 0, nodes, sort(Setting::reading(nodes, 0).without_queue(), nodes));
    }
    for slow in 0..=14 {
        add(10, "queue", slow, 14, sort(Setting::reading(14, slow).fraction(), 14));
        add(10, "static", slow, 14, sort(Setting::reading(14, slow).without_queue(), 14));
        add(10, "ideal", slow, 14, 2.0 / (1.0 / Setting::reading(14, slow).ideal() + 1.0));
    }
    points
}

/// Returns the fraction of a sort that reads and partitions at `reading` and then writes each run to its node's disk. Its work
/// in memory is left out.
fn sort(reading: f64, nodes: usize) -> f64 {
    2.0 / (1.0 / reading + 1.0 / Setting::writing(nodes, 0).without_queue())
}

/// Returns what mirrors on neighbours allow while neighbouring disks give half of their rate: m parts between slow disks use
/// m + 1 of them.
fn ideal_of_mirrors(nodes: usize, slow: usize) -> f64 {
    let (all, halves) = (nodes as f64, slow as f64 / 2.0);
    let whole = (all - halves) / all;
    if (2..nodes).contains(&slow) { whole.min(halves / (slow as f64 - 1.0)) } else { whole }
}

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
        let (source_us, sink_us, factor) = (DISK_US, PROCESSOR_US, SLOW_PROCESSOR);
        Self { nodes, source_us, sink_us, slow, factor, is_static: false, has_recall: true }
    }

    const fn writing(nodes: usize, slow: usize) -> Self {
        let (source_us, sink_us, factor) = (PROCESSOR_US, DISK_US, SLOW_DISK);
        Self { nodes, source_us, sink_us, slow, factor, is_static: false, has_recall: true }
    }

    /// Returns what a sink needs for a message.
    fn service_us(self, sink: usize) -> u64 {
        if sink < self.slow { self.factor * self.sink_us } else { self.sink_us }
    }

    /// Returns what all sinks together allow.
    fn ideal(self) -> f64 {
        let rates = (0..self.nodes).map(|sink| DISK_US as f64 / self.service_us(sink) as f64);
        (rates.sum::<f64>() / self.nodes as f64).min(1.0)
    }

    /// Returns the fraction of the peak, which is the rate of all disks.
    fn fraction(self) -> f64 {
        let Self { nodes, source_us, is_static, has_recall, .. } = self;
        let plan = QueuePlan {
            config: QueueConfig { has_recall, ..QueueConfig::default() },
            sources: vec![Source { messages: MESSAGES, message_us: source_us }; nodes],
            sinks: (0..nodes).map(|node| Sink { service_us: self.service_us(node), workers: 1, start_us: 0 }).collect(),
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

/// Chunks of a part, of 512 KiB.
const CHUNKS: u32 = 200;
const CHUNK_US: u64 = 2 * DISK_US;

/// Returns the fraction of the peak, which is the rate of all disks without seeks. The disks in `slow` have a competing
/// stream.
fn read_parts(nodes: usize, slow: Range<usize>, has_second: bool) -> f64 {
    let disk = |node: usize| {
        let factor = if slow.contains(&node) { SLOW_DISK } else { 1 };
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

#[cfg(test)]
mod tests {
    use super::*;

    // The paper: one slow node of eight decides, as in every static program.
    #[test]
    fn river_figures_1_one_slow_node_decides_without_queues() {
        for (series, expected) in [("disk-half", 0.5), ("disk-third", 1.0 / 3.0), ("processor-half", 0.5)] {
            let fraction = river_figures().into_iter().find(|point| point.series == series).unwrap().fraction;
            assert!((fraction - expected).abs() <= 0.02, "{series}: {fraction:.3}");
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
            println!(
                "figure 7: {slow} adjacent slow of 15: mirrored {graduated:.3}, ring {ring:.3}, all disks {all:.3}"
            );
            assert!(graduated <= ring.min(all) && graduated >= 0.9 * ring.min(all), "{slow} slow: {graduated:.3}");
        }
    }

    // The paper: 0.90 falling to 0.86, of which 0.10 is the sort in memory, which is left out here.
    #[test]
    fn river_figures_9_a_sort_scales_to_14_nodes() {
        for nodes in 1..=14 {
            let fraction = sort(Setting::reading(nodes, 0).without_queue(), nodes);
            assert!(fraction >= 0.96, "{nodes} nodes: {fraction:.3}");
        }
    }

    // The paper: flat until 8 of 14 partitioners are slow; static falls with the first.
    #[test]
    fn river_figures_10_slow_partitioners_cost_their_share() {
        let quiet = sort(Setting::reading(14, 0).fraction(), 14);
        for slow in 1..=8 {
            let queue = sort(Setting::reading(14, slow).fraction(), 14);
            let fixed = sort(Setting::reading(14, slow).without_queue(), 14);
            println!("figure 10: {slow} slow: queue {queue:.3}, static {fixed:.3}");
            assert!(queue >= quiet - 0.04 && fixed <= 0.65, "{slow} slow: {queue:.3} of {quiet:.3}, static {fixed:.3}");
        }
    }

    // A bench draws these points: none may be missing, or above what the disks give.
    #[test]
    fn river_figures_have_all_their_points() {
        let points = river_figures();
        for (figure, count) in [(1, 3), (4, 18), (5, 64), (6, 64), (7, 63), (9, 14), (10, 45)] {
            assert_eq!(points.iter().filter(|point| point.figure == figure).count(), count, "figure {figure}");
        }
        for point in &points {
            assert!(point.fraction > 0.05 && point.fraction <= 1.0, "{point:?}");
            let ideal = points.iter().find(|other| {
                (other.figure, other.slow, other.nodes) == (point.figure, point.slow, point.nodes)
                    && other.series == "ideal"
            });
            assert!(ideal.is_none_or(|ideal| point.fraction <= ideal.fraction + 0.005), "{point:?} above {ideal:?}");
        }
    }
}
