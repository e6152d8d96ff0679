//! Readers, file servers and connections of one run.

use super::checker::{GENERATION, ReaderChecker, Waiting};
use super::disk::Disk;
use super::plan::{Fault, FilesPlan};
use crate::random::Random;
use crate::river::agenda::Agenda;
use ddss_river_core::{ChunkRequest, ChunkServer, Mirror, PartId, PartReader, ReaderConfig, ReaderId};

/// Counts of one run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct FileCounts {
    pub(crate) chunks: u64,
    pub(crate) refused: u64,
    pub(crate) parts_failed: u64,
    pub(crate) nodes_lost: u64,
    /// When the last reader ended.
    pub(crate) finished_us: u64,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A request arrives, in its bytes.
    Request {
        reader: u32,
        at: Mirror,
        epoch: u32,
        bytes: Vec<u8>,
    },
    /// A disk has read a chunk.
    Read {
        node: u32,
        request: ChunkRequest,
        epoch: u32,
    },
    /// A chunk and the reply behind it arrive.
    Reply {
        reader: u32,
        from: Mirror,
        epoch: u32,
        bytes: Vec<u8>,
        content: u64,
    },
    /// A program has copied a chunk.
    Copied {
        reader: u32,
        slot: u16,
    },
    NoticeLoss {
        reader: u32,
        from: Mirror,
    },
    NoticeDeath {
        reader: u32,
        from: Mirror,
    },
    Connect {
        reader: u32,
        to: Mirror,
    },
    Resume(u32),
    Fault(Fault),
}

/// A node with a file server.
pub(crate) struct Node {
    pub(crate) server: ChunkServer,
    pub(crate) disk: Disk,
    pub(crate) is_reading: bool,
    pub(crate) is_killed: bool,
    pub(crate) is_stopped: bool,
    pub(crate) deferred: Vec<Event>,
    pub(crate) waiting: Waiting,
}

/// A connection of a reader.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Connection {
    pub(crate) epoch: u32,
    pub(crate) is_intact: bool,
    pub(crate) last_request_us: u64,
    pub(crate) last_reply_us: u64,
}

/// A reader and its program.
pub(crate) struct ReaderProcess {
    pub(crate) engine: PartReader,
    pub(crate) buffers: Vec<u64>,
    pub(crate) connections: [Connection; 2],
    pub(crate) checker: ReaderChecker,
    pub(crate) is_failed: bool,
}

/// Readers, file servers and connections of one run.
pub(crate) struct World {
    pub(crate) plan: FilesPlan,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) random: Random,
    pub(crate) nodes: Vec<Node>,
    pub(crate) readers: Vec<ReaderProcess>,
    pub(crate) counts: FileCounts,
    pub(crate) violations: Vec<String>,
}

impl World {
    pub(crate) fn new(plan: FilesPlan, random: Random) -> Self {
        let node = |disk: &super::plan::DiskPlan| {
            #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
            let mut server = ChunkServer::default();
            #[cfg(feature = "planted")]
            plan.bug.into_iter().for_each(|bug| server.plant(bug));
            let (disk, waiting, deferred) = (Disk::new(*disk), Waiting::default(), Vec::new());
            Node { server, disk, is_reading: false, is_killed: false, is_stopped: false, deferred, waiting }
        };
        let reader = |(part, chunks): (usize, &u32)| {
            let part = part as u32;
            let config = ReaderConfig {
                reader: ReaderId(part),
                part: PartId(part),
                generation: GENERATION,
                chunks: *chunks,
                window: plan.window,
                order: plan.order,
            };
            #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
            let mut engine = PartReader::new(config).expect("valid settings");
            #[cfg(feature = "planted")]
            plan.bug.into_iter().for_each(|bug| engine.plant(bug));
            let (buffers, checker) = (vec![0; engine.slots()], ReaderChecker::new(part, *chunks));
            ReaderProcess { engine, buffers, connections: Default::default(), checker, is_failed: false }
        };
        Self {
            nodes: plan.disks.iter().map(node).collect(),
            readers: plan.chunks.iter().enumerate().map(reader).collect(),
            agenda: Agenda::new(),
            random,
            counts: FileCounts::default(),
            violations: Vec::new(),
            plan,
        }
    }

    /// Returns the node that has a copy of a part.
    pub(crate) fn node_of(&self, part: u32, copy: Mirror) -> u32 {
        (part + u32::from(copy == Mirror::Second)) % self.nodes.len() as u32
    }

    /// Returns the copy of a part that a node has.
    pub(crate) fn copy_at(&self, node: u32, part: u32) -> Mirror {
        if self.node_of(part, Mirror::First) == node { Mirror::First } else { Mirror::Second }
    }

    pub(crate) fn connection(&mut self, reader: u32, to: Mirror) -> &mut Connection {
        &mut self.readers[reader as usize].connections[usize::from(to == Mirror::Second)]
    }

    /// Returns a time around the planned one.
    pub(crate) fn vary(&mut self, planned_us: u64) -> u64 {
        if self.plan.has_jitter { 1 + self.random.below(2 * planned_us) } else { planned_us }
    }
}
