//! Who answers what comes out of the rings.

use ddss_core::{Entry, LaneId};

use crate::follow::Followed;

/// Answers requests, one after the other: [`Station::serve`](crate::Station::serve). A function of the same arguments is
/// one that has nothing more to do once an answer is out.
pub trait Service {
    /// Answers a request, or gives nothing: then it is under way. With some of them comes when they were sent and taken.
    fn answer(&mut self, lane: LaneId, request: &Entry, followed: Option<Followed>) -> Option<Entry>;

    /// The answer is out: what the client does not have to wait for is done here.
    #[inline(always)]
    fn answered(&mut self, _lane: LaneId, _request: &Entry, _answer: &Entry, _followed: Option<Followed>) {}
}

impl<F: FnMut(LaneId, &Entry, Option<Followed>) -> Option<Entry>> Service for F {
    #[inline(always)]
    fn answer(&mut self, lane: LaneId, request: &Entry, followed: Option<Followed>) -> Option<Entry> {
        self(lane, request, followed)
    }
}
