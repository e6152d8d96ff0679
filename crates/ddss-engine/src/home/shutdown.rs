//! Shutdown: callers that have nothing to wait for any more on a node that was told to stop.

use crate::config::Now;
use crate::home::handler::Home;
use crate::requester::{ReplyFields, Requester};
use ddss_core::{Failure, Outcome};

impl Home<'_> {
    /// Answers waiters before the node stops. A lock would end with the node, and no client starts a put any more, so
    /// waiters for a lock or a version are failed, and so are sweeps. With `all`, every queued operation is failed: none of
    /// them has started.
    pub(crate) fn fail_waiters(&mut self, now: Now, all: bool) {
        self.fail_all_sweeps(Self::shutdown_failure);
        let busy: Vec<_> = (0..).map_while(|index| self.segments.busy(index)).collect();
        for id in busy {
            let Some(segment) = self.segments.watched(id) else { continue };
            let (waiters, watchers) = segment.lock_queue.drain_blocked(all);
            for waiter in waiters {
                self.fail_waiter(&waiter, Self::shutdown_failure(waiter.requester));
            }
            for watcher in watchers {
                self.output.answer(
                    watcher.requester,
                    Outcome::Failed(Self::shutdown_failure(watcher.requester)),
                    ReplyFields::default(),
                );
            }
            self.serve_lock_queue(now, id);
        }
    }

    /// Returns the failure that tells a requester of the shutdown.
    fn shutdown_failure(requester: Requester) -> Failure {
        match requester {
            Requester::Client(..) => Failure::GoingDown,
            Requester::Peer(..) => Failure::NodeDown,
        }
    }
}
