//! Workers over a table of rows, joined by hand.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_river_core::codec::{decode_row, encode_row};
use ddss_river_core::{
    Claim, Guarantee, LeaseWatch, ListId, PutResult, UnitAction, UnitEvent, UnitRef, UnitRow, UnitState, Worker,
    WorkerConfig, WorkerId,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const COUNTS: [u32; 2] = [2, 3];

/// The table: cursors, and rows with versions.
#[derive(Default)]
struct Table {
    cursors: BTreeMap<ListId, u64>,
    rows: BTreeMap<UnitRef, (UnitRow, u64)>,
}

impl Table {
    fn row(&mut self, unit: UnitRef) -> &mut (UnitRow, u64) {
        self.rows.entry(unit).or_insert((UnitRow::NEW, 1))
    }

    /// Executes a call, if the action is one.
    fn execute(&mut self, action: UnitAction) -> Option<UnitEvent> {
        match action {
            UnitAction::Add(list) => {
                let cursor = self.cursors.entry(list).or_default();
                *cursor += 1;
                Some(UnitEvent::Added(Some(*cursor - 1)))
            }
            UnitAction::Put { unit, row, expected } => {
                let place = self.row(unit);
                if place.1 != expected {
                    return Some(UnitEvent::Put(PutResult::Conflict));
                }
                *place = (row, expected + 1);
                Some(UnitEvent::Put(PutResult::Done(expected + 1)))
            }
            UnitAction::Get(unit) => {
                let (row, version) = *self.row(unit);
                Some(UnitEvent::Got(row, version))
            }
            _ => None,
        }
    }

    /// Executes calls until the worker says something else.
    fn run(&mut self, worker: &mut Worker, mut out: Vec<UnitAction>) -> UnitAction {
        loop {
            let action = out.pop().expect("an action");
            assert!(out.is_empty(), "one call at a time");
            let Some(event) = self.execute(action) else { return action };
            worker.handle(event, &mut out);
        }
    }

    fn claim(&mut self, worker: &mut Worker) -> UnitAction {
        let mut out = Vec::new();
        worker.claim(&mut out);
        self.run(worker, out)
    }

    fn finish(&mut self, worker: &mut Worker) -> UnitAction {
        let mut out = Vec::new();
        worker.finish(8, &mut out);
        self.run(worker, out)
    }
}

fn worker_with(number: u32, own: u16, guarantee: Guarantee) -> Worker {
    let config = WorkerConfig { worker: WorkerId(number), own: ListId(own), first_version: 1, guarantee };
    Worker::new(config, &COUNTS).unwrap()
}

fn worker(number: u32, own: u16) -> Worker {
    worker_with(number, own, Guarantee::AtLeastOnce)
}

fn unit_of(action: UnitAction) -> (u16, u32) {
    match action {
        UnitAction::Claimed(Claim { unit, .. }) => (unit.list.0, unit.number),
        other => panic!("{other:?} instead of a claim"),
    }
}

#[test]
fn own_list_comes_first_and_the_longest_other_one_behind_it() {
    let (mut table, mut worker) = (Table::default(), worker(1, 1));
    let mut units = Vec::new();
    for _ in 0..5 {
        units.push(unit_of(table.claim(&mut worker)));
        assert!(matches!(table.finish(&mut worker), UnitAction::Finished(_)));
    }
    assert_eq!(units, [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1)]);
    assert_eq!(table.claim(&mut worker), UnitAction::Ended);
}

// If this failed, a unit of a dead worker would never be finished, or a unit would be finished twice.
#[test]
fn a_worker_that_was_declared_dead_cannot_finish_its_unit() {
    let (mut table, mut dead, mut other) = (Table::default(), worker(1, 0), worker(2, 0));
    assert_eq!(unit_of(table.claim(&mut dead)), (0, 0));
    for _ in 0..4 {
        table.claim(&mut other);
        table.finish(&mut other);
    }
    assert_eq!(table.claim(&mut other), UnitAction::Wait, "a unit is not finished");
    let mut out = Vec::new();
    other.handle(UnitEvent::Changed, &mut out);
    assert_eq!(table.run(&mut other, std::mem::take(&mut out)), UnitAction::Wait);
    other.handle(UnitEvent::Dead(WorkerId(1)), &mut out);
    assert_eq!(unit_of(table.run(&mut other, out)), (0, 0));
    assert!(matches!(table.finish(&mut dead), UnitAction::Refused(_)));
    assert!(matches!(table.finish(&mut other), UnitAction::Finished(_)));
    assert_eq!(table.row(UnitRef { list: ListId(0), number: 0 }).0.state, UnitState::Done(WorkerId(2)));
    assert_eq!(table.claim(&mut other), UnitAction::Ended);
}

