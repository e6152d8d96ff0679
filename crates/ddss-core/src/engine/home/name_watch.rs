//! Watches of the names of the segments here. A watcher learns that names have changed and asks for the list, which shows
//! each user only what that user may know.

use crate::engine::home::handler::Home;
use crate::engine::requester::ReplyFields;
use crate::engine::state::lock_queue::Watcher;
use crate::{Failure, Outcome, Timestamp};

impl Home<'_> {
    /// Watches for a change of the names after `watcher.above`, or answers at once.
    pub(crate) fn await_names(&mut self, watcher: Watcher) -> Result<(), Failure> {
        let (id, version) = self.segments.names_version();
        if self.segments.have_names_changed(watcher.above) {
            let fields = ReplyFields::of((version, Timestamp(0)), 0);
            self.output.answer(watcher.requester, Outcome::Done, fields);
            return Ok(());
        }
        self.watch(id, watcher)
    }

    /// Tells the watchers of names that a list may have changed: a segment was made, released or given to other users,
    /// or a node came or went.
    pub(crate) fn announce_names(&mut self) {
        self.segments.advance_names();
        let (id, version) = self.segments.names_version();
        self.notify_watchers(id, version, Timestamp(0));
    }
}
