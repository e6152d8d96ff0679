//! What another node's engine asks of this one, the home.

use super::action::{Action, Source};
use super::core::{Engine, Now};
use super::guard::{Asker, Owner, Waiter, Wanted, Watcher};
use super::near::Told;
use super::operations::StepId;
use crate::limits::{STAGING_BYTES, TIMEOUT_DEFAULT_US};
use crate::segment::{Identity, Wish};
use crate::{Failure, Message, NodeId, Outcome, SegmentId};

impl Engine {
    /// A message came from a peer, with what stands behind its fields.
    pub fn message(&mut self, now: Now, node: NodeId, message: &Message, tail: &[u8]) {
        if self.peers.reachable(node).is_none() {
            return;
        }
        let deadline = |timeout_us: u32| now.steady_us.saturating_add(timeout_us.into());
        let asked = match *message {
            Message::Welcome { .. } => {
                self.act(Action::Cut { node });
                return;
            }
            Message::Lookup { step, who, name } => {
                let found = self.segments.by_name(&name).ok_or(Failure::NotFound);
                found.and_then(|id| self.introduce_to(node, step, who, id)).map_err(|failure| (step, failure))
            }
            Message::Describe { step, who, segment } => {
                self.introduce_to(node, step, who, segment).map_err(|failure| (step, failure))
            }
            Message::Allocate { step, who, spec, name } => {
                let made = self.make_here(now, Asker::Peer(node, step), who, name, spec, TIMEOUT_DEFAULT_US);
                made.map_err(|failure| (step, failure))
            }
            Message::Put { step, who, segment, offset, length, staged, terms, timeout_us } => {
                let asker = Asker::Peer(node, step);
                let deadline_us = deadline(timeout_us);
                let asked = self.source_of(node, length, staged, tail).and_then(|source| {
                    let wanted = Wanted::Put { offset, length, source, terms };
                    let asked = self.ask_home(now, segment, Waiter { asker, who, wanted, deadline_us });
                    asked.inspect_err(|_| self.forget_kept(source))
                });
                asked.map_err(|failure| (step, failure))
            }
            Message::Atomic { step, who, segment, offset, change, timeout_us } => {
                let wanted = Wanted::Atomic { offset, change };
                let waiter = Waiter { asker: Asker::Peer(node, step), who, wanted, deadline_us: deadline(timeout_us) };
                let aligned = if offset.is_multiple_of(8) { Ok(()) } else { Err(Failure::Unaligned) };
                aligned.and_then(|()| self.ask_home(now, segment, waiter)).map_err(|failure| (step, failure))
            }
            Message::Lock { step, who, segment, wish, timeout_us } => {
                let wanted = Wanted::Lock(wish);
                let waiter = Waiter { asker: Asker::Peer(node, step), who, wanted, deadline_us: deadline(timeout_us) };
                self.ask_home(now, segment, waiter).map_err(|failure| (step, failure))
            }
            Message::Await { step, who, segment, above, timeout_us } => {
                let asker = Asker::Peer(node, step);
                let watcher = Watcher { asker, above, deadline_us: deadline(timeout_us) };
                self.await_here(segment, who, watcher).map_err(|failure| (step, failure))
            }
            Message::Unlock { step, segment, token } => {
                let unlocked = self.unlock_here(now, segment, token, Owner::Peer(node));
                unlocked
                    .map(|told| self.answer(Asker::Peer(node, step), Outcome::Done, told))
                    .map_err(|failure| (step, failure))
            }
            Message::Release { step, who, segment } => {
                self.release_named(now, Asker::Peer(node, step), who, segment).map_err(|failure| (step, failure))
            }
            Message::Found { step, facts, window } => {
                self.found(now, node, StepId::from_bits(step), facts, window);
                Ok(())
            }
            Message::Ended { step, outcome, version, timestamp, word } => {
                let told = Told { version, timestamp, word };
                self.ended(now, node, StepId::from_bits(step), outcome, told);
                Ok(())
            }
            Message::Forget { segment } => {
                self.forget(node, segment);
                Ok(())
            }
            Message::Forgotten { segment } => {
                self.segments.forgotten(node, Some(segment));
                self.reclaim();
                Ok(())
            }
        };
        if let Err((step, failure)) = asked {
            self.answer(Asker::Peer(node, step), Outcome::Failed(failure), Told::default());
        }
    }

    /// Where the bytes of a put are. Those behind the message are kept here, since the put may have to wait.
    fn source_of(&mut self, node: NodeId, length: u32, staged: u64, tail: &[u8]) -> Result<Source, Failure> {
        match staged {
            Message::NOT_STAGED => {
                let bytes = tail.try_into().map_err(|_| Failure::TooLarge)?;
                Ok(Source::Kept(self.kept.insert(bytes)))
            }
            at if at.saturating_add(length.into()) <= STAGING_BYTES as u64 => Ok(Source::Staged { node, at }),
            _ => Err(Failure::OutOfRange),
        }
    }

    fn forget_kept(&mut self, source: Source) {
        if let Source::Kept(kept) = source {
            self.kept.remove(&kept);
        }
    }

    /// Gives a peer a window over a segment, if the one for whom it asks may look at it.
    fn introduce_to(&mut self, node: NodeId, step: u64, who: Identity, id: SegmentId) -> Result<(), Failure> {
        let permissions = self.segments.get(id)?.permissions;
        permissions.allow(who, Wish::Read).or_else(|_| permissions.allow(who, Wish::Write))?;
        self.introduce(node, step, id)
    }

    pub(super) fn introduce(&mut self, node: NodeId, step: u64, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        if !segment.seen_by.contains(&node) {
            segment.seen_by.push(node);
        }
        let (at, bytes) = (segment.at, segment.pool_bytes());
        let message = Message::Found { step, facts: segment.facts(id), window: Default::default() };
        self.act(Action::Introduce { node, message, at, bytes });
        Ok(())
    }
}
