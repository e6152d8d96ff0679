//! Requests of peers that wait until a page of this home has their stamps.

use crate::model::{PageId, Rank, VectorTime};
use std::collections::{BTreeMap, BTreeSet};

/// A request of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedRequest {
    pub(crate) requester: Rank,
    pub(crate) slot: u16,
    pub(crate) needed: VectorTime,
    /// True if the peer gets the page, false if it only gets a report.
    pub(crate) sends_page: bool,
}

/// Waiting requests, one at most for each landing slot of a peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedRequests {
    pages: BTreeMap<PageId, Vec<ServedRequest>>,
    slots: BTreeSet<(Rank, u16)>,
}

impl ServedRequests {
    /// Adds a request. Returns false if the peer has one for this slot already: no rank asks twice.
    pub(crate) fn push(&mut self, page: PageId, request: ServedRequest) -> bool {
        let is_new = self.slots.insert((request.requester, request.slot));
        if is_new {
            self.pages.entry(page).or_default().push(request);
        }
        is_new
    }

    /// Takes the requests that a page with these stamps satisfies.
    pub(crate) fn take_ready(&mut self, page: PageId, stamps: &VectorTime) -> Vec<ServedRequest> {
        let Some(requests) = self.pages.get_mut(&page) else { return Vec::new() };
        let ready: Vec<_> = requests.extract_if(.., |request| stamps.covers(&request.needed)).collect();
        if requests.is_empty() {
            self.pages.remove(&page);
        }
        for request in &ready {
            self.slots.remove(&(request.requester, request.slot));
        }
        ready
    }
}
