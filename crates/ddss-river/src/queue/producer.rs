//! The putting end.

use super::block_on::block_on;
use super::session::Session;
use crate::error::QueueError;
use crate::state::Ends;
use std::sync::Arc;

/// Puts messages into a queue. They stay in the memory of this process until a consumer has acknowledged them.
#[derive(Clone, Debug)]
pub struct Producer {
    session: Arc<Session>,
}

impl Producer {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    /// Puts a message; waits for room up to the deadline of the queue. It returns before the message is delivered.
    ///
    /// # Errors
    /// The message is above the limit, the queue is closed, no room came in time, or the queue has failed. The message was not
    /// put then.
    pub fn put(&self, bytes: &[u8]) -> Result<(), QueueError> {
        block_on(self.send(bytes))
    }

    /// Waits until consumers have acknowledged all messages of this process. Messages that are not acknowledged when the
    /// process ends are lost.
    ///
    /// # Errors
    /// A message failed or was not acknowledged in time, or the queue has failed.
    pub fn flush(&self) -> Result<(), QueueError> {
        block_on(self.session.flush())
    }

    /// Returns the same producer with calls that are futures, for any executor.
    #[must_use]
    pub fn aio(self) -> AsyncProducer {
        AsyncProducer(self)
    }

    /// Returns the number of the next message of this process.
    pub(crate) fn next_index(&self) -> u64 {
        self.session.shared.serve(|ends| ends.producer().next_index())
    }

    /// Returns the messages of this process before this number that are neither acknowledged nor failed.
    pub(crate) fn held_before(&self, index: u64) -> usize {
        self.session.shared.serve(|ends| ends.producer().held_before(index))
    }

    /// Waits until each message of this process before this number is acknowledged, or has failed.
    pub(crate) async fn settle(&self, index: u64) -> Result<(), QueueError> {
        let settled = |ends: &mut Ends| (ends.producer().held_before(index) == 0).then_some(());
        self.session.wait("messages were not acknowledged", settled).await
    }

    /// Takes the number of messages that failed or were dropped since the last report.
    pub(crate) fn take_unprocessed(&self) -> u64 {
        self.session.shared.serve(Ends::take_unprocessed)
    }

    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<(), QueueError> {
        let Session { queue, message_bytes_max: max, shared, .. } = &*self.session;
        let length = u32::try_from(bytes.len()).ok().filter(|length| length <= max);
        let Some(length) = length else {
            return Err(QueueError::TooLong { queue: queue.clone(), bytes: bytes.len(), max: *max });
        };
        let checksum = crc32c::crc32c(bytes);
        let reserved = self.session.wait("no consumer made room for a message", |ends| {
            if ends.is_closed() {
                Some(None)
            } else {
                ends.reserve().map(|slot| Some((slot, ends.send_slots().clone())))
            }
        });
        let blocked = shared.counters.blocked.stay();
        let reserved = reserved.await;
        drop(blocked);
        let Some((slot, slots)) = reserved? else { return Err(self.session.closed()) };
        // Outside of the lock: nothing else uses a reserved slot.
        slots.write(slot, bytes);
        if !shared.call(|ends| ends.put(slot, length, checksum)) {
            return Err(self.session.closed());
        }
        shared.counters.count_put(bytes.len());
        Ok(())
    }
}

/// A [`Producer`] whose calls are futures, for any executor.
#[derive(Clone, Debug)]
pub struct AsyncProducer(Producer);

impl AsyncProducer {
    /// Puts a message: [`Producer::put`]. A future that is dropped before it is ready puts none.
    ///
    /// # Errors
    /// The errors of [`Producer::put`].
    pub async fn put(&self, bytes: &[u8]) -> Result<(), QueueError> {
        self.0.send(bytes).await
    }

    /// Waits until all messages are acknowledged: [`Producer::flush`].
    ///
    /// # Errors
    /// The errors of [`Producer::flush`].
    pub async fn flush(&self) -> Result<(), QueueError> {
        self.0.session.flush().await
    }
}
