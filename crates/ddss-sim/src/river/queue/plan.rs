//! Plan of one run.

use crate::random::Random;
use ddss_river_core::{Guarantee, QueueConfig};

/// A process of the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Member {
    Producer(u16),
    Consumer(u16),
}

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A connection ends.
    Cut(u16, u16),
    /// A process is killed. A killed consumer has a successor.
    Kill(Member),
    /// A process does not run for a while.
    Stop(Member, u64),
    /// A consumer leaves the queue, and takes messages again after a while.
    Withdraw(u16, u64),
}

/// A program that makes messages: its disk, or its processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) messages: u64,
    pub(crate) message_us: u64,
}

/// A program that processes messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sink {
    pub(crate) service_us: u64,
    /// Messages in work at the same time.
    pub(crate) workers: usize,
    /// When the program begins.
    pub(crate) start_us: u64,
}

/// Plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct QueuePlan {
    pub(crate) config: QueueConfig,
    pub(crate) sources: Vec<Source>,
    pub(crate) sinks: Vec<Sink>,
    /// True if producer i sends only to consumer i.
    pub(crate) is_static: bool,
    /// True if each time is random, up to twice the one of the plan.
    pub(crate) has_jitter: bool,
    pub(crate) latency_us: u64,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// The message that ends each consumer that begins it: producer and index.
    pub(crate) poison: Option<(u16, u64)>,
    /// One of so many messages is rejected; 0 for none.
    pub(crate) reject_one_in: u64,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<ddss_river_core::Bug>,
}

/// Time after which the peers of a stopped process end their connections.
pub(crate) const STALL_US: u64 = 1_000;
/// Time after which a stopped or killed process is declared dead.
pub(crate) const LEASE_US: u64 = 6_000;

/// Returns a plan with small rings, slow consumers and faults.
pub(crate) fn random_plan(random: &mut Random) -> QueuePlan {
    let guarantee = match random.below(6) {
        0 => Guarantee::AtMostOnce,
        1 => Guarantee::FailStop,
        _ => Guarantee::AtLeastOnce,
    };
    let config = QueueConfig {
        window: 1 + random.below(3) as u16,
        send_slots: 1 + random.below(8) as u16,
        message_bytes_max: 8,
        guarantee,
        has_recall: !random.one_in(4),
    };
    let source = |random: &mut Random| Source { messages: random.below(60), message_us: 10 + random.below(200) };
    let sink = |random: &mut Random| Sink {
        service_us: (20 + random.below(200)) * if random.one_in(3) { 8 } else { 1 },
        workers: if random.one_in(3) { 2 } else { 1 },
        start_us: if random.one_in(4) { random.below(4_000) } else { 0 },
    };
    let sources: Vec<Source> = (0..1 + random.below(4)).map(|_| source(random)).collect();
    let sinks: Vec<Sink> = (0..1 + random.below(4)).map(|_| sink(random)).collect();
    let poison = random.one_in(8).then(|| (random.below(sources.len() as u64) as u16, random.below(20)));
    let faults = random_faults(sources.len() as u64, sinks.len() as u64, random);
    QueuePlan {
        config,
        sources,
        sinks,
        is_static: false,
        has_jitter: true,
        latency_us: 1 + random.below(100),
        faults,
        poison: poison.filter(|_| guarantee == Guarantee::AtLeastOnce),
        reject_one_in: if random.one_in(4) { 20 } else { 0 },
        #[cfg(feature = "planted")]
        bug: None,
    }
}

fn random_faults(producers: u64, consumers: u64, random: &mut Random) -> Vec<(u64, Fault)> {
    if random.one_in(4) {
        return Vec::new();
    }
    let fault = |random: &mut Random| {
        // Consumers that take the place of killed ones have the next numbers.
        let (producer, consumer) = (random.below(producers) as u16, random.below(consumers + 2) as u16);
        let member = if random.one_in(3) { Member::Producer(producer) } else { Member::Consumer(consumer) };
        let fault = match random.below(8) {
            0..3 => Fault::Cut(producer, consumer),
            3 => Fault::Kill(member),
            4 => Fault::Kill(Member::Consumer(consumer)),
            5 => Fault::Withdraw(consumer, random.below(2_000)),
            6 => Fault::Stop(member, random.below(4 * STALL_US)),
            _ => Fault::Stop(member, random.below(2 * LEASE_US)),
        };
        (random.below(12_000), fault)
    };
    (0..1 + random.below(6)).map(|_| fault(random)).collect()
}
