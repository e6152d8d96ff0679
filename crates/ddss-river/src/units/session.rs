//! State of a process in a unit queue.

use super::renewal::Renewals;
use super::rows::QueueRow;
use super::search::Search;
use super::table::UnitTable;
use crate::error::QueueError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Searches that are kept for the next claims: one for each thread that works.
const SEARCHES_MAX: usize = 64;

/// State that the handles and the units of a process share.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) table: UnitTable,
    pub(super) renewals: Renewals,
    searches: Mutex<Vec<Search>>,
}

impl Session {
    pub(super) fn new(table: UnitTable) -> Self {
        Self { table, renewals: Renewals::default(), searches: Mutex::default() }
    }

    /// Keeps a search for the next claim.
    pub(super) fn keep(&self, search: Search) {
        let mut searches = self.searches.lock().unwrap_or_else(PoisonError::into_inner);
        if searches.len() < SEARCHES_MAX {
            searches.push(search);
        }
    }

    pub(super) fn search(&self, state: &QueueRow) -> Result<Search, QueueError> {
        let kept = self.searches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| Search::new(state), Ok)
    }
}

/// Returns the moment after this time. One that no clock shows is far away.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + Duration::from_secs(365 * 24 * 3600))
}
