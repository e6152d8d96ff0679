//! Both ends of a queue, joined by hand: who gets a message when consumers are lost, leave or reject.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_river_core::{
    Consumer, ConsumerAction, ConsumerEvent, ConsumerId, EdgeId, Guarantee, Moment, Producer, ProducerAction,
    ProducerEvent, ProducerId, QueueConfig, Take, Taken, ToConsumer, Violation,
};

const P: ProducerId = ProducerId(0);
const MOMENT: Moment = Moment { now_us: 0, random: 3 };

/// A producer and its consumers, whose messages arrive at once.
struct Queue {
    producer: Producer,
    consumers: Vec<Consumer>,
    /// Everything that the producer did but writes and notices.
    done: Vec<ProducerAction>,
    /// Messages that failed at their consumer.
    failed: Vec<u64>,
    /// Notices of consumers are not delivered while this is true.
    are_replies_held: bool,
    replies: Vec<(ConsumerId, ConsumerAction)>,
}

impl Queue {
    fn new(consumers: u16, config: QueueConfig) -> Self {
        let producer = Producer::new(EdgeId(0), P, config).unwrap();
        let consumers = (0..consumers).map(|id| Consumer::new(EdgeId(0), ConsumerId(id), config).unwrap()).collect();
        let mut queue = Self {
            producer,
            consumers,
            done: Vec::new(),
            failed: Vec::new(),
            are_replies_held: false,
            replies: Vec::new(),
        };
        (0..queue.consumers.len()).for_each(|id| queue.connect(id));
        queue
    }

    fn connect(&mut self, consumer: usize) {
        let (mut replies, mut actions) = (Vec::new(), Vec::new());
        // Both have their connection before anything of it arrives.
        self.consumers[consumer].handle(ConsumerEvent::Connected(P), &mut replies).unwrap();
        self.producer.handle(ProducerEvent::Connected(ConsumerId(consumer as u16)), MOMENT, &mut actions);
        self.deliver(actions);
        self.reply(consumer, replies);
    }

    fn lose(&mut self, consumer: usize) {
        self.at_consumer(consumer, ConsumerEvent::Lost(P));
        self.at_producer(ProducerEvent::Lost(ConsumerId(consumer as u16)));
    }

    fn at_producer(&mut self, event: ProducerEvent) {
        let mut out = Vec::new();
        self.producer.handle(event, MOMENT, &mut out);
        self.deliver(out);
    }

    fn at_consumer(&mut self, consumer: usize, event: ConsumerEvent) {
        let mut out = Vec::new();
        self.consumers[consumer].handle(event, &mut out).unwrap();
        self.reply(consumer, out);
    }

    fn deliver(&mut self, actions: Vec<ProducerAction>) {
        for action in actions {
            match action {
                ProducerAction::Write { to, header } => {
                    self.at_consumer(to.0.into(), ConsumerEvent::Message { from: P, header });
                }
                ProducerAction::Send { to, notice } => {
                    self.at_consumer(to.0.into(), ConsumerEvent::Notice { from: P, notice });
                }
                other => self.done.push(other),
            }
        }
    }

    fn reply(&mut self, consumer: usize, out: Vec<ConsumerAction>) {
        self.replies.extend(out.into_iter().map(|action| (ConsumerId(consumer as u16), action)));
        while !self.are_replies_held && !self.replies.is_empty() {
            let (from, action) = self.replies.remove(0);
            match action {
                ConsumerAction::Send { notice, .. } => self.at_producer(ProducerEvent::Notice { from, notice }),
                ConsumerAction::Failed { header, .. } => self.failed.push(header.attempt.index),
                ConsumerAction::FlowLost { .. } => panic!("no producer is dead"),
            }
        }
    }

    fn put(&mut self) {
        let mut out = Vec::new();
        let place = self.producer.reserve().expect("a free send slot");
        self.producer.put(place, 8, 0, None, MOMENT, &mut out);
        self.deliver(out);
    }

    fn close(&mut self) {
        let mut out = Vec::new();
        self.producer.close(MOMENT, &mut out);
        self.deliver(out);
    }

    fn take(&mut self, consumer: usize) -> Take {
        let mut out = Vec::new();
        let take = self.consumers[consumer].take(0, &mut out);
        self.reply(consumer, out);
        take
    }