// If this failed, a number that a dead worker took from the cursor would be lost.
#[test]
fn a_unit_that_was_passed_without_a_mark_is_claimed() {
    let (mut table, mut other) = (Table::default(), worker(2, 0));
    table.execute(UnitAction::Add(ListId(0)));
    let units: Vec<_> = (0..5)
        .map(|_| {
            let unit = unit_of(table.claim(&mut other));
            table.finish(&mut other);
            unit
        })
        .collect();
    assert_eq!(units, [(0, 1), (1, 0), (1, 1), (1, 2), (0, 0)]);
}

#[test]
fn a_unit_that_ends_three_workers_fails() {
    let (mut table, first) = (Table::default(), UnitRef { list: ListId(0), number: 0 });
    table.claim(&mut worker(0, 0));
    for number in 1..3 {
        let mut next = worker(number, 0);
        (0..number).for_each(|dead| next.handle(UnitEvent::Dead(WorkerId(dead)), &mut Vec::new()));
        while unit_of(table.claim(&mut next)) != (0, 0) {
            table.finish(&mut next);
        }
        let row = table.row(first).0;
        assert_eq!((row.state, u32::from(row.strikes)), (UnitState::Claimed(WorkerId(number)), number));
    }
    let mut last = worker(3, 0);
    (0..3).for_each(|dead| last.handle(UnitEvent::Dead(WorkerId(dead)), &mut Vec::new()));
    assert_eq!(table.claim(&mut last), UnitAction::Ended);
    assert_eq!(table.row(first).0.state, UnitState::Failed);
}

// Found by the simulator: the scan had passed the row, and the worker waited for ever.
#[test]
fn a_death_during_a_scan_is_not_missed() {
    for event in [UnitEvent::Dead(WorkerId(1)), UnitEvent::Changed] {
        let (mut table, mut dead, mut other) = (Table::default(), worker(1, 0), worker(2, 0));
        table.claim(&mut dead);
        for _ in 0..4 {
            table.claim(&mut other);
            table.finish(&mut other);
        }
        let mut out = Vec::new();
        other.claim(&mut out);
        // The first row is claimed; the worker reads the second one when the event arrives.
        let first = table.execute(out.pop().unwrap()).unwrap();
        other.handle(first, &mut out);
        other.handle(event, &mut Vec::new());
        let next = loop {
            let action = out.pop().unwrap();
            if action == UnitAction::Get(UnitRef { list: ListId(0), number: 0 }) || action == UnitAction::Wait {
                break action;
            }
            let reply = table.execute(action).unwrap();
            other.handle(reply, &mut out);
        };
        assert_ne!(next, UnitAction::Wait, "{event:?}");
    }
}

// If this failed, a lost reply would let a unit be done twice, or never.
#[test]
fn a_put_of_unknown_outcome_is_read_back() {
    for is_written in [false, true] {
        let (mut table, mut worker) = (Table::default(), worker(1, 0));
        let claimed = table.claim(&mut worker);
        let mut out = Vec::new();
        worker.finish(8, &mut out);
        let put = out.pop().unwrap();
        if is_written {
            table.execute(put);
        }
        worker.handle(UnitEvent::Put(PutResult::Unknown), &mut out);
        let UnitAction::Claimed(claim) = claimed else { panic!("{claimed:?}") };
        assert_eq!(table.run(&mut worker, out), UnitAction::Finished(claim));
        assert_eq!(table.row(claim.unit).0.state, UnitState::Done(WorkerId(1)));
    }
}

#[test]
fn under_fail_stop_the_cursors_are_all() {
    let (mut table, mut worker) = (Table::default(), worker_with(1, 0, Guarantee::FailStop));
    for _ in 0..5 {
        table.claim(&mut worker);
        assert!(matches!(table.finish(&mut worker), UnitAction::Finished(_)));
    }
    assert_eq!(table.claim(&mut worker), UnitAction::Ended);
    assert!(table.rows.is_empty(), "no row is written");
}

#[test]
fn a_fenced_worker_ends() {
    let (mut table, mut worker) = (Table::default(), worker(1, 0));
    table.claim(&mut worker);
    let mut out = Vec::new();
    worker.handle(UnitEvent::Fenced, &mut out);
    worker.finish(0, &mut out);
    assert_eq!(out, []);
    assert_eq!(table.claim(&mut worker), UnitAction::Ended);
}

proptest! {
    // If this failed, a damaged row could end a member.
    #[test]
    fn no_bytes_of_a_row_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..20), state in 0_u8..5) {
        let mut bytes = bytes;
        bytes.iter_mut().skip(10).for_each(|byte| *byte = 0);
        bytes.iter_mut().take(1).for_each(|byte| *byte = state);
        if let Ok(row) = decode_row(&bytes) {
            prop_assert_eq!(decode_row(&encode_row(&row)), Ok(row));
        }
    }
}

