//! Executes the actions of both ends.

use super::event::{Event, Transfer};
use super::plan::Member;
use super::world::World;
use ddss_river_core::codec::{Message, encode};
use ddss_river_core::{ConsumerAction, ProducerAction};

impl World {
    /// Executes the actions of a producer.
    pub(crate) fn execute_producer(&mut self, id: u16, actions: Vec<ProducerAction>) {
        for action in actions {
            let process = &mut self.producers[usize::from(id)];
            match action {
                ProducerAction::Write { to, header } => {
                    let content = process.ring[usize::from(header.attempt.place)];
                    let message = Message::Put { route: process.engine.route(to), header, inline: None };
                    self.counts.redelivered += u64::from(header.flags.is_redelivered);
                    self.counts.recalled += u64::from(header.flags.is_recalled);
                    self.post(Member::Producer(id), Member::Consumer(to.0), &message, Some((header.slot, content)));
                }
                ProducerAction::Send { to, notice } => {
                    let message = Message::ToConsumer(process.engine.route(to), notice);
                    self.post(Member::Producer(id), Member::Consumer(to.0), &message, None);
                }
                ProducerAction::Acknowledged { index } => self.checker.on_acknowledged(id, index),
                ProducerAction::Failed { index, .. } => {
                    self.counts.failed += 1;
                    self.checker.on_failed(id, index);
                }
                ProducerAction::Dropped { index } => {
                    self.counts.dropped += 1;
                    self.checker.on_dropped(id, index);
                }
                ProducerAction::Ended => process.has_ended = true,
                ProducerAction::FlowLost { .. } => self.lose_flow(),
            }
        }
        let process = &self.producers[usize::from(id)];
        if process.engine.held() > process.ring.len() {
            self.checker.complain(format!("memory: producer {id} holds {} messages", process.engine.held()));
        }
    }

    /// Executes the actions of a consumer.
    pub(crate) fn execute_consumer(&mut self, id: u16, actions: Vec<ConsumerAction>) {
        for action in actions {
            match action {
                ConsumerAction::Send { to, notice } => {
                    let route = self.consumers[usize::from(id)].engine.route(to);
                    let message = Message::ToProducer(route, notice);
                    self.post(Member::Consumer(id), Member::Producer(to.0), &message, None);
                }
                ConsumerAction::Failed { producer, header } => {
                    self.counts.failed += 1;
                    self.checker.on_failed(producer.0, header.attempt.index);
                }
                ConsumerAction::FlowLost { .. } => self.lose_flow(),
            }
        }
        let held = self.consumers[usize::from(id)].engine.held();
        if held > self.producers.len() as u32 * u32::from(self.plan.config.window) {
            self.checker.complain(format!("memory: consumer {id} holds {held} messages"));
        }
    }

    /// Sends a message over a connection.
    fn post(&mut self, from: Member, to: Member, message: &Message<'_>, write: Option<(u16, u64)>) {
        let latency_us = self.plan.latency_us;
        let earliest_us = self.agenda.now_us + self.vary(latency_us);
        let link = self.link(from, to);
        assert!(link.has(from), "{from:?} sends to {to:?} without a connection: {message:?}");
        if link.is_intact {
            let (at_us, epoch) = (link.arrival_us(to, earliest_us), link.epoch);
            let mut bytes = Vec::new();
            encode(message, &mut bytes);
            self.agenda.add_at(at_us, Event::Arrive(Transfer { from, to, epoch, bytes, write }));
        }
    }

    fn lose_flow(&mut self) {
        self.counts.flows_lost += u64::from(!self.is_flow_lost);
        self.is_flow_lost = true;
        if self.plan.config.guarantee != ddss_river_core::Guarantee::FailStop {
            self.checker.complain("end: the flow is lost without fail-stop".to_owned());
        }
    }
}