    fn take_message(&mut self, consumer: usize) -> Taken {
        match self.take(consumer) {
            Take::Message(taken) => taken,
            other => panic!("{other:?} instead of a message"),
        }
    }

    fn acknowledge(&mut self, consumer: usize, taken: Taken) -> bool {
        let mut out = Vec::new();
        let is_in_time = self.consumers[consumer].acknowledge(taken, 10, &mut out);
        self.reply(consumer, out);
        is_in_time
    }

    fn reject(&mut self, consumer: usize, taken: Taken) {
        let mut out = Vec::new();
        self.consumers[consumer].reject(taken, &mut out);
        self.reply(consumer, out);
    }

    fn give_back(&mut self, consumer: usize, taken: Taken) {
        let mut out = Vec::new();
        self.consumers[consumer].give_back(taken, &mut out);
        self.reply(consumer, out);
    }
}

fn with(guarantee: Guarantee) -> QueueConfig {
    QueueConfig { guarantee, ..QueueConfig::default() }
}

// If this failed, a consumer that never asks would hold messages.
#[test]
fn no_message_leaves_before_a_consumer_asks() {
    let mut queue = Queue::new(2, QueueConfig::default());
    (0..5).for_each(|_| queue.put());
    assert_eq!((queue.consumers[0].held(), queue.consumers[1].held()), (0, 0));
    assert_eq!(queue.take(0), Take::Empty);
    assert_eq!((queue.consumers[0].held(), queue.consumers[1].held()), (2, 0), "a window of two");
    let first = queue.take_message(0);
    assert_eq!(queue.consumers[0].held(), 2, "a credit comes back with the acknowledgement");
    assert!(queue.acknowledge(0, first));
    assert_eq!(queue.consumers[0].held(), 2);
    let indices: Vec<u64> = (0..4)
        .map(|_| {
            let taken = queue.take_message(0);
            queue.acknowledge(0, taken);
            taken.header.attempt.index
        })
        .collect();
    assert_eq!(indices, [1, 2, 3, 4], "in order");
}

// If this failed, memory of a producer would have no bound.
#[test]
fn a_producer_waits_when_its_send_slots_are_full() {
    let mut queue = Queue::new(1, QueueConfig { send_slots: 3, ..QueueConfig::default() });
    (0..3).for_each(|_| queue.put());
    assert_eq!(queue.producer.reserve(), None);
    assert_eq!(queue.take(0), Take::Empty);
    let taken = queue.take_message(0);
    queue.acknowledge(0, taken);
    let place = queue.producer.reserve().expect("an acknowledgement frees a send slot");
    queue.producer.release(place);
    assert_eq!(queue.producer.held(), 2);
}

