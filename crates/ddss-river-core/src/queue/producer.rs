//! The producer's end of a queue.

use super::action::ProducerAction;
use super::choice::choose;
use super::event::ProducerEvent;
use super::messages::{Message, MessageState, Messages};
use super::peers::Peers;
use super::recall;
use crate::delivery::{Outcome, Strikes, after_loss, after_rejection, after_return};
use crate::fault_injection::planted;
use crate::limits::ATTEMPTS_MAX;
use crate::model::{
    Attempt, ConfigError, ConsumerId, Draw, EdgeId, Guarantee, Header, Load, Moment, ProducerId, QueueConfig, Route,
    ToConsumer, ToProducer, UnitId,
};

/// The producer's end of a queue.
///
/// A message stays in its send slot until a consumer has acknowledged it.
#[derive(Clone, Debug)]
pub struct Producer {
    edge: EdgeId,
    id: ProducerId,
    config: QueueConfig,
    messages: Messages,
    peers: Peers,
    is_closed: bool,
    has_ended: bool,
    is_flow_lost: bool,
    #[cfg(feature = "planted")]
    bug: Option<crate::fault_injection::Bug>,
}

impl Producer {
    /// Returns a producer without consumers.
    ///
    /// # Errors
    /// A setting outside its limits.
    pub fn new(edge: EdgeId, id: ProducerId, config: QueueConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            edge,
            id,
            config,
            messages: Messages::new(config.send_slots),
            peers: Peers::new(config.window),
            is_closed: false,
            has_ended: false,
            is_flow_lost: false,
            #[cfg(feature = "planted")]
            bug: None,
        })
    }

    /// Adds a bug.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::fault_injection::Bug) {
        self.bug = Some(bug);
    }

    /// Returns the route to a consumer.
    #[must_use]
    pub const fn route(&self, consumer: ConsumerId) -> Route {
        Route { edge: self.edge, producer: self.id, consumer }
    }

    /// Returns the number of messages that are not acknowledged, and of reserved send slots.
    #[must_use]
    pub fn held(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of the next message.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.messages.next_index()
    }

    /// Returns the number of messages before this number that are neither acknowledged nor failed.
    #[must_use]
    pub fn held_before(&self, index: u64) -> usize {
        self.messages.count_before(index)
    }

    /// Reserves a send slot. `None` means that all are in use: an acknowledgement frees the next one.
    pub fn reserve(&mut self) -> Option<u16> {
        if self.is_closed { None } else { self.messages.reserve() }
    }

    /// Gives a reserved send slot back.
    ///
    /// # Panics
    /// If the slot is not reserved.
    pub fn release(&mut self, place: u16) {
        self.messages.release(place);
    }

    /// Puts the message that the caller has written into a reserved send slot. Returns the number of the message.
    ///
    /// # Panics
    /// If the slot is not reserved, the message is too long, or the queue is closed.
    pub fn put(
        &mut self,
        place: u16,
        length: u32,
        checksum: u32,
        unit: Option<UnitId>,
        moment: Moment,
        out: &mut Vec<ProducerAction>,
    ) -> u64 {
        assert!(!self.is_closed, "{} is closed", self.id);
        assert!(length <= self.config.message_bytes_max, "a message of {length} bytes is too long");
        let index = self.messages.add(place, length, checksum, unit);
        self.advance(moment, out);
        index
    }

    /// Ends the queue behind the messages that were put. It has ended with [`ProducerAction::Ended`].
    pub fn close(&mut self, moment: Moment, out: &mut Vec<ProducerAction>) {
        self.is_closed = true;
        self.advance(moment, out);
    }

    /// Handles an event. A notice that no consumer of this queue would send now changes nothing.
    pub fn handle(&mut self, event: ProducerEvent, moment: Moment, out: &mut Vec<ProducerAction>) {
        match event {
            ProducerEvent::Connected(consumer) => self.connect(consumer, out),
            ProducerEvent::Lost(consumer) => self.lose(consumer, out),
            ProducerEvent::Dead(consumer) => {
                self.bury(consumer, out);
                if self.config.guarantee == Guarantee::FailStop {
                    self.end_flow(consumer, out);
                }
            }
            ProducerEvent::Left(consumer) => self.bury(consumer, out),
            ProducerEvent::Notice { from, notice } => self.take_notice(from, notice, out),
        }
        self.advance(moment, out);
    }

    fn connect(&mut self, consumer: ConsumerId, out: &mut Vec<ProducerAction>) {
        let peer = self.peers.connect(consumer);
        for (place, index) in peer.suspects.drain(..) {
            if let Some(message) = self.messages.get_mut(place).filter(|message| message.index == index) {
                message.strikes.absolve();
                Self::resume(&mut self.messages, place);
            }
        }
        if self.has_ended {
            out.push(ProducerAction::Send { to: consumer, notice: ToConsumer::Closed });
        }
    }

    /// Makes a suspended message pending if fewer consumers are suspected now.
    fn resume(messages: &mut Messages, place: u16) {
        let message = messages.get(place).expect("a message");
        if message.state == MessageState::Suspended && !message.strikes.is_suspect() {
            messages.queue(place);
        }
    }

    fn lose(&mut self, consumer: ConsumerId, out: &mut Vec<ProducerAction>) {
        if !self.peers.get(consumer).is_some_and(|peer| peer.is_connected) {
            return;
        }
        self.peers.disconnect(consumer);
        for place in 0..self.messages.slots() {
            let Some(message) = self.messages.sent(place, consumer).copied() else { continue };
            if planted!(self, ForgottenByLoss) {
                self.messages.remove(place);
                continue;
            }
            let strikes = self.suspect(consumer, place, &message);
            let outcome = after_loss(self.config.guarantee, strikes, message.attempts);
            self.execute(outcome, consumer, place, out);
        }
    }

    /// Counts a lost consumer that may have begun a message.
    fn suspect(&mut self, consumer: ConsumerId, place: u16, message: &Message) -> Strikes {
        let mut strikes = message.strikes;
        // A consumer reports the begin of a redelivered message. It may have begun any other.
        let has_begun = matches!(message.state, MessageState::Sent { has_begun: true, .. });
        if has_begun || !message.flags.is_redelivered {
            strikes.suspect();
            self.messages.get_mut(place).expect("a sent message").strikes = strikes;
            self.peers.get_mut(consumer).expect("a lost consumer").suspects.push((place, message.index));
        }
        strikes
    }

    fn bury(&mut self, consumer: ConsumerId, out: &mut Vec<ProducerAction>) {
        self.lose(consumer, out);
        let suspects = self.peers.get_mut(consumer).map(|peer| std::mem::take(&mut peer.suspects)).unwrap_or_default();
        for (place, index) in suspects {
            let Some(message) = self.messages.get_mut(place).filter(|message| message.index == index) else { continue };
            message.strikes.confirm();
            // A message at another consumer waits for its acknowledgement.
            if message.state == MessageState::Suspended && message.strikes.is_failed() {
                self.execute(Outcome::Failed, consumer, place, out);
            }
        }
        self.peers.remove(consumer);
    }

    fn take_notice(&mut self, from: ConsumerId, notice: ToProducer, out: &mut Vec<ProducerAction>) {
        if !self.peers.get(from).is_some_and(|peer| peer.is_connected) {
            return;
        }
        match notice {
            ToProducer::Ask => self.peers.set_open(from, true),
            ToProducer::Acknowledged { attempt, load } => self.acknowledge(from, attempt, load, out),
            ToProducer::Begun(attempt) => self.begin(from, attempt),
            ToProducer::Recalled(attempt) => self.take_back(from, attempt, out),
            ToProducer::Rejected(attempt) => {
                if self.give_back(from, attempt) {
                    let message = self.messages.get_mut(attempt.place).expect("a message");
                    message.strikes.add();
                    let outcome = after_rejection(self.config.guarantee, message.strikes, message.attempts);
                    self.execute(outcome, from, attempt.place, out);
                }
            }
            ToProducer::Withdrawn => self.peers.set_open(from, false),
        }
    }

    /// Takes a message back that its consumer has not processed.
    fn take_back(&mut self, from: ConsumerId, attempt: Attempt, out: &mut Vec<ProducerAction>) {
        let sent = self.messages.sent(attempt.place, from).map(|message| message.state);
        let has_begun = matches!(sent, Some(MessageState::Sent { has_begun: true, .. }));
        if !self.give_back(from, attempt) {
            return;
        }
        let message = self.messages.get_mut(attempt.place).expect("a message");
        if message.attempts >= u16::MAX - ATTEMPTS_MAX {
            // The number of an attempt is not used twice.
            self.execute(Outcome::Failed, from, attempt.place, out);
        } else if has_begun {
            self.execute(after_return(self.config.guarantee), from, attempt.place, out);
        } else {
            message.flags.is_recalled = true;
            self.messages.queue(attempt.place);
        }
    }

    fn acknowledge(&mut self, from: ConsumerId, attempt: Attempt, load: Load, out: &mut Vec<ProducerAction>) {
        if self.give_back(from, attempt) {
            self.peers.get_mut(from).expect("a connected consumer").report(load);
            self.messages.remove(attempt.place);
            out.push(ProducerAction::Acknowledged { index: attempt.index });
        }
    }

    fn begin(&mut self, from: ConsumerId, attempt: Attempt) {
        let Some(slot) = self.messages.find(attempt, from) else { return };
        let peer = self.peers.get_mut(from).expect("a connected consumer");
        let is_refusal = peer.recall == Some(attempt);
        if is_refusal {
            peer.recall = None;
        }
        let message = self.messages.get_mut(attempt.place).expect("a message");
        if let MessageState::Sent { has_begun: has_begun @ false, .. } = &mut message.state {
            *has_begun = true;
            peer.begin();
        }
        if is_refusal && planted!(self, CreditUsedTwice) {
            self.peers.free_slot(from, slot, true);
        }
    }

    /// Frees the slot of a message that has left its consumer. Returns false if the message is not there.
    fn give_back(&mut self, from: ConsumerId, attempt: Attempt) -> bool {
        let Some(slot) = self.messages.find(attempt, from) else { return false };
        let state = self.messages.get(attempt.place).map(|message| message.state);
        self.peers.free_slot(from, slot, matches!(state, Some(MessageState::Sent { has_begun: true, .. })));
        let peer = self.peers.get_mut(from).expect("a connected consumer");
        if peer.recall == Some(attempt) {
            peer.recall = None;
        }
        true
    }

    /// Executes the fate of a message that its consumer did not acknowledge.
    fn execute(&mut self, outcome: Outcome, consumer: ConsumerId, place: u16, out: &mut Vec<ProducerAction>) {
        let message = self.messages.get_mut(place).expect("a message");
        let index = message.index;
        let is_endless = planted!(self, EndlessRedelivery);
        match outcome {
            Outcome::Suspended | Outcome::Failed if is_endless => self.messages.queue(place),
            Outcome::Redelivered | Outcome::Suspended => {
                message.flags.is_redelivered = !planted!(self, UnflaggedRedelivery);
                if outcome == Outcome::Suspended {
                    message.state = MessageState::Suspended;
                } else {
                    self.messages.queue(place);
                }
            }
            Outcome::Failed => {
                let length = self.messages.remove(place).length;
                out.push(ProducerAction::Failed { index, place, length });
            }
            Outcome::Dropped => {
                self.messages.remove(place);
                out.push(ProducerAction::Dropped { index });
            }
            Outcome::EndsFlow => self.end_flow(consumer, out),
        }
    }

    fn end_flow(&mut self, consumer: ConsumerId, out: &mut Vec<ProducerAction>) {
        if !self.is_flow_lost && !self.has_ended {
            self.is_flow_lost = true;
            out.push(ProducerAction::FlowLost { consumer });
        }
    }

    /// Sends what can leave; takes back what is better elsewhere; ends the queue.
    fn advance(&mut self, moment: Moment, out: &mut Vec<ProducerAction>) {
        if self.is_flow_lost || self.has_ended {
            return;
        }
        let mut draw = Draw::new(moment);
        while self.messages.first_pending().is_some() {
            let Some(to) = choose(&self.peers, &mut draw) else { break };
            self.send_first(to, out);
        }
        if self.config.has_recall && self.messages.first_pending().is_none() {
            self.recall(out);
        }
        let is_done = || self.messages.is_empty() || planted!(self, EndBeforeAcknowledgement);
        if self.is_closed && self.messages.first_pending().is_none() && is_done() {
            self.has_ended = true;
            let connected = self.peers.iter().filter(|peer| peer.is_connected);
            out.extend(connected.map(|peer| ProducerAction::Send { to: peer.id, notice: ToConsumer::Closed }));
            out.push(ProducerAction::Ended);
        }
    }

    fn send_first(&mut self, to: ConsumerId, out: &mut Vec<ProducerAction>) {
        let slot = self.peers.use_slot(to);
        let (place, message) = self.messages.send_first(to, slot);
        let Message { index, length, checksum, unit, attempts, flags, .. } = message;
        let attempt = Attempt { index, place, number: attempts };
        out.push(ProducerAction::Write { to, header: Header { attempt, slot, length, checksum, unit, flags } });
    }

    fn recall(&mut self, out: &mut Vec<ProducerAction>) {
        let Some((to, attempt)) = recall::select(&self.peers, &self.messages) else { return };
        self.peers.get_mut(to).expect("a connected consumer").recall = Some(attempt);
        out.push(ProducerAction::Send { to, notice: ToConsumer::Recall(attempt) });
    }
}
