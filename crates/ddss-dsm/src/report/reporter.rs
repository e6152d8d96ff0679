//! Publishes the counts of a rank while they change.

use super::load::RankLoad;
use super::page_rows::{FETCHED, PageList, SHARED, encode_pages};
use ddss_dsm_core::{Engine, HotPage, Statistics};
use ddss_group::GroupState;
use std::time::{Duration, Instant};

/// Publishes the counts of a rank. The thread of its membership writes them: the service thread calls no daemon.
pub(crate) struct Reporter {
    state: GroupState,
    rank: u16,
    due: Duration,
    /// Time of the handler.
    handler: Duration,
    /// Lists that were published last. `None` before the first report: the rows may be those of a rank that is gone.
    fetched: Option<Vec<HotPage>>,
    shared: Option<Vec<HotPage>>,
}

impl Reporter {
    /// Time between two reports.
    const EVERY: Duration = Duration::from_millis(500);

    pub(crate) fn new(state: GroupState, rank: u16) -> Self {
        let (due, handler) = (Duration::ZERO, Duration::ZERO);
        Self { state, rank, due, handler, fetched: None, shared: None }
    }

    /// Counts the time of the handler since it began with a message.
    pub(crate) fn count_handler(&mut self, begun: Instant) {
        self.handler += begun.elapsed();
    }

    /// Returns the counts of the rank.
    pub(crate) fn statistics(&self, engine: &Engine) -> Statistics {
        Statistics { handler_ns: self.handler.as_nanos() as u64, ..engine.statistics() }
    }

    /// Publishes the counts if it is time.
    pub(crate) fn report(&mut self, now: Duration, engine: &Engine) {
        if now < self.due {
            return;
        }
        self.due = now + Self::EVERY;
        self.state.publish(RankLoad(self.statistics(engine)).encode());
        let Self { state, rank, fetched, shared, .. } = self;
        let publish = |list: PageList, known: &mut Option<Vec<HotPage>>, pages: Vec<HotPage>| {
            if known.as_ref() != Some(&pages) {
                state.publish_row(list.row_of(*rank), encode_pages(&pages));
                *known = Some(pages);
            }
        };
        publish(FETCHED, fetched, engine.fetched_most());
        publish(SHARED, shared, engine.shared_most());
    }
}