// If this failed, a lost consumer would take its messages with it, or a double would not be visible.
#[test]
fn messages_of_a_lost_consumer_reach_another_with_a_flag() {
    let mut queue = Queue::new(2, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    (0..2).for_each(|_| queue.put());
    let late = queue.take_message(0);
    queue.close();
    queue.lose(0);
    assert_eq!(queue.take(1), Take::Empty);
    for index in 0..2 {
        let taken = queue.take_message(1);
        assert_eq!((taken.header.attempt.index, taken.header.flags.is_redelivered), (index, true));
        assert!(!queue.done.contains(&ProducerAction::Ended), "a message is not acknowledged");
        assert!(queue.acknowledge(1, taken));
    }
    assert_eq!(queue.done.last(), Some(&ProducerAction::Ended));
    assert_eq!(queue.take(1), Take::Ended);
    assert!(!queue.acknowledge(0, late), "another consumer has the message");
    queue.connect(0);
    assert_eq!(queue.take(0), Take::Ended, "a consumer that comes back learns of the end");
}

// If this failed, an acknowledgement from before a lost connection would end a message that another consumer has.
#[test]
fn late_acknowledgement_of_an_earlier_connection_changes_nothing() {
    let mut queue = Queue::new(1, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    queue.put();
    let early = queue.take_message(0);
    queue.lose(0);
    queue.connect(0);
    assert!(!queue.acknowledge(0, early));
    assert_eq!(queue.producer.held(), 1);
    let again = queue.take_message(0);
    assert!(again.header.flags.is_redelivered);
    assert!(queue.acknowledge(0, again));
    assert_eq!(queue.producer.held(), 0);
}

// If this failed, a message that ends its consumers would end all of them.
#[test]
fn a_message_that_ends_three_consumers_fails_and_the_others_do_not() {
    let mut queue = Queue::new(4, QueueConfig::default());
    queue.put();
    queue.put();
    for consumer in 0..3 {
        assert_eq!(queue.take(consumer), Take::Empty);
        assert_eq!(queue.take_message(consumer).header.attempt.index, 0);
        queue.lose(consumer);
    }
    assert_eq!(queue.take(3), Take::Empty);
    let other = queue.take_message(3);
    assert_eq!(other.header.attempt.index, 1, "the suspect waits until its victims are dead or back");
    queue.acknowledge(3, other);
    assert_eq!(queue.take(3), Take::Empty);
    for consumer in 0..3 {
        assert!(!queue.done.iter().any(|action| matches!(action, ProducerAction::Failed { .. })));
        queue.at_producer(ProducerEvent::Dead(ConsumerId(consumer)));
    }
    assert!(queue.done.iter().any(|action| matches!(action, ProducerAction::Failed { index: 0, .. })));
    queue.close();
    assert_eq!(queue.done.last(), Some(&ProducerAction::Ended));
}

// If this failed, lost connections would count as deaths, and a message could fail without a victim.
#[test]
fn a_suspect_message_goes_on_when_a_consumer_comes_back() {
    let mut queue = Queue::new(3, QueueConfig::default());
    queue.put();
    for consumer in 0..3 {
        assert_eq!(queue.take(consumer), Take::Empty);
        queue.take_message(consumer);
        queue.lose(consumer);
    }
    queue.connect(1);
    let taken = queue.take_message(1);
    assert!(taken.header.flags.is_redelivered);
    assert!(queue.acknowledge(1, taken));
}

#[test]
fn a_message_that_is_rejected_three_times_fails() {
    let mut queue = Queue::new(1, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    queue.put();
    for round in 0..3 {
        let taken = queue.take_message(0);
        assert_eq!(taken.header.flags.is_redelivered, round > 0);
        queue.reject(0, taken);
    }
    assert_eq!(queue.take(0), Take::Empty);
    assert!(matches!(queue.done[..], [ProducerAction::Failed { index: 0, .. }]));
}

// If this failed, restarts of consumers would fail a message that each of them gave back in order.
#[test]
fn a_message_that_is_given_back_is_flagged_and_has_no_strike() {
    let mut queue = Queue::new(1, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    queue.put();
    for round in 0..10 {
        let taken = queue.take_message(0);
        assert_eq!(taken.header.flags.is_redelivered, round > 0);
        queue.give_back(0, taken);
    }
    let taken = queue.take_message(0);
    assert!(queue.acknowledge(0, taken));
    assert!(matches!(queue.done[..], [ProducerAction::Acknowledged { index: 0 }]), "{:?}", queue.done);
    let mut queue = Queue::new(1, with(Guarantee::AtMostOnce));
    assert_eq!(queue.take(0), Take::Empty);
    queue.put();
    let taken = queue.take_message(0);
    queue.give_back(0, taken);
    assert_eq!(queue.take(0), Take::Empty);
    assert_eq!(queue.done, [ProducerAction::Dropped { index: 0 }]);
}

// If this failed, a restart of a consumer, or one failure of its program, would lose messages whose producers are dead.
#[test]
fn message_of_a_dead_producer_that_is_given_back_or_rejected_is_taken_again() {
    let mut queue = Queue::new(1, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    (0..2).for_each(|_| queue.put());
    let mut taken = queue.take_message(0);
    queue.at_consumer(0, ConsumerEvent::Dead(P));
    assert_eq!(queue.consumers[0].last_copies(), 1, "the other one");
    for _ in 0..10 {
        queue.give_back(0, taken);
        assert_eq!((queue.consumers[0].last_copies(), queue.consumers[0].held()), (2, 2));
        taken = queue.take_message(0);
        assert_eq!((taken.header.attempt.index, taken.header.flags.is_redelivered), (0, true), "no strike");
    }
    for _ in 0..2 {
        queue.reject(0, taken);
        taken = queue.take_message(0);
        assert_eq!((taken.header.attempt.index, queue.failed.len()), (0, 0));
    }
    queue.reject(0, taken);
    assert_eq!(queue.failed, [0], "the third time it has failed");
    let taken = queue.take_message(0);
    assert_eq!((taken.header.attempt.index, taken.header.flags.is_redelivered), (1, false));
    assert!(!queue.acknowledge(0, taken), "no producer learns it");
    assert_eq!(queue.take(0), Take::Ended);
    let mut queue = Queue::new(1, with(Guarantee::AtMostOnce));
    assert_eq!(queue.take(0), Take::Empty);
    queue.put();
    let taken = queue.take_message(0);
    queue.at_consumer(0, ConsumerEvent::Dead(P));
    queue.give_back(0, taken);
    assert_eq!(queue.take(0), Take::Ended, "at most once");
}

#[test]
fn at_most_once_drops_messages_of_a_lost_consumer() {
    let mut queue = Queue::new(2, with(Guarantee::AtMostOnce));
    assert_eq!(queue.take(0), Take::Empty);
    (0..3).for_each(|_| queue.put());
    queue.lose(0);
    assert_eq!(queue.done, [0, 1].map(|index| ProducerAction::Dropped { index }));
    assert_eq!(queue.take(1), Take::Empty);
    let taken = queue.take_message(1);
    assert_eq!((taken.header.attempt.index, taken.header.flags.is_redelivered), (2, false));
}

#[test]
fn fail_stop_ends_the_flow_and_names_the_consumer() {
    let mut queue = Queue::new(2, with(Guarantee::FailStop));
    assert_eq!(queue.take(0), Take::Empty);
    queue.lose(0);
    assert_eq!(queue.done, [], "the consumer had nothing");
    queue.connect(0);
    (0..2).for_each(|_| queue.put());
    queue.lose(0);
    assert_eq!(queue.done, [ProducerAction::FlowLost { consumer: ConsumerId(0) }]);
}

// If this failed, the flow would go on without what a dead consumer has in its memory.
#[test]
fn fail_stop_ends_the_flow_when_an_idle_consumer_dies() {
    let mut queue = Queue::new(2, with(Guarantee::FailStop));
    queue.at_producer(ProducerEvent::Dead(ConsumerId(1)));
    assert_eq!(queue.done, [ProducerAction::FlowLost { consumer: ConsumerId(1) }]);
}

// If this failed, a slow consumer would decide when all are finished.
#[test]
fn a_member_that_leaves_in_order_ends_no_flow() {
    // If this broke, fail-stop flows could not let a member go.
    let mut queue = Queue::new(2, with(Guarantee::FailStop));
    queue.at_producer(ProducerEvent::Left(ConsumerId(0)));
    queue.at_consumer(1, ConsumerEvent::Left(P));
    assert_eq!(queue.done, []);
}

#[test]
fn producers_of_a_long_time_leave_no_trace() {
    // If this broke, a consumer would grow with each producer that came and went, and panic at the limit.
    let (mut consumer, mut out) =
        (Consumer::new(EdgeId(0), ConsumerId(0), with(Guarantee::AtLeastOnce)).unwrap(), vec![]);
    for id in 0..u16::MAX {
        consumer.handle(ConsumerEvent::Connected(ProducerId(id)), &mut out).unwrap();
        consumer.handle(ConsumerEvent::Dead(ProducerId(id)), &mut out).unwrap();
        out.clear();
    }
    assert_eq!(consumer.take(0, &mut out), Take::Ended);
}

#[test]
fn an_idle_producer_takes_back_the_newest_message_of_the_slowest_consumer() {
    let mut queue = Queue::new(2, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    (0..4).for_each(|_| queue.put());
    // The first consumer acknowledges one message, and has two.
    let first = queue.take_message(0);
    queue.acknowledge(0, first);
    let second = queue.take_message(0);
    assert_eq!((second.header.attempt.index, queue.consumers[0].held()), (1, 2));
    // The other one takes the last message, and is free again.
    assert_eq!(queue.take(1), Take::Empty);
    let last = queue.take_message(1);
    assert_eq!(last.header.attempt.index, 3);
    queue.acknowledge(1, last);
    let recalled = queue.take_message(1);
    assert_eq!(recalled.header.attempt.index, 2);
    assert!(recalled.header.flags.is_recalled && !recalled.header.flags.is_redelivered);
    assert_eq!(queue.consumers[0].held(), 1);
}

// If this failed, a consumer that leaves would keep messages, or end them for the others.
#[test]
fn a_consumer_that_leaves_gives_its_messages_back() {
    let mut queue = Queue::new(2, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    (0..2).for_each(|_| queue.put());
    queue.take_message(0);
    let mut out = Vec::new();
    queue.are_replies_held = true;
    queue.consumers[0].withdraw(&mut out);
    queue.reply(0, out);
    // A message leaves for a slot that the producer believes to be free when the first reply is there.
    queue.put();
    queue.are_replies_held = false;
    queue.reply(0, Vec::new());
    assert_eq!((queue.consumers[0].held(), queue.producer.held()), (0, 3));
    assert_eq!(queue.take(1), Take::Empty);
    let flags = [queue.take_message(1), queue.take_message(1)].map(|taken| {
        queue.acknowledge(1, taken);
        (taken.header.attempt.index, taken.header.flags.is_redelivered)
    });
    assert_eq!(flags, [(0, true), (1, false)], "only the first was begun");
}

#[test]
fn a_fenced_consumer_changes_nothing() {
    let mut queue = Queue::new(1, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    queue.put();
    let taken = queue.take_message(0);
    queue.at_consumer(0, ConsumerEvent::Fenced);
    assert_eq!(queue.take(0), Take::Fenced);
    assert!(!queue.acknowledge(0, taken));
    queue.reject(0, taken);
    assert_eq!(queue.producer.held(), 1);
}

// If this failed, the death of a producer would take messages along that had arrived, or the queue would never end.
#[test]
fn messages_of_a_dead_producer_are_delivered_before_the_end() {
    let mut queue = Queue::new(1, QueueConfig::default());
    assert_eq!(queue.take(0), Take::Empty);
    (0..2).for_each(|_| queue.put());
    queue.at_consumer(0, ConsumerEvent::Lost(P));
    queue.at_consumer(0, ConsumerEvent::Dead(P));
    queue.take_message(0);
    queue.take_message(0);
    assert_eq!(queue.take(0), Take::Ended);
}

#[test]
fn violations_of_a_producer_are_named() {
    let mut consumer = Consumer::new(EdgeId(0), ConsumerId(0), QueueConfig::default()).unwrap();
    let mut queue = Queue::new(1, QueueConfig::default());
    queue.take(0);
    let mut out = Vec::new();
    let place = queue.producer.reserve().unwrap();
    queue.producer.put(place, 8, 0, None, MOMENT, &mut out);
    let [ProducerAction::Write { header, .. }] = out[..] else { panic!("{out:?}") };
    let send = |consumer: &mut Consumer, header| {
        consumer.handle(ConsumerEvent::Message { from: P, header }, &mut Vec::new()).unwrap_err()
    };
    assert_eq!(send(&mut consumer, header), Violation::Unasked(P));
    consumer.take(0, &mut Vec::new());
    assert_eq!(send(&mut consumer, header), Violation::NotConnected(P));
    consumer.handle(ConsumerEvent::Connected(P), &mut Vec::new()).unwrap();
    consumer.handle(ConsumerEvent::Message { from: P, header }, &mut Vec::new()).unwrap();
    assert_eq!(send(&mut consumer, header), Violation::FullSlot(P, header.slot));
    let mut changed = header;
    changed.slot = 2;
    assert_eq!(send(&mut consumer, changed), Violation::NoSlot(P, 2));
    changed.length = u32::MAX;
    assert_eq!(send(&mut consumer, changed), Violation::Long(P, u32::MAX));
    let closed = ConsumerEvent::Notice { from: P, notice: ToConsumer::Closed };
    consumer.handle(closed, &mut Vec::new()).unwrap();
    assert_eq!(send(&mut consumer, header), Violation::Closed(P));
}

#[test]
fn settings_outside_their_limits_are_refused() {
    for (name, config) in [
        ("window", QueueConfig { window: 65, ..QueueConfig::default() }),
        ("send_slots", QueueConfig { send_slots: 0, ..QueueConfig::default() }),
        ("message_bytes_max", QueueConfig { message_bytes_max: (64 << 20) + 1, ..QueueConfig::default() }),
    ] {
        assert_eq!(config.check().unwrap_err().name, name);
    }
}
