//! Messages at a consumer, by producer and slot.

use crate::delivery::{Inputs, Strikes};
use crate::limits::PEERS_MAX;
use crate::model::{Attempt, Header, ProducerId};
use std::collections::VecDeque;

/// A message that the application has taken. It names the message until it is acknowledged or rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Producer.
    pub producer: ProducerId,
    /// Header. The bytes are in the slot that it names, until the message is acknowledged or the connection ends.
    pub header: Header,
    /// Number of the connection.
    pub(super) session: u32,
}

/// Something that no honest producer sends: the driver ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A producer that is not connected sent something.
    #[error("cannot accept a message of {0}: it is not connected; close the connection")]
    NotConnected(ProducerId),
    /// The slot is outside the ring.
    #[error("cannot accept a message of {0} in slot {1}: the ring has fewer; close the connection")]
    NoSlot(ProducerId, u16),
    /// The slot has a message.
    #[error("cannot accept a message of {0} in slot {1}: the slot has a message; close the connection")]
    FullSlot(ProducerId, u16),
    /// The message is longer than a slot.
    #[error("cannot accept a message of {0} with {1} bytes: a slot has fewer; close the connection")]
    Long(ProducerId, u32),
    /// A producer sent something behind its end.
    #[error("cannot accept a message of {0}: it has closed the queue; close the connection")]
    Closed(ProducerId),
    /// The consumer has not asked for messages.
    #[error("cannot accept a message of {0}: the consumer has not asked; close the connection")]
    Unasked(ProducerId),
}

/// A slot of a ring with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Arrival {
    header: Header,
    is_taken: bool,
    /// Rejections since its producer is not connected.
    strikes: Strikes,
}

/// A producer, as a consumer knows it.
#[derive(Clone, Debug)]
struct Source {
    id: ProducerId,
    is_connected: bool,
    has_ended: bool,
    /// True if the producer never comes back.
    is_gone: bool,
    /// Number of the connection.
    session: u32,
    slots: Box<[Option<Arrival>]>,
}

/// The rings of a consumer, and the order in which their messages are taken.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    /// In the order of their numbers.
    sources: Vec<Source>,
    window: u16,
    message_bytes_max: u32,
    inputs: Inputs,
    queue: VecDeque<(ProducerId, u16)>,
    /// Messages that are taken and not acknowledged.
    taken: u32,
}

impl Arrivals {
    pub(super) fn new(window: u16, message_bytes_max: u32) -> Self {
        let (sources, inputs, queue) = (Vec::new(), Inputs::default(), VecDeque::new());
        Self { sources, window, message_bytes_max, inputs, queue, taken: 0 }
    }

    fn position(&self, id: ProducerId) -> Result<usize, usize> {
        self.sources.binary_search_by_key(&id, |source| source.id)
    }

    fn get(&self, id: ProducerId) -> Option<&Source> {
        self.position(id).ok().map(|position| &self.sources[position])
    }

    fn get_mut(&mut self, id: ProducerId) -> Option<&mut Source> {
        self.position(id).ok().map(|position| &mut self.sources[position])
    }

    /// Returns the connected producers that may still send.
    pub(super) fn connected(&self) -> impl Iterator<Item = ProducerId> {
        self.sources.iter().filter(|source| source.is_connected && !source.has_ended).map(|source| source.id)
    }

    /// Returns true if a producer is connected.
    pub(super) fn is_connected(&self, id: ProducerId) -> bool {
        self.get(id).is_some_and(|source| source.is_connected)
    }

    /// Returns true if no message is there and none can arrive.
    pub(super) fn have_ended(&self) -> bool {
        self.inputs.have_ended() && self.queue.is_empty()
    }

    /// Returns the number of messages that are not acknowledged.
    pub(super) fn len(&self) -> u32 {
        self.queue.len() as u32 + self.taken
    }

