//! A get that its home carries out: in order with everything else that is done to the segment, whole whatever happens
//! around it, and one round trip.
//!
//! Asked for when a get has to keep to somebody's lock, when gets exclude each other (Read), when two one-sided
//! reads were torn by puts, and for every get that minds the lock where reads wait for each other. A few bytes travel in the answer. More of them are copied aside first, since the fabric may
//! take them out of memory much later; from there they are written into the staging memory that the asker keeps for
//! this home, and the asker's engine copies them to its client and says that the place is free.

use crate::engine::action::{Action, MessageBody, RangeSet};
use crate::engine::engine::{Engine, Now};
use crate::engine::fault_injection::planted;
use crate::engine::home::home_ops::ReplyFields;
use crate::engine::state::lock_queue::Requester;
use crate::engine::state::pending::{Pending, StepId, Transfer, WaitState};
use crate::engine::state::staging::Ticket;
use crate::limits::{OPERATIONS_MAX, STAGING_BYTES};
use crate::{Completion, Failure, Message, NodeId, Outcome, Timestamp, Version};

/// Bytes on their way out of this node's pool, until the fabric has taken them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedGetId(u32);

impl ServedGetId {
    /// The number as it travels through a fabric: no two have the same at the same time.
    pub const fn to_bits(self) -> u64 {
        self.0 as u64
    }
    /// Takes it back.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits as u32)
    }
}

/// All of them: where they are, how many bytes, and for how many they are there.
#[derive(Debug, Default)]
pub(crate) struct ServedGets {
    places: Vec<Option<(u64, u64, u8)>>,
    free: Vec<u32>,
}

impl ServedGets {
    pub(crate) fn insert(&mut self, at: u64, bytes: u64, uses: u8) -> Option<ServedGetId> {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some((at, bytes, uses));
            return Some(ServedGetId(place));
        }
        if self.places.len() == OPERATIONS_MAX {
            return None;
        }
        self.places.push(Some((at, bytes, uses)));
        Some(ServedGetId(self.places.len() as u32 - 1))
    }

    /// One of those is done with it; the last one takes it out.
    fn remove(&mut self, hand: ServedGetId) -> Option<(u64, u64)> {
        let place = self.places.get_mut(hand.0 as usize)?;
        let (at, bytes, uses) = place.as_mut()?;
        *uses -= 1;
        let taken = (*at, *bytes);
        if *uses > 0 {
            return None;
        }
        *place = None;
        self.free.push(hand.0);
        Some(taken)
    }
}

/// A get whose bytes are in an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedReply {
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    pub(crate) length: u32,
    pub(crate) staged: u64,
    pub(crate) number: u64,
}

impl Engine {
    /// Gives a peer the bytes that it asked for.
    pub(crate) fn hand_over(
        &mut self,
        node: NodeId,
        step: u64,
        at: u64,
        parts: RangeSet,
        stamp: (Version, Timestamp),
    ) -> Result<(), Failure> {
        let (length, (version, timestamp)) = (parts.bytes(), stamp);
        self.counters.handed += 1;
        if length as usize <= Message::PUT_BYTES_MAX {
            let (staged, number) = (Message::NOT_STAGED, 0);
            let message = Message::Got { step, version, timestamp, length, staged, number };
            self.act(Action::Send { node, message, tail: MessageBody::Pool(at, parts) });
            self.give_up_table(&parts);
            return Ok(());
        }
        let ticket = self.peers.reachable(node).ok_or(Failure::NodeDown)?.staging.take(length).ok_or(Failure::Busy)?;
        let aside = self.segments.take_blocks(length.into());
        let hand = aside.and_then(|to| self.hands.insert(to, length.into(), 1));
        let (Some(to), Some(hand)) = (aside, hand) else {
            if let Some(to) = aside {
                self.segments.give_blocks(to, length.into());
            }
            self.taken(node, ticket.number());
            return Err(Failure::Busy);
        };
        let (staged, number) = (ticket.at, ticket.number());
        let message = Message::Got { step, version, timestamp, length, staged, number };
        let here = if let RangeSet::One { offset, .. } = parts { at + offset } else { to };
        let to = if planted!(self, NoSnapshot) { here } else { to };
        self.act(Action::Snapshot { at, parts, to });
        self.give_up_table(&parts);
        self.act(Action::Hand { node, hand, at: staged, from: to, bytes: length, message, table: None });
        Ok(())
    }

    /// The fabric has taken bytes that were put aside, or never will.
    pub fn handed(&mut self, hand: ServedGetId) {
        // Of no bytes: they lie in a segment.
        if let Some((at, bytes)) = self.hands.remove(hand).filter(|&(_, bytes)| bytes > 0) {
            self.segments.give_blocks(at, bytes);
        }
    }

