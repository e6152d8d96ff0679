//! The names of segments, which the page does not tell: the daemon is asked, so that nobody learns a name that he may
//! not see.

use crate::arguments::Place;
use ddss::{Client, SegmentId};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often the daemon is asked at the most, while there are segments without a name.
const ASK_EACH: Duration = Duration::from_secs(5);

/// The names that are known.
#[derive(Default)]
pub(super) struct Names {
    client: Option<Client>,
    names: HashMap<SegmentId, String>,
    asked: Option<Instant>,
}

impl Names {
    /// Asks for the names if one of these is not known. A daemon that does not answer leaves its segments their numbers.
    pub(super) fn learn(&mut self, place: &Place, shown: impl Iterator<Item = SegmentId>) {
        let unknown = shown.into_iter().any(|segment| !self.names.contains_key(&segment));
        if !unknown || self.asked.is_some_and(|asked| asked.elapsed() < ASK_EACH) {
            return;
        }
        self.asked = Some(Instant::now());
        if self.client.is_none() {
            self.client = Client::builder().folder(place.folder()).channels(1).arena_bytes(1 << 16).connect().ok();
        }
        let Some(client) = &self.client else { return };
        let Ok(listings) = client.list("") else { return };
        for listing in listings {
            // Without a daemon there is nothing more to hear; the next one is asked again.
            let Ok(listing) = listing else { return self.client = None };
            self.names.insert(listing.facts.segment, listing.name.to_string());
        }
    }

    pub(super) fn of(&self, segment: SegmentId) -> String {
        self.names.get(&segment).cloned().unwrap_or_else(|| segment.to_string())
    }
}
