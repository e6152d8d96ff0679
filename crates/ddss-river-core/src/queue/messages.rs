//! Messages of a producer that are not acknowledged.

use crate::delivery::Strikes;
use crate::model::{Attempt, ConsumerId, Flags, UnitId};
use std::collections::VecDeque;

/// Where a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageState {
    /// Waits for a consumer.
    Pending,
    /// Waits until its suspected consumers are dead or back.
    Suspended,
    /// Is at a consumer.
    Sent {
        to: ConsumerId,
        slot: u16,
        /// True if the consumer said that it has begun the message.
        has_begun: bool,
    },
}

/// A message that is not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) index: u64,
    pub(super) length: u32,
    pub(super) checksum: u32,
    pub(super) unit: Option<UnitId>,
    pub(super) attempts: u16,
    pub(super) strikes: Strikes,
    pub(super) flags: Flags,
    pub(super) state: MessageState,
}

/// Content of a send slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendSlot {
    Free,
    Reserved,
    Full(Message),
}

/// The send slots of a producer, and the order in which pending messages leave.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    places: Box<[SendSlot]>,
    free: Vec<u16>,
    /// Places of pending messages, the smallest index first.
    pending: VecDeque<u16>,
    next_index: u64,
}

impl Messages {
    pub(super) fn new(slots: u16) -> Self {
        Self {
            places: vec![SendSlot::Free; usize::from(slots)].into(),
            free: (0..slots).rev().collect(),
            pending: VecDeque::with_capacity(slots.into()),
            next_index: 0,
        }
    }

    /// Reserves a send slot.
    pub(super) fn reserve(&mut self) -> Option<u16> {
        let place = self.free.pop()?;
        self.places[usize::from(place)] = SendSlot::Reserved;
        Some(place)
    }

    /// Gives a reserved slot back.
    pub(super) fn release(&mut self, place: u16) {
        assert_eq!(self.places[usize::from(place)], SendSlot::Reserved, "send slot {place} is not reserved");
        self.places[usize::from(place)] = SendSlot::Free;
        self.free.push(place);
    }

    /// Fills a reserved slot with the next message, which is pending. Returns the index.
    pub(super) fn add(&mut self, place: u16, length: u32, checksum: u32, unit: Option<UnitId>) -> u64 {
        assert_eq!(self.places[usize::from(place)], SendSlot::Reserved, "send slot {place} is not reserved");
        let index = self.next_index;
        self.next_index += 1;
        let (strikes, flags, state) = (Strikes::default(), Flags::default(), MessageState::Pending);
        let message = Message { index, length, checksum, unit, attempts: 0, strikes, flags, state };
        self.places[usize::from(place)] = SendSlot::Full(message);
        self.pending.push_back(place);
        index
    }

    /// Returns the message in a place.
    pub(super) fn get(&self, place: u16) -> Option<&Message> {
        match self.places.get(usize::from(place))? {
            SendSlot::Full(message) => Some(message),
            SendSlot::Free | SendSlot::Reserved => None,
        }
    }

    /// Returns the message in a place.
    pub(super) fn get_mut(&mut self, place: u16) -> Option<&mut Message> {
        match self.places.get_mut(usize::from(place))? {
            SendSlot::Full(message) => Some(message),
            SendSlot::Free | SendSlot::Reserved => None,
        }
    }

    /// Returns the slot of a transfer, if the message is still at that consumer by that transfer.
    pub(super) fn find(&self, attempt: Attempt, at: ConsumerId) -> Option<u16> {
        let message = self.get(attempt.place)?;
        let MessageState::Sent { to, slot, .. } = message.state else { return None };
        let is_current = to == at && message.index == attempt.index && message.attempts == attempt.number;
        is_current.then_some(slot)
    }

    /// Makes a message pending again.
    pub(super) fn queue(&mut self, place: u16) {
        let message = self.get_mut(place).expect("a message");
        assert_ne!(message.state, MessageState::Pending, "message {} is pending", message.index);
        message.state = MessageState::Pending;
        let index = message.index;
        let behind = self.pending.partition_point(|other| self.get(*other).is_some_and(|other| other.index < index));
        self.pending.insert(behind, place);
    }

    /// Returns the place of the pending message with the smallest index.
    pub(super) fn first_pending(&self) -> Option<u16> {
        self.pending.front().copied()
    }

    /// Marks the first pending message as sent. Returns it.
    pub(super) fn send_first(&mut self, to: ConsumerId, slot: u16) -> (u16, Message) {
        let place = self.pending.pop_front().expect("a pending message");
        let message = self.get_mut(place).expect("a pending message");
        message.attempts += 1;
        message.state = MessageState::Sent { to, slot, has_begun: false };
        (place, *message)
    }

    /// Removes a message that is not pending: its send slot is free.
    pub(super) fn remove(&mut self, place: u16) -> Message {
        let message = *self.get(place).expect("a message");
        assert_ne!(message.state, MessageState::Pending, "message {} is pending", message.index);
        self.places[usize::from(place)] = SendSlot::Free;
        self.free.push(place);
        message
    }

    /// Returns the messages that are at a consumer, with their places.
    pub(super) fn sent_to(&self, consumer: ConsumerId) -> impl Iterator<Item = (u16, &Message)> {
        (0..self.slots()).filter_map(move |place| Some((place, self.sent(place, consumer)?)))
    }

    /// Returns the message in a place if it is at a consumer.
    pub(super) fn sent(&self, place: u16, consumer: ConsumerId) -> Option<&Message> {
        self.get(place).filter(|message| matches!(message.state, MessageState::Sent { to, .. } if to == consumer))
    }

    /// Returns the number of send slots.
    pub(super) fn slots(&self) -> u16 {
        self.places.len() as u16
    }

    /// Returns true if no message is left. Reserved slots do not count.
    pub(super) fn is_empty(&self) -> bool {
        !self.places.iter().any(|place| matches!(place, SendSlot::Full(_)))
    }

    /// Returns the number of the next message.
    pub(super) fn next_index(&self) -> u64 {
        self.next_index
    }

    /// Returns the number of messages with smaller numbers than this one.
    pub(super) fn count_before(&self, index: u64) -> usize {
        self.places.iter().filter(|place| matches!(place, SendSlot::Full(message) if message.index < index)).count()
    }

    /// Returns the number of messages and reserved slots.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
