//! Watch of the names of the segments here: a version that changes when a name is made or released.

use crate::config::EngineConfig;
use crate::state::lock_queue::LockQueue;
use ddss_core::{SegmentId, Version};

/// State of a watched id: what a tick, a cancel and the end of an owner look at.
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
    pub(super) id: SegmentId,
    pub(super) version: Version,
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

    /// Returns true if names may have changed since that version, which may be of an earlier run.
    pub(super) fn has_changed(&self, since: Version) -> bool {
        let (Version(now), Version(since)) = (self.version, since);
        now >> Self::COUNT_BITS != since >> Self::COUNT_BITS || now > since
    }

    pub(super) fn watched(&mut self) -> Watched<'_> {
        let Self { lock_queue, is_marked_busy, due_us, .. } = self;
        Watched { lock_queue, is_marked_busy, due_us, is_replicated: false }
    }
}
