//! All processes and connections of one run.

use super::checker::Checker;
use super::event::Event;
use super::link::Link;
use super::plan::{Member, QueuePlan};
use super::process::{ConsumerProcess, Life, ProducerProcess};
use crate::random::Random;
use crate::river::agenda::Agenda;
use ddss_river_core::{Consumer, ConsumerId, EdgeId, Moment, Producer, ProducerId};
use std::collections::BTreeMap;

/// The edge of a run.
pub(crate) const EDGE: EdgeId = EdgeId(1);

/// Counts of one run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct QueueCounts {
    pub(crate) messages: u64,
    pub(crate) processed: u64,
    pub(crate) doubles: u64,
    pub(crate) redelivered: u64,
    pub(crate) recalled: u64,
    pub(crate) failed: u64,
    pub(crate) dropped: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) fenced: u64,
    pub(crate) cuts: u64,
    pub(crate) withdrawals: u64,
    pub(crate) flows_lost: u64,
    /// When the last message was processed.
    pub(crate) finished_us: u64,
}

/// All processes and connections of one run.
pub(crate) struct World {
    pub(crate) plan: QueuePlan,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) random: Random,
    pub(crate) producers: Vec<ProducerProcess>,
    pub(crate) consumers: Vec<ConsumerProcess>,
    /// By producer and consumer.
    pub(crate) links: BTreeMap<(u16, u16), Link>,
    pub(crate) checker: Checker,
    pub(crate) counts: QueueCounts,
    /// True if a guarantee has ended the flow.
    pub(crate) is_flow_lost: bool,
}

impl World {
    pub(crate) fn new(plan: QueuePlan, random: Random) -> Self {
        let mut world = Self {
            agenda: Agenda::new(),
            random,
            producers: Vec::new(),
            consumers: Vec::new(),
            links: BTreeMap::new(),
            checker: Checker::new(plan.config.guarantee),
            counts: QueueCounts::default(),
            is_flow_lost: false,
            plan,
        };
        (0..world.plan.sources.len() as u16).for_each(|id| world.add_producer(id));
        world
    }

    fn add_producer(&mut self, id: u16) {
        let config = self.plan.config;
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut engine = Producer::new(EDGE, ProducerId(id), config).expect("valid settings");
        #[cfg(feature = "planted")]
        self.plan.bug.into_iter().for_each(|bug| engine.plant(bug));
        self.producers.push(ProducerProcess {
            life: Life::default(),
            engine,
            ring: vec![0; config.send_slots.into()],
            made: 0,
            is_making: false,
            is_closed: false,
            has_ended: false,
        });
    }

    /// Adds a consumer, whose connections begin later.
    pub(crate) fn add_consumer(&mut self, service_us: u64, workers: usize) -> u16 {
        let (config, id) = (self.plan.config, self.consumers.len() as u16);
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut engine = Consumer::new(EDGE, ConsumerId(id), config).expect("valid settings");
        #[cfg(feature = "planted")]
        self.plan.bug.into_iter().for_each(|bug| engine.plant(bug));
        self.consumers.push(ConsumerProcess {
            life: Life::default(),
            engine,
            rings: BTreeMap::new(),
            has_started: false,
            workers,
            in_work: Vec::new(),
            has_ended: false,
            is_fenced: false,
            service_us,
        });
        id
    }

    pub(crate) fn life(&mut self, member: Member) -> &mut Life {
        match member {
            Member::Producer(id) => &mut self.producers[usize::from(id)].life,
            Member::Consumer(id) => &mut self.consumers[usize::from(id)].life,
        }
    }

    /// Returns true if there is such a process.
    pub(crate) fn has(&self, member: Member) -> bool {
        match member {
            Member::Producer(id) => usize::from(id) < self.producers.len(),
            Member::Consumer(id) => usize::from(id) < self.consumers.len(),
        }
    }

    /// Returns the link between two processes.
    pub(crate) fn link(&mut self, one: Member, other: Member) -> &mut Link {
        self.links.get_mut(&pair(one, other)).expect("a link for each pair")
    }

    /// Returns the peers of a process.
    pub(crate) fn peers(&self, member: Member) -> Vec<Member> {
        let peer = |(producer, consumer): &(u16, u16)| match member {
            Member::Producer(id) => (id == *producer).then_some(Member::Consumer(*consumer)),
            Member::Consumer(id) => (id == *consumer).then_some(Member::Producer(*producer)),
        };
        self.links.keys().filter_map(peer).collect()
    }

    /// Returns a time around the planned one.
    pub(crate) fn vary(&mut self, planned_us: u64) -> u64 {
        if self.plan.has_jitter { 1 + self.random.below(2 * planned_us) } else { planned_us }
    }

    pub(crate) fn moment(&mut self) -> Moment {
        Moment { now_us: self.agenda.now_us, random: self.random.word() }
    }
}

/// Returns the numbers of the producer and the consumer of two peers.
pub(crate) fn pair(one: Member, other: Member) -> (u16, u16) {
    match (one, other) {
        (Member::Producer(producer), Member::Consumer(consumer))
        | (Member::Consumer(consumer), Member::Producer(producer)) => (producer, consumer),
        _ => unreachable!("{one:?} and {other:?} are no peers"),
    }
}