    /// Bytes that were put aside could not go out: whoever asked for them is told that there was no room.
    pub fn not_handed(&mut self, node: NodeId, hand: ServedGetId, message: &Message) {
        self.handed(hand);
        if let Message::Forward { number, .. } | Message::Piece { number, .. } = *message {
            // The mirror will never have it: it has to begin anew.
            self.taken(node, number);
            self.act(Action::Cut { node });
        }
        if let Message::Got { step, number, .. } = *message {
            self.taken(node, number);
            self.answer(Requester::Peer(node, step), Outcome::Failed(Failure::Busy), ReplyFields::default());
        }
    }

    /// A peer has taken its bytes out of its staging memory.
    pub(crate) fn taken(&mut self, node: NodeId, number: u64) {
        if let Some(peer) = self.peers.reachable(node) {
            peer.staging.give(Ticket::of(number));
        }
    }

    /// Lets the home carry a get out that is noted already.
    pub(crate) fn ask_home_to_get(&mut self, now: Now, step: StepId, pending: &Pending, transfer: Transfer) {
        let Transfer { segment, parts, look, .. } = transfer;
        let home = self.home_of(segment);
        if self.peers.reachable(home).is_none() {
            self.over(step);
            return self.finish(pending, Outcome::Failed(Failure::NodeDown));
        }
        let left = pending.deadline_us.saturating_sub(now.steady_us);
        let timeout_us = u32::try_from(left).unwrap_or(u32::MAX);
        if let Some(pending) = self.operations.get_mut(step) {
            (pending.wait, pending.on) = (WaitState::Home(transfer), home);
        }
        let (offset, ranges, tail) = match parts {
            RangeSet::One { offset, .. } => (offset, 0, MessageBody::None),
            RangeSet::Many { table, .. } => (0, self.ranges_of(&parts).len() as u8, MessageBody::Kept(table)),
        };
        let (who, length, step) = (pending.who, parts.bytes(), step.to_bits());
        let token = self.token_of(pending.lane.client, segment);
        let message = Message::Get { step, who, segment, offset, length, ranges, look, token, timeout_us };
        self.act(Action::Send { node: home, message, tail });
    }

    /// A home answered with bytes: behind the message, or in the staging memory that this node keeps for it.
    pub(crate) fn got(&mut self, node: NodeId, step: StepId, got: ServedReply, tail: &[u8]) {
        let ServedReply { version, timestamp, length, staged, number } = got;
        let is_staged = staged != Message::NOT_STAGED;
        let waits = |pending: &&mut Pending| matches!(pending.wait, WaitState::Home(_)) && pending.is_on(node);
        let Some(pending) = self.operations.get_mut(step).filter(waits).copied() else {
            self.counters.stale += 1;
            if is_staged {
                self.send(node, Message::Taken { number });
            }
            return;
        };
        let WaitState::Home(transfer) = pending.wait else { return };
        if length != transfer.parts.bytes() || is_staged && staged.saturating_add(length.into()) > STAGING_BYTES as u64
        {
            return self.act(Action::Cut { node });
        }
        let (client, into) = (pending.lane.client, transfer.range);
        self.over(step);
        let done = Completion { version, timestamp, ..Completion::bare(pending.request, Outcome::Done) };
        let early = planted!(self, EarlyCompletion);
        if early {
            self.reply(pending.lane, done, None);
        }
        if is_staged {
            self.act(Action::Unstage { node, at: staged, client, into });
            self.send(node, Message::Taken { number });
        } else {
            let kept = self.kept.insert(tail);
            self.act(Action::WriteOut { kept, client, into });
            self.give_up(kept);
        }
        if !early {
            self.reply(pending.lane, done, None);
        }
    }

    /// The home could not carry a get out: there was no room for the bytes, so this node reads again by itself.
    pub(crate) fn get_refused(&mut self, now: Now, step: StepId, failure: Failure) {
        let Some(pending) = self.operations.get_mut(step).copied() else { return };
        let WaitState::Home(transfer) = pending.wait else { return };
        let may_read = self.noted(transfer.segment).is_some_and(|facts| {
            facts.copies == 1 && facts.model.get_rules(transfer.look.asks).minds < crate::LockDependency::Anyone
        });
        if failure == Failure::Busy && may_read && now.steady_us < pending.deadline_us {
            self.fetch_again(now, step, &pending, transfer);
        } else if let Some(pending) = self.over(step) {
            self.finish(&pending, Outcome::Failed(failure));
        }
    }
}
