//! Plan of one run.

use crate::random::Random;
use ddss_river_core::{Mirror, ReadOrder};

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The connection of a reader to one of its file servers ends.
    Cut(u32, Mirror),
    /// A node is lost.
    Kill(u32),
    /// A file server does not run for a while.
    Stop(u32, u64),
}

/// Times of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskPlan {
    pub(crate) chunk_us: u64,
    pub(crate) seek_us: u64,
}

/// State of a copy of a part.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyPlan {
    /// True if the copy missed the last writing of the part.
    pub(crate) is_stale: bool,
    pub(crate) damaged: Vec<u32>,
}

/// Plan of one run. Part i lies on the nodes i and i + 1.
#[derive(Clone, Debug)]
pub(crate) struct FilesPlan {
    pub(crate) disks: Vec<DiskPlan>,
    /// First and second copy of each part.
    pub(crate) copies: Vec<[CopyPlan; 2]>,
    pub(crate) chunks: Vec<u32>,
    pub(crate) window: u16,
    pub(crate) order: ReadOrder,
    /// Time that a program needs for a chunk.
    pub(crate) program_us: u64,
    pub(crate) latency_us: u64,
    pub(crate) has_jitter: bool,
    /// False if each reader has only the first copy.
    pub(crate) has_second: bool,
    pub(crate) faults: Vec<(u64, Fault)>,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<ddss_river_core::Bug>,
}

/// Returns a plan with slow disks, stale and damaged copies, and faults.
pub(crate) fn random_plan(random: &mut Random) -> FilesPlan {
    let nodes = 2 + random.below(4) as usize;
    let disk = |random: &mut Random| DiskPlan {
        chunk_us: (50 + random.below(100)) * if random.one_in(3) { 3 } else { 1 },
        seek_us: random.below(20),
    };
    let disks = (0..nodes).map(|_| disk(random)).collect();
    let chunks: Vec<u32> = (0..nodes).map(|_| random.below(60) as u32).collect();
    let copy = |chunks: u32, random: &mut Random| CopyPlan {
        is_stale: random.one_in(8),
        damaged: (0..random.below(3)).map(|_| random.below(chunks.into()) as u32).collect(),
    };
    let copies = chunks.iter().map(|chunks| [copy(*chunks, random), copy(*chunks, random)]).collect();
    let fault = |random: &mut Random| {
        let node = random.below(nodes as u64) as u32;
        let fault = match random.below(8) {
            0 => Fault::Kill(node),
            1..3 => Fault::Stop(node, random.below(6_000)),
            _ => Fault::Cut(node, Mirror::BOTH[random.below(2) as usize]),
        };
        (random.below(6_000), fault)
    };
    let faults = if random.one_in(3) { Vec::new() } else { (0..1 + random.below(5)).map(|_| fault(random)).collect() };
    FilesPlan {
        disks,
        copies,
        chunks,
        window: 1 + random.below(4) as u16,
        order: if random.one_in(3) { ReadOrder::Rising } else { ReadOrder::Any },
        program_us: random.below(60),
        latency_us: 1 + random.below(40),
        has_jitter: true,
        has_second: true,
        faults,
        #[cfg(feature = "planted")]
        bug: None,
    }
}
