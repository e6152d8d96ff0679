//! The consumer's end of a queue.

use super::action::ConsumerAction;
use super::arrivals::{Arrivals, Taken, Violation};
use super::event::ConsumerEvent;
use crate::delivery::{Outcome, after_rejection, after_return};
use crate::fault_injection::planted;
use crate::limits::SERVICE_US_MAX;
use crate::model::{
    ConfigError, ConsumerId, EdgeId, Guarantee, Load, ProducerId, QueueConfig, Route, ToConsumer, ToProducer,
};

/// Result of [`Consumer::take`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// A message.
    Message(Taken),
    /// No message is there yet.
    Empty,
    /// Every producer has closed the queue or is dead, and every message that reached this consumer is taken.
    Ended,
    /// The coordinator declared this consumer dead.
    Fenced,
}

/// Estimate of the time that one message takes.
#[derive(Clone, Copy, Default, Debug)]
struct ServiceTime {
    estimate_us: u32,
    /// When the application was free the last time.
    free_since_us: u64,
}

impl ServiceTime {
    /// Notes that the application takes a message, with no other in work.
    fn begin(&mut self, now_us: u64) {
        self.free_since_us = now_us;
    }

    /// Notes the end of a message.
    fn end(&mut self, now_us: u64) {
        let took_us = now_us.saturating_sub(self.free_since_us).min(SERVICE_US_MAX.into()) as u32;
        self.free_since_us = now_us;
        // A quarter of the newest time: an estimate that follows a change within a few messages.
        let estimate = u64::from(self.estimate_us);
        let is_first = self.estimate_us == 0;
        self.estimate_us = if is_first { took_us } else { ((3 * estimate + u64::from(took_us)) / 4) as u32 };
    }
}

/// The consumer's end of a queue.
#[derive(Clone, Debug)]
pub struct Consumer {
    edge: EdgeId,
    id: ConsumerId,
    config: QueueConfig,
    arrivals: Arrivals,
    has_asked: bool,
    /// True once the consumer has withdrawn: messages that were on their way then go back.
    has_withdrawn: bool,
    is_fenced: bool,
    in_work: u32,
    service: ServiceTime,
    #[cfg(feature = "planted")]
    bug: Option<crate::fault_injection::Bug>,
}

