//! A node that was told to stop: who has nothing to wait for any more.

use super::engine::{Engine, Now};
use super::home::home_ops::ReplyFields;
use super::state::lock_queue::Requester;
use crate::{Failure, Outcome};

impl Engine {
    /// The node stops soon. Whoever waits for a lock, or for a newer version, is told so: a lock would end with the node,
    /// and nobody begins a put any more. With `all`, so is everybody else in a line: nothing of what they want was begun.
    pub fn turn_waiters_away(&mut self, now: Now, all: bool) {
        let busy: Vec<_> = (0..).map_while(|index| self.segments.busy(index)).collect();
        for id in busy {
            let Ok(segment) = self.segments.get_mut(id) else { continue };
            let (waiters, watchers) = segment.guard.hopeless(all);
            for waiter in waiters {
                self.turn_away(&waiter, Self::told_to(waiter.asker));
            }
            for watcher in watchers {
                self.answer(watcher.asker, Outcome::Failed(Self::told_to(watcher.asker)), ReplyFields::default());
            }
            self.serve_line(now, id);
        }
    }

    /// What the end of this node is to whoever asked.
    fn told_to(asker: Requester) -> Failure {
        match asker {
            Requester::Client(..) => Failure::GoingDown,
            Requester::Peer(..) => Failure::NodeDown,
        }
    }
}
