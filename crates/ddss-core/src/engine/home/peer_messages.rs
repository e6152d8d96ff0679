//! Messages from other engines to this one, which is mostly the home of the segment in question.

use crate::engine::action::{Action, CommitSource, RangeSet};
use crate::engine::config::Now;
use crate::engine::engine::Engine;
use crate::engine::fault_injection::planted;
use crate::engine::ids::StepId;
use crate::engine::remote::served_get::ServedReply;
use crate::engine::requester::{LockOwner, ReplyFields, Requester};
use crate::engine::state::lock_queue::{Destination, Get, PendingOp, Waiter, Watcher};
use crate::limits::{TIMEOUT_DEFAULT_US, TRANSFER_BYTES_MAX};
use crate::model::coherence::LockDependency;
use crate::model::segment::{Access, Principal};
use crate::request::listing::ListQuery;
use crate::request::operation::ReadOptions;
use crate::request::ranges::Ranges;
use crate::{Failure, Message, NodeId, Outcome, SegmentId, Timestamp};

impl Engine {
    /// Handles a peer's message, with that peer's clock and the bytes behind the fields. Every later timestamp of this
    /// node is greater than `clock`.
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
                self.output.push(Action::Disconnect { node });
                return;
            }
            Message::Lookup { step, principal, name } => {
                let found = self.segments.by_name(&name).ok_or(Failure::NotFound);
                found.and_then(|id| self.describe_segment(node, step, principal, id)).map_err(|failure| (step, failure))
            }
            Message::Describe { step, principal, segment } => {
                self.describe_segment(node, step, principal, segment).map_err(|failure| (step, failure))
            }
            Message::Allocate { step, principal, spec, name } => {
                let made =
                    self.create_named(now, Requester::Peer(node, step), principal, name, spec, TIMEOUT_DEFAULT_US);
                made.map_err(|failure| (step, failure))
            }
            Message::Put { step, principal, segment, offset, length, staged, ranges, conditions, timeout_us } => {
                let requester = Requester::Peer(node, step);
                let deadline_us = deadline(timeout_us);
                let asked =
                    self.source_of_put(node, (offset, length), staged, ranges, tail).and_then(|(parts, source)| {
                        let op = PendingOp::Put { parts, source, conditions };
                        let asked = self.submit_op(now, segment, Waiter { requester, principal, op, deadline_us });
                        asked.inspect_err(|_| self.free_op_buffers(&op))
                    });
                asked.map_err(|failure| (step, failure))
            }
            Message::Get { step, principal, segment, offset, length, ranges, options, token, timeout_us } => {
                let (requester, deadline_us) = (Requester::Peer(node, step), deadline(timeout_us));
                let lock_dependency = self.lock_dependency_of_get(segment, &options);
                let asked = self.ranges_of_message((offset, length), ranges, tail).and_then(|parts| {
                    let get = Get {
                        parts,
                        sink: Destination::Peer,
                        lock_dependency: lock_dependency?,
                        version: options.version,
                        token,
                    };
                    let waiter = Waiter { requester, principal, op: PendingOp::Get(get), deadline_us };
                    self.submit_op(now, segment, waiter).inspect_err(|_| self.output.free_table(&parts))
                });
                asked.map_err(|failure| (step, failure))
            }
            Message::Got { step, version, timestamp, length, staged, number } => {
                self.clock.hear(timestamp, now.wall_us);
                let got = ServedReply { version, timestamp, length, staged, number };
                self.handle_got(node, StepId::from_bits(step), got, tail);
                Ok(())
            }
            Message::Taken { number } => {
                self.free_staging_place(node, number);
                Ok(())
            }
            Message::List { step, principal } => {
                let query = ListQuery::decode(tail).map_err(|failure| (step, failure));
                query.map(|query| self.list_at_home(now, node, step, principal, &query))
            }
            Message::Stat { step, principal, segment } => {
                self.stat_at_home(now, node, step, principal, segment).map_err(|failure| (step, failure))
            }
            Message::Listed { step, more } => {
                self.handle_page(node, StepId::from_bits(step), more, tail);
                Ok(())
            }
            Message::Permit { step, principal, segment, update } => {
                let requester = Requester::Peer(node, step);
                self.update_permissions_at_home(now, principal, segment, update, requester)
                    .map_err(|failure| (step, failure))
            }
            Message::Break { step, principal, segment } => self
                .break_at_home(now, principal, segment, Requester::Peer(node, step))
                .map_err(|failure| (step, failure)),
            Message::Cancel { step, segment } => {
                self.cancel_at_home(now, segment, Requester::Peer(node, step));
                Ok(())
            }
            Message::Changed { info } => {
                self.handle_info_change(node, info);
                Ok(())
            }
            Message::Atomic { step, principal, segment, offset, change, token, timeout_us } => {
                let op = PendingOp::Atomic { offset, change, token };
                let waiter =
                    Waiter { requester: Requester::Peer(node, step), principal, op, deadline_us: deadline(timeout_us) };
                let aligned = if offset.is_multiple_of(8) { Ok(()) } else { Err(Failure::Unaligned) };
                aligned.and_then(|()| self.submit_op(now, segment, waiter)).map_err(|failure| (step, failure))
            }
            Message::Lock { step, principal, segment, lock_request, timeout_us } => {
                let op = PendingOp::Lock(lock_request);
                let waiter =
                    Waiter { requester: Requester::Peer(node, step), principal, op, deadline_us: deadline(timeout_us) };
                self.submit_op(now, segment, waiter).map_err(|failure| (step, failure))
            }
            Message::Await { step, principal, segment, above, timeout_us } => {
                let requester = Requester::Peer(node, step);
                let watcher = Watcher { requester, above, deadline_us: deadline(timeout_us) };
                self.await_at_home(now, segment, principal, watcher).map_err(|failure| (step, failure))
            }
            Message::Unlock { step, segment, token } => {
                let unlocked = self.unlock_at_home(now, segment, token, LockOwner::Peer(node));
                unlocked
                    .map(|fields| self.output.answer(Requester::Peer(node, step), Outcome::Done, fields))
                    .map_err(|failure| (step, failure))
            }
            Message::Release { step, principal, segment } => self
                .release_named(now, Requester::Peer(node, step), principal, segment)
                .map_err(|failure| (step, failure)),
            Message::Found { step, info, window } => {
                self.handle_found(now, node, StepId::from_bits(step), info, window);
                Ok(())
            }
            Message::Ended { step, outcome, version, timestamp, word } => {
                let fields = ReplyFields { version, timestamp, word };
                self.handle_ended(now, node, StepId::from_bits(step), outcome, fields);
                Ok(())
            }
            Message::Offer { .. }
            | Message::OfferAnswer { .. }
            | Message::Piece { .. }
            | Message::Whole { .. }
            | Message::Forward { .. }
            | Message::Replicated { .. } => {
                self.replica_message(now, node, message, tail);
                Ok(())
            }
            Message::Forget { segment } => {
                self.handle_forget(now, node, segment);
                Ok(())
            }
            Message::Forgotten { segment } => {
                self.segments.forgotten(node, Some(segment));
                self.reclaim();
                Ok(())
            }
        };
        if let Err((step, failure)) = asked {
            let failure = self.explain_failure(message.segment(), failure);
            self.output.answer(Requester::Peer(node, step), Outcome::Failed(failure), ReplyFields::default());
        }
    }

    /// Returns the byte ranges of a message: one range, or those of the table behind it, which goes into a buffer.
    pub(crate) fn ranges_of_message(&mut self, one: (u64, u32), ranges: u8, table: &[u8]) -> Result<RangeSet, Failure> {
        let (offset, bytes) = one;
        if ranges == 0 {
            return if bytes as usize <= TRANSFER_BYTES_MAX {
                Ok(RangeSet::One { offset, bytes })
            } else {
                Err(Failure::TooLarge)
            };
        }
        let sum = Ranges::decode(table)?.sum();
        if sum == bytes { Ok(self.output.store_table(table, sum)) } else { Err(Failure::Malformed) }
    }

    /// Returns the ranges and the source of a put. Bytes of the message go into a buffer, since the put may have to
    /// wait.
    fn source_of_put(
        &mut self,
        node: NodeId,
        one: (u64, u32),
        staged: u64,
        ranges: u8,
        tail: &[u8],
    ) -> Result<(RangeSet, CommitSource), Failure> {
        let parts = self.ranges_of_message(one, ranges, if ranges == 0 { &[] } else { tail })?;
        match staged {
            Message::NOT_STAGED if ranges > 0 || tail.len() > Message::PUT_BYTES_MAX => {
                self.output.free_table(&parts);
                Err(Failure::Malformed)
            }
            Message::NOT_STAGED => Ok((parts, CommitSource::Buffer(self.output.store(tail)))),
            at => Ok((parts, CommitSource::Staged { node, at })),
        }
    }

    /// Returns which holders a get at home here waits for. A named version needs no lock.
    pub(crate) fn lock_dependency_of_get(
        &self,
        segment: SegmentId,
        options: &ReadOptions,
    ) -> Result<LockDependency, Failure> {
        let model = self.segments.get(segment)?.spec.model;
        match model.get_rules(options.requested_model).lock_dependency {
            _ if options.version.is_some() => Ok(LockDependency::None),
            LockDependency::Any if planted!(self, ReadTogether) => Ok(LockDependency::Exclusive),
            lock_dependency => Ok(lock_dependency),
        }
    }

    /// Gives a peer a window over a segment, if the user on whose behalf it asks may access the segment.
    fn describe_segment(
        &mut self,
        node: NodeId,
        step: u64,
        principal: Principal,
        id: SegmentId,
    ) -> Result<(), Failure> {
        let permissions = self.segments.get(id)?.permissions;
        let allowed =
            permissions.allow(principal, Access::Read).or_else(|_| permissions.allow(principal, Access::Write));
        allowed.map_err(|failure| self.mask_denial_in_doubt(id, failure))?;
        self.send_description(node, step, id)
    }

    pub(crate) fn send_description(&mut self, node: NodeId, step: u64, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        if segment.is_replica() {
            return Err(Failure::NodeDown);
        }
        segment.add_window_holder(node);
        let (at, bytes, is_replicated) = (segment.at, segment.pool_bytes(), segment.replication.is_some());
        let message = Message::Found { step, info: segment.info(id), window: Default::default() };
        if is_replicated {
            // A window could outlive this node's time as the home, so there is none.
            self.output.send(node, message);
        } else {
            self.output.push(Action::GrantWindow { node, message, at, bytes });
        }
        Ok(())
    }
}
