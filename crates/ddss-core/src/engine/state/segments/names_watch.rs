//! Watch of the names of the segments here: a version that changes when a name is made or released.

use crate::engine::config::EngineConfig;
use crate::engine::state::lock_queue::LockQueue;
use crate::engine::state::segments::Segments;
use crate::{SegmentId, Version};

/// State of a [watched id](Segments::watched): what a tick, a cancel and the end of an owner look at.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    pub(crate) lock_queue: &'a mut LockQueue,
    pub(crate) is_marked_busy: &'a mut bool,
    pub(crate) due_us: &'a mut u64,
    pub(crate) is_replicated: bool,
}

/// Versions of the names of one shard, and their watchers.
#[derive(Debug)]
pub(crate) struct NamesWatch {
    id: SegmentId,
    version: Version,
    lock_queue: LockQueue,
    is_marked_busy: bool,
    due_us: u64,
}

impl NamesWatch {
    /// Bits of a version that count. Those above them are the daemon's run, so that no version returns after a restart.
    const COUNT_BITS: u32 = 32;

    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            id: SegmentId::names_of(config.node).on_shard(config.shard.index()),
            version: Version(u64::from(config.first_generation) << Self::COUNT_BITS | 1),
            lock_queue: LockQueue::default(),
            is_marked_busy: false,
            due_us: u64::MAX,
        }
    }

    fn watched(&mut self) -> Watched<'_> {
        let Self { lock_queue, is_marked_busy, due_us, .. } = self;
        Watched { lock_queue, is_marked_busy, due_us, is_replicated: false }
    }
}

impl Segments {
    /// Returns true if the id stands for the names here.
    pub(crate) fn is_names(&self, id: SegmentId) -> bool {
        id == self.names_watch.id
    }

    /// Returns the id that stands for the names here, and its version.
    pub(crate) fn names_version(&self) -> (SegmentId, Version) {
        (self.names_watch.id, self.names_watch.version)
    }

    /// Returns true if names may have changed since that version, which may be of an earlier run.
    pub(crate) fn have_names_changed(&self, since: Version) -> bool {
        let Version(now) = self.names_watch.version;
        now >> NamesWatch::COUNT_BITS != since.0 >> NamesWatch::COUNT_BITS || now > since.0
    }

    /// Advances the version of the names.
    pub(crate) fn advance_names(&mut self) {
        self.names_watch.version.0 += 1;
    }

    /// Returns what may be watched under that id: a live segment, or the names here.
    pub(crate) fn watched(&mut self, id: SegmentId) -> Option<Watched<'_>> {
        if self.is_names(id) {
            return Some(self.names_watch.watched());
        }
        let segment = self.get_mut(id).ok()?;
        let is_replicated = segment.replication.is_some();
        let (is_marked_busy, due_us) = (&mut segment.is_marked_busy, &mut segment.due_us);
        Some(Watched { lock_queue: &mut segment.lock_queue, is_marked_busy, due_us, is_replicated })
    }
}