// If this failed, units that are added while a queue is worked off would never be done.
#[test]
fn a_worker_that_has_ended_claims_units_that_come_later() {
    let (mut table, mut worker) = (Table::default(), worker(1, 0));
    let all = |table: &mut Table, worker: &mut Worker| {
        let mut units = Vec::new();
        loop {
            match table.claim(worker) {
                UnitAction::Ended => return units,
                claimed => units.push(unit_of(claimed)),
            }
            table.finish(worker);
        }
    };
    assert_eq!(all(&mut table, &mut worker).len(), 5);
    worker.grow(ListId(0), 4).unwrap();
    assert_eq!(all(&mut table, &mut worker), [(0, 2), (0, 3)]);
    // A failed unit is opened again.
    let unit = UnitRef { list: ListId(1), number: 1 };
    table.row(unit).0.state = UnitState::Open;
    table.row(unit).1 += 1;
    assert_eq!(all(&mut table, &mut worker), []);
    worker.reopen();
    assert_eq!(all(&mut table, &mut worker), [(1, 1)]);
}

// If this failed, a worker that is interrupted would bring its unit nearer to failure.
#[test]
fn a_unit_that_is_given_back_has_no_strike_and_one_that_fails_has() {
    let (mut table, mut worker) = (Table::default(), worker(1, 0));
    let first = UnitRef { list: ListId(0), number: 0 };
    for strikes in 0..3 {
        let mut out = Vec::new();
        while unit_of(table.claim(&mut worker)) != (0, 0) {
            table.finish(&mut worker);
        }
        worker.release(&mut out);
        assert!(matches!(table.run(&mut worker, std::mem::take(&mut out)), UnitAction::Finished(_)));
        assert_eq!((table.row(first).0.state, table.row(first).0.strikes), (UnitState::Open, strikes));
        while unit_of(table.claim(&mut worker)) != (0, 0) {
            table.finish(&mut worker);
        }
        worker.fail(7, &mut out);
        table.run(&mut worker, out);
        assert_eq!((table.row(first).0.strikes, table.row(first).0.result_bytes), (strikes + 1, 7));
    }
    assert_eq!(table.row(first).0.state, UnitState::Failed);
    assert_eq!(table.claim(&mut worker), UnitAction::Ended);
}

// If this failed, each renewal of a claim would look like the claim of another worker.
#[test]
fn a_renewed_claim_is_finished() {
    let (mut table, mut worker) = (Table::default(), worker(1, 0));
    let UnitAction::Claimed(claim) = table.claim(&mut worker) else { panic!("a unit is open") };
    table.row(claim.unit).1 += 1;
    worker.renewed(claim.version + 1);
    let mut out = Vec::new();
    worker.finish(0, &mut out);
    assert!(matches!(out[..], [UnitAction::Put { expected, .. }] if expected == claim.version + 1));
    assert!(matches!(table.run(&mut worker, out), UnitAction::Finished(_)));
}

// If this failed, units of living workers would be taken from them after an outage, or those of dead ones never.
#[test]
fn claim_expires_when_its_row_is_read_unchanged_for_a_lease_without_pauses() {
    let unit = UnitRef { list: ListId(0), number: 3 };
    let expiry = |times: &[(u64, u64)]| {
        let mut watch = LeaseWatch::new(100);
        times.iter().map(|(now, version)| watch.observe(unit, *version, *now)).collect::<Vec<_>>()
    };
    let steps = |from: u64, version: u64| (0..5).map(move |step| (from + 25 * step, version));
    let is_expired = |times: &[(u64, u64)]| expiry(times).into_iter().rposition(|is| is) == Some(times.len() - 1);
    assert!(is_expired(&steps(0, 7).collect::<Vec<_>>()));
    assert!(!expiry(&steps(0, 7).take(4).collect::<Vec<_>>()).contains(&true));
    // A renewal, and a pause in which there could be none.
    let renewed: Vec<_> = steps(0, 7).take(4).chain(steps(100, 8)).collect();
    assert!(is_expired(&renewed) && !expiry(&renewed[..8]).contains(&true));
    let paused: Vec<_> = steps(0, 7).take(4).chain(steps(101, 7)).collect();
    assert!(is_expired(&paused) && !expiry(&paused[..8]).contains(&true));
    // A worker that reads it now and then: no single outage looks like that.
    let seldom: Vec<_> = (0..9).map(|read| (40 * read, 7)).collect();
    assert!(is_expired(&seldom) && !expiry(&seldom[..8]).contains(&true));
    let renewed: Vec<_> = seldom.iter().map(|(now, version)| (*now, version + now / 160)).collect();
    assert!(!expiry(&renewed).contains(&true));
}
