//! Cache of segment names. The status page has only ids; the daemon reveals a name only to users with permission.

use crate::arguments::DaemonOptions;
use ddss::{Client, ConnectOptions, SegmentId};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Minimum interval between two requests, while some segments have no name.
const REQUEST_INTERVAL: Duration = Duration::from_secs(5);

/// Names of segments by id.
#[derive(Default)]
pub(super) struct NameCache {
    client: Option<Client>,
    names: HashMap<SegmentId, String>,
    asked: Option<Instant>,
}

impl NameCache {
    /// Asks the daemon for names if one of these is unknown. Without an answer, segments are shown by their ids.
    pub(super) fn refresh(&mut self, place: &DaemonOptions, shown: impl Iterator<Item = SegmentId>) {
        let unknown = shown.into_iter().any(|segment| !self.names.contains_key(&segment));
        if !unknown || self.asked.is_some_and(|asked| asked.elapsed() < REQUEST_INTERVAL) {
            return;
        }
        self.asked = Some(Instant::now());
        if self.client.is_none() {
            self.client =
                Client::connect_with(ConnectOptions::new().directory(place.folder()).channels(1).arena_len(1 << 16))
                    .ok();
        }
        let Some(client) = &self.client else { return };
        for listing in client.list("") {
            // The daemon has ended: drop the connection, and ask the next daemon later.
            let Ok(listing) = listing else { return self.client = None };
            self.names.insert(listing.id, listing.name);
        }
    }

    pub(super) fn of(&self, segment: SegmentId) -> String {
        self.names.get(&segment).cloned().unwrap_or_else(|| segment.to_string())
    }
}
