//! The state of a rank.

use super::calls::Calls;
use super::diff_queue::DiffQueue;
use super::fetches::FetchTable;
use super::hot_pages::{HotPage, HotPages};
use super::intervals::Intervals;
use super::locks::Locks;
use super::pages::PageTable;
use super::placements::Placements;
use super::rendezvous::Rendezvous;
use super::served::ServedRequests;
use super::sync_queue::SyncQueue;
use super::twins::Twins;
use crate::engine::accesses::AccessLog;
use crate::engine::call::Failure;
use crate::engine::statistics::Statistics;
use crate::limits::PACKED_WINDOW;
use crate::message::Codec;
use crate::model::{Config, PageId, Rank, RankSet};
use std::collections::VecDeque;

/// Pages of a rank: their state, twins, fetches and diffs.
#[derive(Clone, Debug)]
pub(crate) struct PageState {
    pub(crate) table: PageTable,
    pub(crate) twins: Twins,
    pub(crate) fetches: FetchTable,
    pub(crate) served: ServedRequests,
    pub(crate) diffs: DiffQueue,
    pub(crate) placements: Placements,
    pub(crate) hot: HotPages,
}

impl PageState {
    /// Counts a fetch of a page.
    pub(crate) fn count_fetch(&mut self, page: PageId) {
        let count = self.table.count_fetch(page);
        self.hot.fetched.raise(HotPage { page, count, writers: RankSet::default() });
    }

    /// Records that a rank has written a page behind a barrier.
    pub(crate) fn add_writer(&mut self, page: PageId, rank: Rank, barrier: u64) {
        if let Some((count, writers)) = self.table.add_writer(page, rank, barrier) {
            self.hot.shared.raise(HotPage { page, count, writers });
        }
    }
}

/// Synchronisation of a rank.
#[derive(Clone, Debug)]
pub(crate) struct SyncState {
    pub(crate) intervals: Intervals,
    pub(crate) queue: SyncQueue,
    pub(crate) locks: Locks,
    pub(crate) rendezvous: Rendezvous,
    /// True once this rank has asked rank 0 to end the space.
    pub(crate) has_given_up: bool,
}

/// All state of a rank.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) codec: Codec,
    pub(crate) pages: PageState,
    pub(crate) sync: SyncState,
    pub(crate) calls: Calls,
    pub(crate) statistics: Statistics,
    /// Accesses of this rank. `None` unless races are looked for.
    pub(crate) accesses: Option<AccessLog>,
    /// Messages of this rank to itself.
    pub(crate) loopback: VecDeque<Vec<u8>>,
    /// Reason why the space ends behind the current event.
    pub(crate) violation: Option<Failure>,
    /// Reason why the space has ended.
    pub(crate) failure: Option<Failure>,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<crate::engine::Bug>,
}

impl State {
    /// Returns true if the open interval has something that others must know when it is closed.
    pub(crate) fn may_close(&self) -> bool {
        !self.pages.twins.is_empty() || self.has_reads()
    }

    /// Returns true if the open interval has reads that are looked at for races.
    pub(crate) fn has_reads(&self) -> bool {
        self.accesses.as_ref().is_some_and(|log| !log.reads.is_empty())
    }

    pub(crate) fn new(config: Config) -> Self {
        let window = if config.protocol.writes_one_sided() { PACKED_WINDOW } else { config.tuning.window };
        Self {
            config,
            codec: Codec::new(&config),
            pages: PageState {
                table: PageTable::new(&config),
                twins: Twins::default(),
                fetches: FetchTable::new(config.tuning.fetches),
                served: ServedRequests::default(),
                diffs: DiffQueue::new(window),
                placements: Placements::default(),
                hot: HotPages::default(),
            },
            sync: SyncState {
                intervals: Intervals::new(config.rank, config.log),
                queue: SyncQueue::default(),
                locks: Locks::default(),
                rendezvous: Rendezvous::default(),
                has_given_up: false,
            },
            calls: Calls::default(),
            statistics: Statistics::default(),
            accesses: None,
            loopback: VecDeque::new(),
            violation: None,
            failure: None,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }
}
