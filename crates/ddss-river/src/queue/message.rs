//! A message that the application has taken.

use super::session::Session;
use crate::state::MessageEnd;
use ddss_river_core::Taken;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A message, and the duty to acknowledge it. If it is dropped before, another consumer gets it, or this
/// one again if its producer is dead; the third time it [fails](crate::Queue::failed).
pub struct Message {
    session: Arc<Session>,
    /// `None` once the message is finished.
    taken: Option<Taken>,
    bytes: Vec<u8>,
    is_redelivered: bool,
}

impl Message {
    pub(super) fn new(session: Arc<Session>, taken: Taken, bytes: Vec<u8>) -> Self {
        Self { session, taken: Some(taken), bytes, is_redelivered: taken.header.flags.is_redelivered }
    }

    /// Returns true if an earlier consumer may have processed the message, completely or in part.
    #[must_use]
    pub fn is_redelivered(&self) -> bool {
        self.is_redelivered
    }

    /// Tells the producer that the message is processed. Returns false if the producer does not learn it: it is gone, or gave
    /// the message to another consumer as well. True is no proof: the connection may end before the producer knows.
    pub fn acknowledge(mut self) -> bool {
        self.finish(MessageEnd::Processed)
    }

    /// Gives the message to another consumer, or back to this one if its producer is dead, flagged as redelivered: its end here
    /// counts as no failure. At most once, it is dropped.
    pub fn give_back(mut self) {
        self.finish(MessageEnd::GivenBack);
    }

    fn finish(&mut self, end: MessageEnd) -> bool {
        let Some(taken) = self.taken.take() else { return false };
        self.session.shared.counters.count_finished();
        self.session.shared.call(|ends| ends.finish(taken, end))
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, is_redelivered, .. } = self;
        f.debug_struct("Message").field("bytes", &bytes.len()).field("is_redelivered", is_redelivered).finish()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.finish(MessageEnd::Rejected);
    }
}
