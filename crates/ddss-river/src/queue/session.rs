//! Membership of a process in a queue, as long as a handle or a message of it lives.

use crate::error::QueueError;
use crate::state::{Ends, Failure, Shared};
use ddss_group::GroupState;
use ddss_runtime::ProgressThread;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Membership of this process in a queue. Dropping it leaves the queue in order.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) queue: String,
    pub(super) message_bytes_max: u32,
    pub(super) timeout: Duration,
    pub(super) shared: Arc<Shared>,
    pub(super) state: GroupState,
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
        let deadline = Instant::now() + self.timeout;
        let mut attempt = |ends: &mut Ends| match ends.failure() {
            Some(failure) => Some(Err(failure)),
            None => attempt(ends).map(Ok),
        };
        match poll_fn(|context| self.shared.poll(context, deadline, &mut attempt)).await {
            Some(result) => result.map_err(|failure| self.failure(failure)),
            None => Err(QueueError::TimedOut { queue: self.queue.clone(), what, waited: self.timeout }),
        }
    }

    /// Waits until all messages of this process are acknowledged, failed or dropped.
    pub(super) async fn flush(&self) -> Result<(), QueueError> {
        self.wait("messages were not acknowledged", |ends| ends.is_flushed().then_some(())).await
    }

    /// Fails if the queue has failed.
    pub(super) fn check(&self) -> Result<(), QueueError> {
        self.shared.serve(|ends| ends.failure()).map_or(Ok(()), |failure| Err(self.failure(failure)))
    }

    fn failure(&self, failure: Failure) -> QueueError {
        let queue = self.queue.clone();
        match failure {
            Failure::Fenced => QueueError::Fenced { queue },
            Failure::Lost(member) => QueueError::Lost { queue, member: member.0 },
            Failure::Stopped => QueueError::Stopped { queue },
        }
    }

    pub(super) fn closed(&self) -> QueueError {
        QueueError::Closed { queue: self.queue.clone() }
    }
}
