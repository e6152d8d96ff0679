//! Membership of a process in a queue, as long as a handle or a message of it lives.

use crate::error::QueueError;
use crate::link::FAILED;
use crate::state::{Ends, Failure, Shared};
use ddss_group::GroupState;
use ddss_runtime::ProgressThread;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Deadline of calls that wait for ever.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Membership of this process in a queue. Dropping it leaves the queue in order.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) queue: String,
    pub(super) message_bytes_max: u32,
    pub(super) timeout: Duration,
    pub(super) shared: Arc<Shared>,
    pub(super) state: GroupState,
    /// The loss of a member was told to the others.
    pub(super) has_told: AtomicBool,
    /// The queue was closed when this process joined.
    pub(super) was_closed: bool,
    /// Stopped when the session is dropped.
    pub(super) _thread: ProgressThread,
}

impl Session {
    /// Makes attempts until one has a result, at every change, up to the deadline. `what` says what has not happened then.
    pub(super) async fn wait<T>(
        &self,
        what: &'static str,
        mut attempt: impl FnMut(&mut Ends) -> Option<T>,
    ) -> Result<T, QueueError> {
        let now = Instant::now();
        let deadline = now.checked_add(self.timeout).unwrap_or(now + FAR);
        let mut attempt = |ends: &mut Ends| match ends.failure() {
            Some(failure) => Some(Err(failure)),
            None => attempt(ends).map(Ok),
        };
        match poll_fn(|context| self.shared.poll(context, deadline, &mut attempt)).await {
            Some(result) => result.map_err(|failure| self.failure(failure)),
            None => Err(QueueError::TimedOut { queue: self.queue.clone(), what, waited: self.timeout }),
        }
    }

    /// Waits until all messages of this process are acknowledged. Fails if some failed or were dropped since the last report.
    pub(super) async fn flush(&self) -> Result<(), QueueError> {
        let flushed = |ends: &mut Ends| (ends.held() == 0).then(|| ends.take_unprocessed());
        match self.wait("messages were not acknowledged", flushed).await? {
            0 => Ok(()),
            messages => Err(QueueError::Unprocessed { queue: self.queue.clone(), messages }),
        }
    }

    /// Fails if other members have lost this process: then they have the rest of its messages, and this is not the end.
    pub(super) fn check_place(&self) -> Result<(), QueueError> {
        // Without an answer nothing says that others have lost it.
        match self.state.has_place() {
            Ok(false) => Err(QueueError::Fenced { queue: self.queue.clone() }),
            _ => Ok(()),
        }
    }

    /// Fails if the queue has failed.
    pub(super) fn check(&self) -> Result<(), QueueError> {
        self.shared.serve(|ends| ends.failure()).map_or(Ok(()), |failure| Err(self.failure(failure)))
    }

    fn failure(&self, failure: Failure) -> QueueError {
        let queue = self.queue.clone();
        match failure {
            Failure::Fenced => QueueError::Fenced { queue },
            Failure::Lost(member) => {
                // Those who have not seen it must not take the end of the rest for the end of the queue.
                if !self.has_told.swap(true, Ordering::AcqRel) {
                    let _ = self.state.raise(FAILED);
                }
                QueueError::Lost { queue, member: member.0 }
            }
            Failure::Ended => QueueError::Ended { queue },
            Failure::Stopped => QueueError::Stopped { queue },
        }
    }

    pub(super) fn closed(&self) -> QueueError {
        QueueError::Closed { queue: self.queue.clone() }
    }
}
