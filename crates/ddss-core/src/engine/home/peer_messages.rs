//! What another node's engine asks of this one, the home.

use super::home_ops::ReplyFields;
use crate::engine::action::{Action, CommitSource, RangeSet};
use crate::engine::engine::{Engine, Now};
use crate::engine::fault_injection::planted;
use crate::engine::remote::served_get::ServedReply;
use crate::engine::state::lock_queue::{Destination, Get, LockOwner, PendingOp, Requester, Waiter, Watcher};
use crate::engine::state::pending::StepId;
use crate::limits::{TIMEOUT_DEFAULT_US, TRANSFER_BYTES_MAX};
use crate::model::coherence::LockDependency;
use crate::model::segment::{Access, Principal};
use crate::request::listing::ListQuery;
use crate::request::operation::ReadOptions;
use crate::request::ranges::Ranges;
use crate::{Failure, Message, NodeId, Outcome, SegmentId, Timestamp};

impl Engine {
    /// A message came from a peer, with that peer's clock and what stands behind its fields. What is made here from now
    /// on is later than everything that was known there.
    pub fn message(&mut self, now: Now, node: NodeId, clock: Timestamp, message: &Message, tail: &[u8]) {
        if self.peers.reachable(node).is_none() {
            return;
        }
        if !planted!(self, DeafClock) {
            self.clock.hear(clock, now.wall_us);
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
                let made = self.make_here(now, Requester::Peer(node, step), who, name, spec, TIMEOUT_DEFAULT_US);
                made.map_err(|failure| (step, failure))
            }
            Message::Put { step, who, segment, offset, length, staged, ranges, terms, timeout_us } => {
                let asker = Requester::Peer(node, step);
                let deadline_us = deadline(timeout_us);
                let asked = self.put_of(node, (offset, length), staged, ranges, tail).and_then(|(parts, source)| {
                    let wanted = PendingOp::Put { parts, source, terms };
                    let asked = self.ask_home(now, segment, Waiter { asker, who, wanted, deadline_us });
                    asked.inspect_err(|_| self.drop_kept(&wanted))
                });
                asked.map_err(|failure| (step, failure))
            }
            Message::Get { step, who, segment, offset, length, ranges, look, token, timeout_us } => {
                let (asker, deadline_us) = (Requester::Peer(node, step), deadline(timeout_us));
                let minds = self.minds_of_get(segment, &look);
                let asked = self.parts_of((offset, length), ranges, tail).and_then(|parts| {
                    let get = Get { parts, sink: Destination::Peer, minds: minds?, version: look.version, token };
                    let waiter = Waiter { asker, who, wanted: PendingOp::Get(get), deadline_us };
                    self.ask_home(now, segment, waiter).inspect_err(|_| self.give_up_table(&parts))
                });
                asked.map_err(|failure| (step, failure))
            }
            Message::Got { step, version, timestamp, length, staged, number } => {
                self.clock.hear(timestamp, now.wall_us);
                let got = ServedReply { version, timestamp, length, staged, number };
                self.got(node, StepId::from_bits(step), got, tail);
                Ok(())
            }
            Message::Taken { number } => {
                self.taken(node, number);
                Ok(())
            }
            Message::List { step, who } => {
                let query = ListQuery::decode(tail).map_err(|failure| (step, failure));
                query.map(|query| self.list_here(now, node, step, who, &query))
            }
            Message::Stat { step, who, segment } => {
                self.stat_here(now, node, step, who, segment).map_err(|failure| (step, failure))
            }
            Message::Listed { step, more } => {
                self.listed(node, StepId::from_bits(step), more, tail);
                Ok(())
            }
            Message::Permit { step, who, segment, permit } => {
                let asker = Requester::Peer(node, step);
                self.permit_here(now, who, segment, permit, asker).map_err(|failure| (step, failure))
            }
            Message::Break { step, who, segment } => {
                self.break_here(now, who, segment, Requester::Peer(node, step)).map_err(|failure| (step, failure))
            }
            Message::Cancel { step, segment } => {
                self.cancel_here(now, segment, Requester::Peer(node, step));
                Ok(())
            }
            Message::Changed { facts } => {
                self.facts_changed(node, facts);
                Ok(())
            }
            Message::Atomic { step, who, segment, offset, change, token, timeout_us } => {
                let wanted = PendingOp::Atomic { offset, change, token };
                let waiter =
                    Waiter { asker: Requester::Peer(node, step), who, wanted, deadline_us: deadline(timeout_us) };
                let aligned = if offset.is_multiple_of(8) { Ok(()) } else { Err(Failure::Unaligned) };
                aligned.and_then(|()| self.ask_home(now, segment, waiter)).map_err(|failure| (step, failure))
            }
            Message::Lock { step, who, segment, wish, timeout_us } => {
                let wanted = PendingOp::Lock(wish);
                let waiter =
                    Waiter { asker: Requester::Peer(node, step), who, wanted, deadline_us: deadline(timeout_us) };
                self.ask_home(now, segment, waiter).map_err(|failure| (step, failure))
            }
            Message::Await { step, who, segment, above, timeout_us } => {
                let asker = Requester::Peer(node, step);
                let watcher = Watcher { asker, above, deadline_us: deadline(timeout_us) };
                self.await_here(now, segment, who, watcher).map_err(|failure| (step, failure))
            }
            Message::Unlock { step, segment, token } => {
                let unlocked = self.unlock_here(now, segment, token, LockOwner::Peer(node));
                unlocked
                    .map(|told| self.answer(Requester::Peer(node, step), Outcome::Done, told))
                    .map_err(|failure| (step, failure))
            }
            Message::Release { step, who, segment } => {
                self.release_named(now, Requester::Peer(node, step), who, segment).map_err(|failure| (step, failure))
            }
            Message::Found { step, facts, window } => {
                self.found(now, node, StepId::from_bits(step), facts, window);
                Ok(())
            }
            Message::Ended { step, outcome, version, timestamp, word } => {
                let told = ReplyFields { version, timestamp, word };
                self.ended(now, node, StepId::from_bits(step), outcome, told);
                Ok(())
            }
            Message::Offer { .. }
            | Message::Having { .. }
            | Message::Piece { .. }
            | Message::Whole { .. }
            | Message::Forward { .. }
            | Message::Mirrored { .. } => {
                self.mirror_message(now, node, message, tail);
                Ok(())
            }
            Message::Forget { segment } => {
                self.forget(now, node, segment);
                Ok(())
            }
            Message::Forgotten { segment } => {
                self.segments.forgotten(node, Some(segment));
                self.reclaim();
                Ok(())
            }
        };
        if let Err((step, failure)) = asked {
            let failure = self.why(message.segment(), failure);
            self.answer(Requester::Peer(node, step), Outcome::Failed(failure), ReplyFields::default());
        }
    }

    /// Which bytes a message means: one range, or those of the table behind it, which is kept.
    pub(crate) fn parts_of(&mut self, one: (u64, u32), ranges: u8, table: &[u8]) -> Result<RangeSet, Failure> {
        let (offset, bytes) = one;
        if ranges == 0 {
            return if bytes as usize <= TRANSFER_BYTES_MAX {
                Ok(RangeSet::One { offset, bytes })
            } else {
                Err(Failure::TooLarge)
            };
        }
        let sum = Ranges::decode(table)?.sum();
        if sum == bytes { Ok(self.keep_table(table, sum)) } else { Err(Failure::Malformed) }
    }

    /// Which bytes a put writes, and where they are. Those behind the message are kept here, since the put may have to
    /// wait.
    fn put_of(
        &mut self,
        node: NodeId,
        one: (u64, u32),
        staged: u64,
        ranges: u8,
        tail: &[u8],
    ) -> Result<(RangeSet, CommitSource), Failure> {
        let parts = self.parts_of(one, ranges, if ranges == 0 { &[] } else { tail })?;
        match staged {
            Message::NOT_STAGED if ranges > 0 || tail.len() > Message::PUT_BYTES_MAX => {
                self.give_up_table(&parts);
                Err(Failure::Malformed)
            }
            Message::NOT_STAGED => Ok((parts, CommitSource::Kept(self.kept.insert(tail)))),
            at => Ok((parts, CommitSource::Staged { node, at })),
        }
    }

    /// Whose lock a get of a segment at home here waits for. A version that is named is there or not.
    pub(crate) fn minds_of_get(&self, segment: SegmentId, look: &ReadOptions) -> Result<LockDependency, Failure> {
        let model = self.segments.get(segment)?.spec.model;
        match model.get_rules(look.asks).minds {
            _ if look.version.is_some() => Ok(LockDependency::Nobody),
            LockDependency::Anyone if planted!(self, ReadTogether) => Ok(LockDependency::Alone),
            minds => Ok(minds),
        }
    }

    /// Gives a peer a window over a segment, if the one for whom it asks may look at it.
    fn introduce_to(&mut self, node: NodeId, step: u64, who: Principal, id: SegmentId) -> Result<(), Failure> {
        let permissions = self.segments.get(id)?.permissions;
        let allowed = permissions.allow(who, Access::Read).or_else(|_| permissions.allow(who, Access::Write));
        allowed.map_err(|failure| self.doubted(id, failure))?;
        self.introduce(node, step, id)
    }

    pub(crate) fn introduce(&mut self, node: NodeId, step: u64, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        if segment.is_copy() {
            return Err(Failure::NodeDown);
        }
        if !segment.seen_by.contains(&node) {
            segment.seen_by.push(node);
        }
        let (at, bytes, is_mirrored) = (segment.at, segment.pool_bytes(), segment.mirror.is_some());
        let message = Message::Found { step, facts: segment.facts(id), window: Default::default() };
        if is_mirrored {
            // There is no window that could outlive this node's time as its home.
            self.send(node, message);
        } else {
            self.act(Action::Introduce { node, message, at, bytes });
        }
        Ok(())
    }
}
