//! A worker's search for a unit, and the end of a unit: the engine, and the table that executes its actions.

use super::rows::QueueRow;
use super::table::UnitTable;
use crate::error::QueueError;
use ddss_river_core::{
    Guarantee, LeaseWatch, ListId, PutResult, UnitAction, UnitEvent, UnitRef, UnitState, Worker, WorkerConfig, WorkerId,
};
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

/// The one list of a queue.
pub(super) const LIST: ListId = ListId(0);
/// Version of a row that was written once.
const FIRST_VERSION: u64 = 1;

/// An engine, and what it needs to know of the queue. It serves one unit at a time.
#[derive(Debug)]
pub(super) struct Search {
    worker: Worker,
    leases: LeaseWatch,
    reopened: u32,
    start: Instant,
}

impl Search {
    pub(super) fn new(state: &QueueRow) -> Result<Self, QueueError> {
        let config = WorkerConfig {
            worker: WorkerId(0),
            own: LIST,
            first_version: FIRST_VERSION,
            guarantee: Guarantee::AtLeastOnce,
        };
        let worker = Worker::new(config, &[state.count])?;
        let leases = LeaseWatch::new(u64::from(state.settings.lease_ms) * 1000);
        Ok(Self { worker, leases, reopened: state.reopened, start: Instant::now() })
    }

    /// Looks for a unit once. Each claim has a number of its own, so that no other claim is taken for it.
    pub(super) fn claim(
        &mut self,
        table: &UnitTable,
        state: &QueueRow,
        deadline: Instant,
    ) -> Result<UnitAction, QueueError> {
        self.worker.renumber(WorkerId(RandomState::new().hash_one(std::process::id()) as u32));
        self.worker.grow(LIST, state.count)?;
        if std::mem::replace(&mut self.reopened, state.reopened) != state.reopened {
            self.worker.reopen();
        }
        let mut actions = Vec::new();
        self.worker.claim(&mut actions);
        self.drive(table, actions, &[], deadline)
    }

    /// Notes that the claim was renewed.
    pub(super) fn renewed(&mut self, version: u64) {
        self.worker.renewed(version);
    }

    /// Ends the claimed unit.
    pub(super) fn end(
        &mut self,
        table: &UnitTable,
        result: &[u8],
        end: impl FnOnce(&mut Worker, &mut Vec<UnitAction>),
        deadline: Instant,
    ) -> Result<UnitAction, QueueError> {
        let mut actions = Vec::new();
        end(&mut self.worker, &mut actions);
        self.drive(table, actions, result, deadline)
    }

    /// Executes actions until one is for the caller.
    fn drive(
        &mut self,
        table: &UnitTable,
        mut actions: Vec<UnitAction>,
        result: &[u8],
        deadline: Instant,
    ) -> Result<UnitAction, QueueError> {
        loop {
            let action = actions.pop().expect("the engine has an action");
            let event = match action {
                UnitAction::Add(_) => UnitEvent::Added(table.next_number(deadline)?),
                UnitAction::Put { unit, row, expected } => {
                    UnitEvent::Put(table.put_state(unit.number, &row, result, expected, deadline)?)
                }
                UnitAction::Get(unit) => {
                    let (stored, version) = table.unit(unit.number, deadline)?;
                    // A worker could renew its claim until now, unless the home does not answer.
                    if !matches!(stored.row.state, UnitState::Claimed(_)) || table.probe(deadline)? {
                        self.judge(unit, stored.row.state, version);
                    }
                    UnitEvent::Got(stored.row, version)
                }
                other => return Ok(other),
            };
            if matches!(event, UnitEvent::Added(None) | UnitEvent::Put(PutResult::Unknown)) {
                table.check_deadline(deadline)?;
            }
            self.worker.handle(event, &mut actions);
        }
    }

    /// Declares the worker of a claim dead when its lease is over.
    fn judge(&mut self, unit: UnitRef, state: UnitState, version: u64) {
        let now_us = self.start.elapsed().as_micros() as u64;
        match state {
            UnitState::Claimed(worker) if self.leases.observe(unit, version, now_us) => {
                // The engine is about to learn of the row, so it does nothing now.
                self.worker.handle(UnitEvent::Dead(worker), &mut Vec::new());
            }
            UnitState::Claimed(_) => {}
            UnitState::Open | UnitState::Done(_) | UnitState::Failed => self.leases.forget(unit),
        }
    }
}