impl Consumer {
    /// Returns a consumer without producers.
    ///
    /// # Errors
    /// A setting outside its limits.
    pub fn new(edge: EdgeId, id: ConsumerId, config: QueueConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            edge,
            id,
            config,
            arrivals: Arrivals::new(config.window, config.message_bytes_max),
            has_asked: false,
            has_withdrawn: false,
            is_fenced: false,
            in_work: 0,
            service: ServiceTime::default(),
            #[cfg(feature = "planted")]
            bug: None,
        })
    }

    /// Adds a bug.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::fault_injection::Bug) {
        self.bug = Some(bug);
    }

    /// Returns the route to a producer.
    #[must_use]
    pub const fn route(&self, producer: ProducerId) -> Route {
        Route { edge: self.edge, producer, consumer: self.id }
    }

    /// Returns the number of messages that are not acknowledged.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.arrivals.len()
    }

    /// Returns the number of messages that wait to be taken and whose producers are dead: no other process has them.
    #[must_use]
    pub fn last_copies(&self) -> usize {
        self.arrivals.waiting_of_gone()
    }

    /// Returns true if a message of a producer is not finished: its bytes may be needed again.
    #[must_use]
    pub fn has_unfinished(&self, producer: ProducerId) -> bool {
        self.arrivals.has_unfinished(producer)
    }

    /// Takes the oldest message. The first call asks the producers for messages.
    pub fn take(&mut self, now_us: u64, out: &mut Vec<ConsumerAction>) -> Take {
        if self.is_fenced {
            return Take::Fenced;
        }
        if !self.has_asked {
            self.has_asked = true;
            let ask = |to| ConsumerAction::Send { to, notice: ToProducer::Ask };
            out.extend(self.arrivals.connected().map(ask));
        }
        let Some(taken) = self.arrivals.take() else {
            return if self.arrivals.have_ended() { Take::Ended } else { Take::Empty };
        };
        if self.in_work == 0 {
            self.service.begin(now_us);
        }
        self.in_work += 1;
        if taken.header.flags.is_redelivered {
            // The producer learns that this consumer, too, may be a victim of the message.
            self.reply(taken.producer, ToProducer::Begun(taken.header.attempt), out);
        }
        Take::Message(taken)
    }

    /// Acknowledges a message. Returns false if that came too late: another consumer has the message as well.
    pub fn acknowledge(&mut self, taken: Taken, now_us: u64, out: &mut Vec<ConsumerAction>) -> bool {
        self.in_work = self.in_work.saturating_sub(1);
        self.service.end(now_us);
        if self.is_fenced || !self.arrivals.finish(&taken) {
            return false;
        }
        let load = Load { messages: self.arrivals.len(), service_us: self.service.estimate_us };
        self.reply(taken.producer, ToProducer::Acknowledged { attempt: taken.header.attempt, load }, out);
        true
    }

    /// Gives a message to another consumer, which the application has not processed to its end. If its producer is not connected,
    /// no other consumer may have it: this consumer takes it again.
    pub fn reject(&mut self, taken: Taken, out: &mut Vec<ConsumerAction>) {
        self.in_work = self.in_work.saturating_sub(1);
        if self.is_fenced {
            return;
        }
        if let Some(strikes) = self.arrivals.orphan(&taken) {
            strikes.add();
            let outcome = after_rejection(self.config.guarantee, *strikes, taken.header.attempt.number);
            self.settle(outcome, taken, out);
        } else if self.arrivals.finish(&taken) {
            self.reply(taken.producer, ToProducer::Rejected(taken.header.attempt), out);
        }
    }

    /// Gives a message to another consumer as if this one had not failed: the application ends in order before its end.
    pub fn give_back(&mut self, taken: Taken, out: &mut Vec<ConsumerAction>) {
        self.in_work = self.in_work.saturating_sub(1);
        if self.is_fenced {
            return;
        }
        if self.arrivals.orphan(&taken).is_some() {
            self.settle(after_return(self.config.guarantee), taken, out);
        } else if self.arrivals.finish(&taken) {
            self.reply(taken.producer, ToProducer::Begun(taken.header.attempt), out);
            self.reply(taken.producer, ToProducer::Recalled(taken.header.attempt), out);
        }
    }

    /// Executes the fate of a message whose producer is not connected.
    fn settle(&mut self, outcome: Outcome, taken: Taken, out: &mut Vec<ConsumerAction>) {
        match outcome {
            Outcome::Redelivered | Outcome::Suspended if !planted!(self, DeadProducerForgotten) => {
                return self.arrivals.put_back(&taken);
            }
            Outcome::Failed => out.push(ConsumerAction::Failed { producer: taken.producer, header: taken.header }),
            _ => {}
        }
        self.arrivals.finish(&taken);
    }

    /// Leaves the queue: gives back what is not begun, rejects what is taken. A later [`Consumer::take`] asks again.
    ///
    /// Messages of producers that are not connected stay, since those may be dead and give them to no other consumer.
    pub fn withdraw(&mut self, out: &mut Vec<ConsumerAction>) {
        if self.is_fenced || !std::mem::take(&mut self.has_asked) {
            return;
        }
        self.has_withdrawn = true;
        while let Some((producer, attempt, is_taken)) = self.arrivals.remove_connected() {
            let notice = if is_taken { ToProducer::Rejected(attempt) } else { ToProducer::Recalled(attempt) };
            self.reply(producer, notice, out);
        }
        let withdraw = |to| ConsumerAction::Send { to, notice: ToProducer::Withdrawn };
        out.extend(self.arrivals.connected().map(withdraw));
    }

    /// Handles an event.
    ///
    /// # Errors
    /// A producer broke the protocol: the driver ends its connection, and reports that as [`ConsumerEvent::Lost`].
    ///
    /// # Panics
    /// If the driver connects a producer twice, or more than [`PEERS_MAX`](crate::limits::PEERS_MAX).
    pub fn handle(&mut self, event: ConsumerEvent, out: &mut Vec<ConsumerAction>) -> Result<(), Violation> {
        if self.is_fenced {
            return Ok(());
        }
        match event {
            ConsumerEvent::Joined(producer) => self.arrivals.join(producer),
            ConsumerEvent::Connected(producer) => {
                self.arrivals.connect(producer);
                if self.has_asked {
                    out.push(ConsumerAction::Send { to: producer, notice: ToProducer::Ask });
                }
            }
            ConsumerEvent::Lost(producer) => self.arrivals.disconnect(producer),
            ConsumerEvent::Dead(producer) => {
                if planted!(self, DeadProducerForgotten) {
                    self.arrivals.forget_waiting(producer);
                }
                if self.arrivals.bury(producer) && self.config.guarantee == Guarantee::FailStop {
                    out.push(ConsumerAction::FlowLost { producer });
                }
            }
            ConsumerEvent::Left(producer) => {
                self.arrivals.bury(producer);
            }
            ConsumerEvent::Message { from, header } => {
                if !self.has_asked && !self.has_withdrawn {
                    return Err(Violation::Unasked(from));
                }
                self.arrivals.add(from, header)?;
                if !self.has_asked && self.arrivals.recall(from, header.attempt) == Some(true) {
                    self.reply(from, ToProducer::Recalled(header.attempt), out);
                }
            }
            ConsumerEvent::Notice { from, notice } => self.take_notice(from, notice, out)?,
            ConsumerEvent::Fenced => self.is_fenced = true,
        }
        Ok(())
    }

    fn take_notice(
        &mut self,
        from: ProducerId,
        notice: ToConsumer,
        out: &mut Vec<ConsumerAction>,
    ) -> Result<(), Violation> {
        if !self.arrivals.is_connected(from) {
            return Err(Violation::NotConnected(from));
        }
        match notice {
            ToConsumer::Recall(attempt) => match self.arrivals.recall(from, attempt) {
                Some(true) => self.reply(from, ToProducer::Recalled(attempt), out),
                Some(false) if planted!(self, RecalledProcessed) => {
                    self.reply(from, ToProducer::Recalled(attempt), out);
                }
                Some(false) => self.reply(from, ToProducer::Begun(attempt), out),
                // The acknowledgement is on its way.
                None => {}
            },
            ToConsumer::Closed => {
                self.arrivals.end(from);
            }
        }
        Ok(())
    }

    fn reply(&self, to: ProducerId, notice: ToProducer, out: &mut Vec<ConsumerAction>) {
        if self.arrivals.is_connected(to) {
            out.push(ConsumerAction::Send { to, notice });
        }
    }
}
