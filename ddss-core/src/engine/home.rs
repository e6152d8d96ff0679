//! What another node's engine asks of this one, the home.

use super::action::{Action, Source};
use super::core::{Engine, Now};
use super::operations::StepId;
use crate::limits::STAGING_BYTES;
use crate::segment::{Identity, Wish};
use crate::{Failure, Message, NodeId, Outcome, SegmentId, Timestamp, Version};

impl Engine {
    /// A message came from a peer. Its tail stays with the caller, as [`Source::Tail`].
    pub fn message(&mut self, now: Now, node: NodeId, message: &Message) {
        if self.peers.reachable(node).is_none() {
            return;
        }
        match *message {
            Message::Welcome { .. } => self.act(Action::Cut { node }),
            Message::Lookup { step, who, name } => {
                let found = self.segments.by_name(&name).ok_or(Failure::NotFound);
                let result = found.and_then(|id| self.introduce(node, step, who, id));
                self.answer_failure(node, step, result);
            }
            Message::Describe { step, who, segment } => {
                let result = self.introduce(node, step, who, segment);
                self.answer_failure(node, step, result);
            }
            Message::Allocate { step, who, spec, name } => {
                let made = self.allocate_here(now, who, name, spec);
                let result = made.and_then(|id| self.introduce(node, step, who, id));
                self.answer_failure(node, step, result);
            }
            Message::Put { step, who, segment, offset, length, staged } => {
                let source = match staged {
                    Message::NOT_STAGED => Ok(Source::Tail),
                    at if at.saturating_add(length.into()) <= STAGING_BYTES as u64 => Ok(Source::Staged { node, at }),
                    _ => Err(Failure::OutOfRange),
                };
                let result = source.and_then(|source| self.commit(now, who, segment, offset, length, source));
                self.answer(node, step, result);
            }
            Message::Release { step, who, segment } => {
                let result = self.release_here(now, who, segment);
                self.answer(node, step, result.map(|()| (Version(0), Timestamp(0))));
            }
            Message::Found { step, facts, window } => {
                self.found(now, node, StepId::from_bits(step), facts, window);
            }
            Message::Ended { step, outcome, version, timestamp } => {
                self.ended(now, node, StepId::from_bits(step), outcome, version, timestamp);
            }
            Message::Forget { segment } => self.forget(node, segment),
            Message::Forgotten { segment } => {
                self.segments.forgotten(node, Some(segment));
                self.reclaim();
            }
        }
    }

    /// Gives a peer a window over a segment, if the one for whom it asks may look at it.
    fn introduce(&mut self, node: NodeId, step: u64, who: Identity, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        let read = segment.permissions.allow(who, Wish::Read);
        read.or_else(|_| segment.permissions.allow(who, Wish::Write))?;
        if !segment.seen_by.contains(&node) {
            segment.seen_by.push(node);
        }
        let (at, bytes) = (segment.at, segment.pool_bytes());
        let message = Message::Found { step, facts: segment.facts(id), window: Default::default() };
        self.act(Action::Introduce { node, message, at, bytes });
        Ok(())
    }

    fn answer_failure(&mut self, node: NodeId, step: u64, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.answer(node, step, Err(failure));
        }
    }

    fn answer(&mut self, node: NodeId, step: u64, result: Result<(Version, Timestamp), Failure>) {
        let (outcome, (version, timestamp)) = match result {
            Ok(stamp) => (Outcome::Done, stamp),
            Err(failure) => (Outcome::Failed(failure), Default::default()),
        };
        self.send(node, Message::Ended { step, outcome, version, timestamp });
    }
}
