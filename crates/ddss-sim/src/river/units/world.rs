//! Workers and plans.

use super::table::{FIRST_VERSION, Table};
use crate::random::Random;
use crate::river::agenda::Agenda;
use ddss_river_core::{Guarantee, ListId, UnitAction, UnitEvent, UnitRef, Worker, WorkerConfig, WorkerId};

/// Plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct UnitsPlan {
    pub(crate) counts: Vec<u32>,
    pub(crate) workers: u32,
    pub(crate) work_us: u64,
    pub(crate) latency_us: u64,
    /// One of so many calls ends with an unknown outcome; 0 for none.
    pub(crate) unknown_one_in: u64,
    /// The unit that ends each worker that begins it.
    pub(crate) poison: Option<UnitRef>,
    pub(crate) faults: Vec<(u64, Fault)>,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<ddss_river_core::Bug>,
}

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A worker is killed. It has a successor.
    Kill(u32),
    /// A worker does not run for a while.
    Stop(u32, u64),
}

/// Time after which a killed or stopped worker is declared dead.
pub(crate) const LEASE_US: u64 = 3_000;

/// Returns a plan with faults.
pub(crate) fn random_plan(random: &mut Random) -> UnitsPlan {
    let counts: Vec<u32> = (0..1 + random.below(3)).map(|_| random.below(25) as u32).collect();
    let workers = 1 + random.below(4) as u32;
    let fault = |random: &mut Random| {
        let worker = random.below(u64::from(workers) + 2) as u32;
        let fault =
            if random.one_in(2) { Fault::Kill(worker) } else { Fault::Stop(worker, random.below(3 * LEASE_US)) };
        (random.below(8_000), fault)
    };
    let faults = if random.one_in(3) { Vec::new() } else { (0..1 + random.below(5)).map(|_| fault(random)).collect() };
    let list = random.below(counts.len() as u64) as u16;
    let number = random.below(counts[usize::from(list)].into()) as u32;
    let has_poison = random.one_in(6) && counts[usize::from(list)] > 0;
    UnitsPlan {
        workers,
        work_us: 10 + random.below(300),
        latency_us: 1 + random.below(60),
        unknown_one_in: if random.one_in(2) { 12 } else { 0 },
        poison: has_poison.then_some(UnitRef { list: ListId(list), number }),
        faults,
        counts,
        #[cfg(feature = "planted")]
        bug: None,
    }
}

/// Counts of one run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct UnitCounts {
    pub(crate) claims: u64,
    pub(crate) finished: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) deaths: u64,
    pub(crate) fenced: u64,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A call of a worker arrives at the table. True if its reply is lost.
    Call(u32, UnitAction, bool),
    /// A call has ended.
    Reply(u32, UnitEvent),
    /// A worker has done its unit.
    Worked(u32),
    /// The watch of a worker reports.
    Changed(u32),
    /// The program of a worker begins.
    Start(u32),
    /// A worker is declared dead.
    Declare(u32),
    /// A worker learns that another is dead.
    NoticeDeath(u32, WorkerId),
    /// A worker learns that it was declared dead.
    Fence(u32),
    Resume(u32),
    Fault(Fault),
}

/// A worker and its program.
pub(crate) struct WorkerProcess {
    pub(crate) engine: Worker,
    pub(crate) is_killed: bool,
    pub(crate) is_dead: bool,
    pub(crate) is_stopped: bool,
    pub(crate) has_ended: bool,
    pub(crate) deferred: Vec<Event>,
    /// Changes of the table when the worker began to look for a unit.
    pub(crate) seen: u64,
    pub(crate) is_waiting: bool,
}

/// All processes and the table.
pub(crate) struct World {
    pub(crate) plan: UnitsPlan,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) random: Random,
    pub(crate) table: Table,
    pub(crate) workers: Vec<WorkerProcess>,
    pub(crate) counts: UnitCounts,
}

impl World {
    pub(crate) fn new(plan: UnitsPlan, random: Random) -> Self {
        Self {
            agenda: Agenda::new(),
            random,
            table: Table::new(&plan.counts),
            workers: Vec::new(),
            counts: UnitCounts::default(),
            plan,
        }
    }

    pub(crate) fn add_worker(&mut self) -> u32 {
        let id = self.workers.len() as u32;
        let own = ListId((id as usize % self.plan.counts.len()) as u16);
        let config =
            WorkerConfig { worker: WorkerId(id), own, first_version: FIRST_VERSION, guarantee: Guarantee::AtLeastOnce };
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut engine = Worker::new(config, &self.plan.counts).expect("valid settings");
        #[cfg(feature = "planted")]
        self.plan.bug.into_iter().for_each(|bug| engine.plant(bug));
        self.workers.push(WorkerProcess {
            engine,
            is_killed: false,
            is_dead: false,
            is_stopped: false,
            has_ended: false,
            deferred: Vec::new(),
            seen: 0,
            is_waiting: false,
        });
        id
    }
}
