//! Memory of both ends of a queue: all of it is allocated before the first message.

use ddss_river_core::{
    Consumer, ConsumerAction, ConsumerEvent, ConsumerId, EdgeId, Moment, Producer, ProducerAction, ProducerEvent,
    ProducerId, QueueConfig, Take,
};

const CONSUMERS: u16 = 4;
const P: ProducerId = ProducerId(0);

/// Both ends, and buffers that are used again.
struct Queue {
    producer: Producer,
    consumers: Vec<Consumer>,
    out: Vec<ProducerAction>,
    replies: Vec<ConsumerAction>,
    processed: u64,
    recalled: u64,
}

impl Queue {
    fn new() -> Self {
        let config = QueueConfig::default();
        let consumer = |id| Consumer::new(EdgeId(0), ConsumerId(id), config).expect("valid settings");
        let mut queue = Self {
            producer: Producer::new(EdgeId(0), P, config).expect("valid settings"),
            consumers: (0..CONSUMERS).map(consumer).collect(),
            out: Vec::with_capacity(64),
            replies: Vec::with_capacity(64),
            processed: 0,
            recalled: 0,
        };
        let moment = Moment { now_us: 0, random: 0 };
        for (id, consumer) in queue.consumers.iter_mut().enumerate() {
            consumer.handle(ConsumerEvent::Connected(P), &mut queue.replies).expect("no message");
            queue.producer.handle(ProducerEvent::Connected(ConsumerId(id as u16)), moment, &mut queue.out);
        }
        queue
    }

    /// Puts a message, and lets the consumers take and acknowledge what they have.
    fn cycle(&mut self, round: u64) {
        let moment = Moment { now_us: 100 * round, random: round };
        // More than the consumers process, and then nothing for a while.
        for _ in 0..if round & 16 == 0 { 5 } else { 0 } {
            if let Some(place) = self.producer.reserve() {
                self.producer.put(place, 64, 0, None, moment, &mut self.out);
            }
        }
        self.deliver(moment);
        for id in 0..self.consumers.len() {
            // The last consumer is slow, so that messages are recalled.
            let is_slow = id == 3;
            if is_slow && !round.is_multiple_of(8) {
                continue;
            }
            let consumer = &mut self.consumers[id];
            if let Take::Message(taken) = consumer.take(moment.now_us, &mut self.replies) {
                self.processed += 1;
                self.recalled += u64::from(taken.header.flags.is_recalled);
                let now_us = moment.now_us + if is_slow { 90 } else { 5 };
                consumer.acknowledge(taken, now_us, &mut self.replies);
            }
            self.reply(id, moment);
            self.deliver(moment);
        }
    }

    fn deliver(&mut self, moment: Moment) {
        while !self.out.is_empty() {
            let (to, event) = match self.out.remove(0) {
                ProducerAction::Write { to, header } => (to, ConsumerEvent::Message { from: P, header }),
                ProducerAction::Send { to, notice } => (to, ConsumerEvent::Notice { from: P, notice }),
                _ => continue,
            };
            let id = usize::from(to.0);
            self.consumers[id].handle(event, &mut self.replies).expect("an honest producer");
            self.reply(id, moment);
        }
    }

    fn reply(&mut self, id: usize, moment: Moment) {
        for reply in self.replies.drain(..) {
            let ConsumerAction::Send { notice, .. } = reply else { panic!("no producer is dead") };
            self.producer.handle(ProducerEvent::Notice { from: ConsumerId(id as u16), notice }, moment, &mut self.out);
        }
    }
}

// If this failed, a queue would wait for the allocator while messages flow.
#[test]
fn messages_allocate_nothing() {
    let mut queue = Queue::new();
    queue.cycle(0);
    let counted = allocation_counter::measure(|| (1..4_000).for_each(|round| queue.cycle(round)));
    assert_eq!(counted.count_total, 0);
    assert!(queue.processed > 2_000 && queue.recalled > 10, "{} and {}", queue.processed, queue.recalled);
}
