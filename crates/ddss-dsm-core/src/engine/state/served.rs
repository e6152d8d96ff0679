//! Requests of peers that wait until a page of this home has their stamps.

use crate::model::{PageId, Rank, VectorTime};
use std::collections::BTreeMap;

/// A request of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedRequest {
    pub(crate) requester: Rank,
    pub(crate) slot: u16,
    pub(crate) needed: VectorTime,
    /// True if the peer gets the page, false if it only gets a report.
    pub(crate) sends_page: bool,
}

/// Waiting requests by page.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedRequests(BTreeMap<PageId, Vec<ServedRequest>>);

impl ServedRequests {
    /// Adds a request. Returns false if the peer has one for this page already: no rank asks twice.
    pub(crate) fn push(&mut self, page: PageId, request: ServedRequest) -> bool {
        let requests = self.0.entry(page).or_default();
        let is_new = requests.iter().all(|known| known.requester != request.requester);
        if is_new {
            requests.push(request);
        }
        is_new
    }

    /// Takes the requests that a page with these stamps satisfies.
    pub(crate) fn take_ready(&mut self, page: PageId, stamps: &VectorTime) -> Vec<ServedRequest> {
        let Some(requests) = self.0.get_mut(&page) else { return Vec::new() };
        let ready: Vec<_> = requests.extract_if(.., |request| stamps.covers(&request.needed)).collect();
        if requests.is_empty() {
            self.0.remove(&page);
        }
        ready
    }
}
