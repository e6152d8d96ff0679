//! Connections: their begin, their end, and what arrives over them.

use super::event::{Event, Transfer};
use super::plan::Member;
use super::world::{World, pair};
use ddss_river_core::codec::{Message, decode};
use ddss_river_core::{ConsumerEvent, ConsumerId, ProducerEvent, ProducerId};

impl World {
    /// Connects two processes, once both have noticed the end of the connection before.
    pub(crate) fn connect(&mut self, producer: u16, consumer: u16) {
        let (one, other) = (Member::Producer(producer), Member::Consumer(consumer));
        let is_free = self.link(one, other).is_free();
        for member in [one, other] {
            let life = self.life(member);
            if life.is_killed || life.is_dead {
                return;
            }
        }
        if !is_free || !self.life(one).can_connect() || !self.life(other).can_connect() {
            let after_us = 1 + self.random.below(500);
            return self.agenda.add(after_us, Event::Connect(producer, consumer));
        }
        self.link(one, other).connect();
        let window = usize::from(self.plan.config.window);
        self.consumers[usize::from(consumer)].rings.insert(producer, vec![0; window]);
        self.consumer_event(consumer, ConsumerEvent::Connected(ProducerId(producer)));
        self.producer_event(producer, ProducerEvent::Connected(ConsumerId(consumer)));
    }

    pub(crate) fn producer_event(&mut self, id: u16, event: ProducerEvent) {
        let moment = self.moment();
        let mut out = Vec::new();
        self.producers[usize::from(id)].engine.handle(event, moment, &mut out);
        self.execute_producer(id, out);
        self.run_source(id);
    }

    pub(crate) fn consumer_event(&mut self, id: u16, event: ConsumerEvent) {
        let mut out = Vec::new();
        if let Err(violation) = self.consumers[usize::from(id)].engine.handle(event, &mut out) {
            self.checker.complain(format!("memory: consumer {id}: {violation}"));
        }
        self.execute_consumer(id, out);
        self.run_sink(id);
    }

    /// Ends a connection: both processes notice it, one after the other.
    pub(crate) fn cut(&mut self, one: Member, other: Member) {
        self.link(one, other).cut();
        self.notice_loss_later(one, other);
        self.notice_loss_later(other, one);
    }

    /// Lets a process notice the end of its connection.
    pub(crate) fn notice_loss_later(&mut self, at: Member, peer: Member) {
        let after_us = self.random.below(800);
        let link = *self.link(at, peer);
        if link.has(at) {
            self.agenda.add(after_us, Event::NoticeLoss { at, peer, epoch: link.epoch });
        }
    }

    /// A process notices the end of its connection.
    pub(crate) fn notice_loss(&mut self, at: Member, peer: Member, epoch: u32) {
        let link = self.link(at, peer);
        if link.epoch != epoch || !link.drop_side(at) {
            return;
        }
        let is_free = link.is_free();
        match (at, peer) {
            (Member::Producer(id), Member::Consumer(peer)) => {
                self.producer_event(id, ProducerEvent::Lost(ConsumerId(peer)));
            }
            (Member::Consumer(id), Member::Producer(peer)) => {
                self.consumer_event(id, ConsumerEvent::Lost(ProducerId(peer)));
            }
            _ => unreachable!("peers"),
        }
        if is_free {
            let (producer, consumer) = pair(at, peer);
            let after_us = 1 + self.random.below(1_000);
            self.agenda.add(after_us, Event::Connect(producer, consumer));
        }
    }

    /// A message arrives, unless its connection has ended.
    pub(crate) fn arrive(&mut self, transfer: &Transfer) {
        let Transfer { from, to, epoch, ref bytes, write } = *transfer;
        let link = *self.link(from, to);
        if link.epoch != epoch || !link.has(to) {
            return;
        }
        let (message, rest) = decode(bytes).expect("a message of an honest process");
        assert!(rest.is_empty());
        match (message, from, to) {
            (Message::Put { header, .. }, Member::Producer(from), Member::Consumer(to)) => {
                let (slot, content) = write.expect("a written message");
                let ring = self.consumers[usize::from(to)].rings.get_mut(&from).expect("a ring for each connection");
                ring[usize::from(slot)] = content;
                self.check_source(from, header.attempt.place, content);
                self.consumer_event(to, ConsumerEvent::Message { from: ProducerId(from), header });
            }
            (Message::ToConsumer(_, notice), Member::Producer(from), Member::Consumer(to)) => {
                self.consumer_event(to, ConsumerEvent::Notice { from: ProducerId(from), notice });
            }
            (Message::ToProducer(_, notice), Member::Consumer(from), Member::Producer(to)) => {
                self.producer_event(to, ProducerEvent::Notice { from: ConsumerId(from), notice });
            }
            _ => unreachable!("{message:?} from {from:?} to {to:?}"),
        }
    }

    /// A fabric may read a send slot until the write has arrived: the slot has to stay as it is.
    fn check_source(&mut self, producer: u16, place: u16, content: u64) {
        let process = &self.producers[usize::from(producer)];
        if process.life.is_alive() && process.ring[usize::from(place)] != content {
            self.checker.complain(format!("memory: send slot {place} of producer {producer} changed during its write"));
        }
    }
}