    /// Adds a producer, unless it is known.
    ///
    /// # Panics
    /// If there are [`PEERS_MAX`] others.
    pub(super) fn join(&mut self, id: ProducerId) {
        let Err(position) = self.position(id) else { return };
        assert!(self.sources.len() < PEERS_MAX, "a consumer has at most {PEERS_MAX} producers");
        let slots = vec![None; usize::from(self.window)].into();
        self.sources
            .insert(position, Source { id, is_connected: false, has_ended: false, is_gone: false, session: 0, slots });
        self.inputs.join();
        self.queue.reserve(usize::from(self.window));
    }

    /// Begins a connection. What is left of the one before was given to others when it ended.
    ///
    /// # Panics
    /// If the producer is connected.
    pub(super) fn connect(&mut self, id: ProducerId) {
        self.join(id);
        let source = self.get_mut(id).expect("a known producer");
        assert!(!source.is_connected, "{id} is connected already");
        source.is_connected = true;
        source.session += 1;
        let taken = source.slots.iter().flatten().filter(|arrival| arrival.is_taken).count();
        source.slots.fill(None);
        self.taken -= taken as u32;
        self.queue.retain(|(other, _)| *other != id);
    }

    /// Ends a connection. Messages that arrived stay: a dead producer gives them to no other consumer.
    pub(super) fn disconnect(&mut self, id: ProducerId) {
        if let Some(source) = self.get_mut(id) {
            source.is_connected = false;
        }
    }

    /// Ends a producer: it is closed or dead. Returns false if it had ended before, or is unknown.
    pub(super) fn end(&mut self, id: ProducerId) -> bool {
        let Some(source) = self.get_mut(id).filter(|source| !source.has_ended) else { return false };
        source.has_ended = true;
        self.inputs.end();
        true
    }

    /// Ends a producer that never comes back. Returns false if it had ended before, or is unknown.
    pub(super) fn bury(&mut self, id: ProducerId) -> bool {
        self.disconnect(id);
        let is_news = self.end(id);
        if let Some(source) = self.get_mut(id) {
            source.is_gone = true;
        }
        self.forget_if_empty(id);
        is_news
    }

    /// Forgets a producer that never comes back, and whose messages are finished.
    fn forget_if_empty(&mut self, id: ProducerId) {
        if let Ok(position) = self.position(id) {
            let source = &self.sources[position];
            if source.is_gone && source.slots.iter().all(Option::is_none) {
                self.sources.remove(position);
            }
        }
    }

    /// Returns true if a message of a producer is not finished.
    pub(super) fn has_unfinished(&self, id: ProducerId) -> bool {
        self.get(id).is_some_and(|source| source.slots.iter().any(Option::is_some))
    }

    /// Drops the messages of a producer that are not taken, as a bug.
    pub(super) fn forget_waiting(&mut self, id: ProducerId) {
        self.queue.retain(|(producer, _)| *producer != id);
        if let Some(source) = self.get_mut(id) {
            source
                .slots
                .iter_mut()
                .filter(|slot| slot.is_some_and(|arrival| !arrival.is_taken))
                .for_each(|slot| *slot = None);
        }
    }

    /// Returns the number of messages that are not taken, of producers that never come back.
    pub(super) fn waiting_of_gone(&self) -> usize {
        let is_gone = |id: ProducerId| self.get(id).is_some_and(|source| source.is_gone);
        self.queue.iter().filter(|(producer, _)| is_gone(*producer)).count()
    }

    /// Adds a message.
    pub(super) fn add(&mut self, from: ProducerId, header: Header) -> Result<(), Violation> {
        let bytes_max = self.message_bytes_max;
        let source = self.get_mut(from).ok_or(Violation::NotConnected(from))?;
        if !source.is_connected {
            return Err(Violation::NotConnected(from));
        }
        if source.has_ended {
            return Err(Violation::Closed(from));
        }
        if header.length > bytes_max {
            return Err(Violation::Long(from, header.length));
        }
        let place = source.slots.get_mut(usize::from(header.slot)).ok_or(Violation::NoSlot(from, header.slot))?;
        if place.is_some() {
            return Err(Violation::FullSlot(from, header.slot));
        }
        *place = Some(Arrival { header, is_taken: false, strikes: Strikes::default() });
        self.queue.push_back((from, header.slot));
        Ok(())
    }

