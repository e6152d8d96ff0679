//! The taking end.

use super::block_on::block_on;
use super::message::Message;
use super::session::Session;
use crate::error::QueueError;
use ddss_river_core::Take;
use std::sync::Arc;

/// Takes messages of a queue. Producers send to a process from its first `take` on. While the last consumer of a process is
/// dropped, messages that wait for it go to others.
#[derive(Debug)]
pub struct Consumer {
    session: Arc<Session>,
}

impl Consumer {
    pub(super) fn new(session: Arc<Session>) -> Self {
        session.shared.call(|ends| ends.add_consumer());
        Self { session }
    }

    /// Takes the next message; waits for it up to the deadline of the queue. `None` means that the queue is closed, and no
    /// message is left for this process.
    ///
    /// # Errors
    /// No message came in time, the other members have lost this process, or the queue has failed.
    pub fn take(&mut self) -> Result<Option<Message>, QueueError> {
        block_on(self.next())
    }

    /// Returns the same consumer with calls that are futures, for any executor.
    #[must_use]
    pub fn aio(self) -> AsyncConsumer {
        AsyncConsumer(self)
    }

    pub(crate) async fn next(&self) -> Result<Option<Message>, QueueError> {
        loop {
            let taken = self.session.wait("no message came to this consumer", |ends| match ends.take() {
                (Take::Message(taken), bytes) => Some(Some((taken, bytes))),
                (Take::Ended, _) if ends.is_closed() => Some(None),
                // A fenced consumer has a failure.
                _ => None,
            });
            let idle = self.session.shared.counters.idle.stay();
            let taken = taken.await;
            drop(idle);
            let Some((taken, bytes)) = taken? else {
                self.session.check_place()?;
                return Ok(None);
            };
            if crc32c::crc32c(&bytes) == taken.header.checksum {
                self.session.shared.counters.count_taken();
                return Ok(Some(Message::new(self.session.clone(), taken, bytes)));
            }
            // Its producer sends it to another consumer, or again.
            self.session.shared.call(|ends| ends.report_damage(taken));
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.session.shared.call(|ends| ends.remove_consumer());
    }
}

/// A [`Consumer`] whose calls are futures, for any executor.
#[derive(Debug)]
pub struct AsyncConsumer(Consumer);

impl AsyncConsumer {
    /// Takes the next message: [`Consumer::take`]. A future that is dropped takes none.
    ///
    /// # Errors
    /// The errors of [`Consumer::take`].
    pub async fn take(&mut self) -> Result<Option<Message>, QueueError> {
        self.0.next().await
    }
}
