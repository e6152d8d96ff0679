//! Workers and plans.

use super::table::{FIRST_VERSION, LEASE_US, Table};
use crate::random::Random;
use crate::river::agenda::Agenda;
use ddss_river_core::{
    Claim, Guarantee, LeaseWatch, ListId, PutResult, UnitAction, UnitEvent, UnitRef, Worker, WorkerConfig, WorkerId,
};

/// Time between two renewals.
pub(crate) const RENEW_US: u64 = LEASE_US / 8;

/// Plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct UnitsPlan {
    pub(crate) counts: Vec<u32>,
    pub(crate) workers: u32,
    pub(crate) work_us: u64,
    pub(crate) latency_us: u64,
    /// Time between two looks of a worker that waits.
    pub(crate) look_us: u64,
    /// One of so many calls ends with an unknown outcome; 0 for none.
    pub(crate) unknown_one_in: u64,
    /// One of so many units is given back or fails; 0 for none.
    pub(crate) give_up_one_in: u64,
    /// The unit that ends each worker that begins it.
    pub(crate) poison: Option<UnitRef>,
    pub(crate) faults: Vec<(u64, Fault)>,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<ddss_river_core::Bug>,
}

/// Something that goes wrong, or that a user does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A worker is killed. It has a successor.
    Kill(u32),
    /// A worker does not run for a while.
    Stop(u32, u64),
    /// The table is away for a while.
    Outage(u64),
    /// Units are added to a list, and another worker begins.
    Add(ListId, u32),
    /// Failed units are opened again, and another worker begins.
    Retry,
}

/// Returns a plan with faults.
pub(crate) fn random_plan(random: &mut Random) -> UnitsPlan {
    let counts: Vec<u32> = (0..1 + random.below(3)).map(|_| random.below(25) as u32).collect();
    let workers = 1 + random.below(4) as u32;
    let lists = counts.len() as u64;
    let fault = |random: &mut Random| {
        let worker = random.below(u64::from(workers) + 2) as u32;
        let fault = match random.below(8) {
            0..3 => Fault::Kill(worker),
            3..5 => Fault::Stop(worker, random.below(3 * LEASE_US)),
            5 => Fault::Outage(random.below(3 * LEASE_US)),
            6 => Fault::Add(ListId(random.below(lists) as u16), 1 + random.below(5) as u32),
            _ => Fault::Retry,
        };
        (random.below(8_000), fault)
    };
    let faults = if random.one_in(3) { Vec::new() } else { (0..1 + random.below(5)).map(|_| fault(random)).collect() };
    let list = random.below(lists) as u16;
    let number = random.below(counts[usize::from(list)].into()) as u32;
    let has_poison = random.one_in(6) && counts[usize::from(list)] > 0;
    UnitsPlan {
        workers,
        // Longer than a lease at times: the claim is renewed meanwhile.
        work_us: 10 + if random.one_in(4) { random.below(2 * LEASE_US) } else { random.below(300) },
        latency_us: 1 + random.below(60),
        // At times with longer pauses than those between two renewals.
        look_us: if random.one_in(4) { LEASE_US / 2 } else { LEASE_US / 16 },
        unknown_one_in: if random.one_in(2) { 12 } else { 0 },
        give_up_one_in: if random.one_in(3) { 6 } else { 0 },
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
    pub(crate) renewals: u64,
    pub(crate) finished: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) deaths: u64,
    pub(crate) outages: u64,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A call of a worker, with its number at that time, arrives at the table. True if its reply is lost.
    Call(u32, WorkerId, UnitAction, bool),
    /// A call has ended.
    Reply(u32, UnitEvent),
    /// A worker has done its unit.
    Worked(u32),
    /// A worker looks for a unit.
    Search(u32),
    /// It is time to renew a claim.
    Renew(u32, WorkerId),
    /// A renewal arrives at the table. True if its reply is lost.
    Renewal(u32, WorkerId, Claim, bool),
    /// A renewal has ended.
    Renewed(u32, PutResult),
    /// A worker reads the row of its claim: its renewal may not have been executed.
    CheckClaim(u32),
    Resume(u32),
    Fault(Fault),
}

/// A worker and its program.
pub(crate) struct WorkerProcess {
    pub(crate) engine: Worker,
    pub(crate) leases: LeaseWatch,
    /// Number of its claim, or of the next one.
    pub(crate) number: WorkerId,
    /// Unit whose row it reads.
    pub(crate) reads: Option<UnitRef>,
    pub(crate) claim: Option<Claim>,
    pub(crate) is_renewing: bool,
    /// Its program has done the unit while the claim was renewed.
    pub(crate) has_worked: bool,
    /// Units that it knows of, and the times that failed ones were opened again.
    pub(crate) counts: Vec<u32>,
    pub(crate) reopened: u32,
    pub(crate) is_killed: bool,
    pub(crate) is_stopped: bool,
    pub(crate) has_ended: bool,
    pub(crate) deferred: Vec<Event>,
}

/// All processes and the table.
pub(crate) struct World {
    pub(crate) plan: UnitsPlan,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) random: Random,
    pub(crate) table: Table,
    /// End of the present outage of the table.
    pub(crate) away_until_us: u64,
    pub(crate) workers: Vec<WorkerProcess>,
    pub(crate) numbers: u32,
    pub(crate) counts: UnitCounts,
}

impl World {
    pub(crate) fn new(plan: UnitsPlan, random: Random) -> Self {
        Self {
            agenda: Agenda::new(),
            random,
            table: Table::new(&plan.counts),
            away_until_us: 0,
            workers: Vec::new(),
            numbers: 0,
            counts: UnitCounts::default(),
            plan,
        }
    }

    /// Adds a worker, which knows the lists as they are.
    pub(crate) fn add_worker(&mut self) -> u32 {
        let id = self.workers.len() as u32;
        let own = ListId((id as usize % self.plan.counts.len()) as u16);
        let number = WorkerId(0);
        let config =
            WorkerConfig { worker: number, own, first_version: FIRST_VERSION, guarantee: Guarantee::AtLeastOnce };
        let (counts, reopened) = (self.table.counts.clone(), self.table.reopened);
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes them"))]
        let (mut engine, mut leases) =
            (Worker::new(config, &counts).expect("valid settings"), LeaseWatch::new(LEASE_US));
        #[cfg(feature = "planted")]
        self.plan.bug.into_iter().for_each(|bug| {
            engine.plant(bug);
            leases.plant(bug);
        });
        self.workers.push(WorkerProcess {
            engine,
            leases,
            number,
            reads: None,
            claim: None,
            is_renewing: false,
            has_worked: false,
            counts,
            reopened,
            is_killed: false,
            is_stopped: false,
            has_ended: false,
            deferred: Vec::new(),
        });
        id
    }

    pub(crate) fn latency_us(&mut self) -> u64 {
        1 + self.random.below(2 * self.plan.latency_us)
    }

    /// Returns true if the reply of a call is lost.
    pub(crate) fn is_lost(&mut self) -> bool {
        self.plan.unknown_one_in > 0 && self.random.one_in(self.plan.unknown_one_in)
    }
}