    /// Takes the oldest message.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let (producer, slot) = self.queue.pop_front()?;
        let source = self.get_mut(producer).expect("a known producer");
        let session = source.session;
        let arrival = source.slots[usize::from(slot)].as_mut().expect("a queued message");
        arrival.is_taken = true;
        let header = arrival.header;
        self.taken += 1;
        Some(Taken { producer, header, session })
    }

    /// Returns the strikes of a taken message whose producer is not connected. A dead producer gives it to no other consumer.
    pub(super) fn orphan(&mut self, taken: &Taken) -> Option<&mut Strikes> {
        let source = self.get_mut(taken.producer).filter(|source| source.session == taken.session);
        let source = source.filter(|source| !source.is_connected)?;
        let arrival = source.slots[usize::from(taken.header.slot)].as_mut()?;
        let is_there = arrival.is_taken && arrival.header.attempt == taken.header.attempt;
        is_there.then_some(&mut arrival.strikes)
    }

    /// Puts an [orphan](Self::orphan) back before all others, flagged as redelivered.
    pub(super) fn put_back(&mut self, taken: &Taken) {
        let slot = taken.header.slot;
        let source = self.get_mut(taken.producer).expect("a known producer");
        let arrival = source.slots[usize::from(slot)].as_mut().expect("a taken message");
        arrival.is_taken = false;
        arrival.header.flags.is_redelivered = true;
        self.taken -= 1;
        self.queue.push_front((taken.producer, slot));
    }

    /// Frees the slot of a taken message. Returns false if its connection has ended: another consumer has the message.
    pub(super) fn finish(&mut self, taken: &Taken) -> bool {
        let Some(source) = self.get_mut(taken.producer).filter(|source| source.session == taken.session) else {
            return false;
        };
        let is_connected = source.is_connected;
        let place = &mut source.slots[usize::from(taken.header.slot)];
        let is_there = |arrival: &Arrival| arrival.is_taken && arrival.header.attempt == taken.header.attempt;
        if !place.as_ref().is_some_and(is_there) {
            return false;
        }
        *place = None;
        self.taken -= 1;
        self.forget_if_empty(taken.producer);
        is_connected
    }

    /// Takes back a message that is not taken. `None` means that it is not here, or was acknowledged.
    pub(super) fn recall(&mut self, from: ProducerId, attempt: Attempt) -> Option<bool> {
        let source = self.get_mut(from)?;
        let is_it = |arrival: &&Option<Arrival>| arrival.is_some_and(|arrival| arrival.header.attempt == attempt);
        let slot = source.slots.iter().position(|arrival| is_it(&arrival))?;
        if source.slots[slot].is_some_and(|arrival| arrival.is_taken) {
            return Some(false);
        }
        source.slots[slot] = None;
        self.queue.retain(|entry| *entry != (from, slot as u16));
        Some(true)
    }

    /// Removes a message of a connected producer. Returns true with it if it was taken.
    pub(super) fn remove_connected(&mut self) -> Option<(ProducerId, Attempt, bool)> {
        let has_message = |source: &&mut Source| source.is_connected && source.slots.iter().any(Option::is_some);
        let source = self.sources.iter_mut().find(has_message)?;
        let slot = source.slots.iter().position(Option::is_some)?;
        let Arrival { header, is_taken, .. } = source.slots[slot].take()?;
        let id = source.id;
        if is_taken {
            self.taken -= 1;
        } else {
            self.queue.retain(|entry| *entry != (id, slot as u16));
        }
        Some((id, header.attempt, is_taken))
    }
}
