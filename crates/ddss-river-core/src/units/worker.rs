//! A worker of a unit queue.

use super::action::{Claim, PutResult, UnitAction, UnitEvent};
use crate::fault_injection::planted;
use crate::limits::{LISTS_MAX, RESULT_BYTES_MAX, STRIKES_MAX, UNITS_MAX};
use crate::model::{ConfigError, Guarantee, ListId, UnitRef, UnitRow, UnitState, WorkerId};

/// Settings of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerConfig {
    /// Number of the worker.
    pub worker: WorkerId,
    /// List that the worker claims from first.
    pub own: ListId,
    /// Version of a row that no worker has claimed.
    pub first_version: u64,
    /// With [`Guarantee::FailStop`] the cursors are all, and no row is written.
    pub guarantee: Guarantee,
}

/// A list, as a worker knows it.
#[derive(Clone, Debug)]
struct List {
    count: u32,
    cursor: u64,
    /// A bit for each unit that was seen done or failed: it is not read again.
    settled: Vec<u64>,
}

impl List {
    fn new(count: u32) -> Self {
        Self { count, cursor: 0, settled: Vec::new() }
    }

    /// Returns the first unit from this one on that is not known to be settled.
    fn unsettled_from(&self, number: u32) -> Option<u32> {
        let is_settled =
            |unit: &u32| self.settled.get(*unit as usize / 64).is_some_and(|bits| bits >> (unit % 64) & 1 == 1);
        (number..self.count).find(|unit| !is_settled(unit))
    }

    fn settle(&mut self, number: u32) {
        let word = number as usize / 64;
        if self.settled.len() <= word {
            self.settled.resize(word + 1, 0);
        }
        self.settled[word] |= 1 << (number % 64);
    }
}

/// Step of a worker. All but four wait for a call to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Idle,
    Adding(ListId),
    /// Writes a claim.
    Marking(Claim),
    /// Reads whether the claim was written.
    VerifyingMark(Claim),
    /// Reads a row behind the cursors. True if an earlier one is claimed.
    Scanning(UnitRef, bool),
    /// Writes that a unit has failed. True if an earlier one is claimed.
    Failing(UnitRef, bool),
    Waiting,
    Working(Claim),
    /// Writes the end of a unit.
    Finishing(Claim, UnitRow),
    /// Reads whether the end was written.
    VerifyingEnd(Claim, UnitRow),
    /// All units were settled.
    Ended,
    Fenced,
}

/// A worker of a unit queue: claims a unit, and finishes it.
#[derive(Clone, Debug)]
pub struct Worker {
    config: WorkerConfig,
    lists: Vec<List>,
    /// Workers that were declared dead, in the order of their numbers.
    dead: Vec<WorkerId>,
    step: Step,
    /// True if a row has changed, or a worker has died, since the scan began: the scan may have passed the row before.
    has_changed: bool,
    #[cfg(feature = "planted")]
    bug: Option<crate::fault_injection::Bug>,
}

impl Worker {
    /// Returns a worker for lists with these numbers of units.
    ///
    /// # Errors
    /// A setting outside its limits.
    pub fn new(config: WorkerConfig, counts: &[u32]) -> Result<Self, ConfigError> {
        let most = counts.iter().copied().max().unwrap_or_default();
        let limits = [
            ("lists", counts.len() as u64, 1, LISTS_MAX as u64),
            ("units", most.into(), 0, UNITS_MAX.into()),
            ("own list", config.own.0.into(), 0, counts.len().saturating_sub(1) as u64),
        ];
        if let Some((name, value, _, max)) = limits.into_iter().find(|(_, value, min, max)| value < min || value > max)
        {
            return Err(ConfigError { name, value, max });
        }
        Ok(Self {
            config,
            lists: counts.iter().map(|count| List::new(*count)).collect(),
            dead: Vec::new(),
            step: Step::Idle,
            has_changed: false,
            #[cfg(feature = "planted")]
            bug: None,
        })
    }

    /// Adds a bug.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::fault_injection::Bug) {
        self.bug = Some(bug);
    }

    /// Claims the next unit: of the own list, then of the longest other one, then those that dead workers had.
    ///
    /// # Panics
    /// If the worker has a unit, or a call is in flight.
    pub fn claim(&mut self, out: &mut Vec<UnitAction>) {
        match self.step {
            Step::Idle | Step::Waiting => self.advance(out),
            Step::Ended | Step::Fenced => out.push(UnitAction::Ended),
            step => panic!("a claim during {step:?}"),
        }
    }

    /// Learns that a list has this number of units now. A worker that has ended may claim again.
    ///
    /// # Errors
    /// More units than a list may have.
    pub fn grow(&mut self, list: ListId, count: u32) -> Result<(), ConfigError> {
        if count > UNITS_MAX {
            return Err(ConfigError { name: "units", value: count.into(), max: UNITS_MAX.into() });
        }
        let place = &mut self.lists[usize::from(list.0)];
        if count > place.count {
            place.count = count;
            self.revive();
        }
        Ok(())
    }

    /// Learns that units which were settled may be open again.
    pub fn reopen(&mut self) {
        self.lists.iter_mut().for_each(|list| list.settled.clear());
        self.revive();
    }

    fn revive(&mut self) {
        if self.step == Step::Ended {
            self.step = Step::Idle;
        }
    }

    /// Takes another number for the next claims: others may have declared the present one dead.
    ///
    /// # Panics
    /// If the worker has a unit, or a call is in flight.
    pub fn renumber(&mut self, worker: WorkerId) {
        let is_free = matches!(self.step, Step::Idle | Step::Waiting | Step::Ended | Step::Fenced);
        assert!(is_free, "a new number during {:?}", self.step);
        self.config.worker = worker;
    }

    /// Learns that the row of the claimed unit has this version now: the driver has renewed the claim.
    pub fn renewed(&mut self, version: u64) {
        if let Step::Working(claim) = &mut self.step {
            claim.version = version;
        }
    }

    /// Finishes the claimed unit with a result.
    ///
    /// # Panics
    /// If the worker has no unit, or the result is longer than [`RESULT_BYTES_MAX`].
    pub fn finish(&mut self, result_bytes: usize, out: &mut Vec<UnitAction>) {
        assert!(result_bytes <= RESULT_BYTES_MAX, "a result of {result_bytes} bytes is too long");
        let result_bytes = result_bytes as u16;
        self.end(|row| UnitRow { state: UnitState::Done(row.worker()), result_bytes, ..row }, out);
    }

    /// Gives the claimed unit back after a failure, with a reason. It fails when that happens too often.
    ///
    /// # Panics
    /// If the worker has no unit, or the reason is longer than [`RESULT_BYTES_MAX`].
    pub fn fail(&mut self, reason_bytes: usize, out: &mut Vec<UnitAction>) {
        assert!(reason_bytes <= RESULT_BYTES_MAX, "a reason of {reason_bytes} bytes is too long");
        let result_bytes = reason_bytes as u16;
        self.end(|row| UnitRow { result_bytes, ..row.with_strike() }, out);
    }

    /// Gives the claimed unit back as it was.
    ///
    /// # Panics
    /// If the worker has no unit.
    pub fn release(&mut self, out: &mut Vec<UnitAction>) {
        self.end(|row| UnitRow { state: UnitState::Open, ..row }, out);
    }

    fn end(&mut self, change: impl FnOnce(UnitRow) -> UnitRow, out: &mut Vec<UnitAction>) {
        match self.step {
            Step::Ended | Step::Fenced => {}
            Step::Working(claim) if self.config.guarantee == Guarantee::FailStop => {
                self.step = Step::Idle;
                out.push(UnitAction::Finished(claim));
            }
            Step::Working(claim) => {
                let row = change(claim.row);
                self.step = Step::Finishing(claim, row);
                out.push(UnitAction::Put { unit: claim.unit, row, expected: claim.version });
            }
            step => panic!("the end of a unit during {step:?}"),
        }
    }

    /// Handles an event.
    ///
    /// # Panics
    /// If the driver reports the end of a call that is not in flight.
    pub fn handle(&mut self, event: UnitEvent, out: &mut Vec<UnitAction>) {
        match (self.step, event) {
            (Step::Ended | Step::Fenced, _) => {}
            (_, UnitEvent::Fenced) => self.step = Step::Fenced,
            (_, UnitEvent::Dead(worker)) => self.bury(worker, out),
            (_, UnitEvent::Changed) => self.rescan(out),
            (Step::Adding(list), UnitEvent::Added(value)) => self.take_number(list, value, out),
            (Step::Marking(claim), UnitEvent::Put(result)) => match result {
                PutResult::Done(version) => self.begin(Claim { version, ..claim }, out),
                // An earlier put of unknown outcome may have written the claim.
                PutResult::Conflict | PutResult::Unknown => self.read(claim.unit, Step::VerifyingMark(claim), out),
            },
            (Step::VerifyingMark(claim), UnitEvent::Got(row, version)) => {
                if row == claim.row {
                    self.begin(Claim { version, ..claim }, out);
                } else if version == claim.version {
                    // A put that may still be executed would leave a claim that no worker knows of.
                    self.mark(claim, out);
                } else {
                    self.advance(out);
                }
            }
            (Step::Scanning(unit, has_claimed), UnitEvent::Got(row, version)) => {
                self.scan(unit, has_claimed, row, version, out);
            }
            (Step::Failing(unit, has_claimed), UnitEvent::Put(result)) => match result {
                PutResult::Done(_) => self.scan_from(unit.list, Some(unit.number + 1), has_claimed, out),
                PutResult::Conflict | PutResult::Unknown => self.read(unit, Step::Scanning(unit, has_claimed), out),
            },
            (Step::Finishing(claim, row), UnitEvent::Put(result)) => match result {
                PutResult::Done(_) => self.report(UnitAction::Finished(claim), out),
                PutResult::Conflict | PutResult::Unknown => {
                    self.read(claim.unit, Step::VerifyingEnd(claim, row), out);
                }
            },
            (Step::VerifyingEnd(claim, row), UnitEvent::Got(found, version)) => {
                self.verify_end(claim, row, found, version, out);
            }
            (step, event) => panic!("{event:?} during {step:?}"),
        }
    }

    fn bury(&mut self, worker: WorkerId, out: &mut Vec<UnitAction>) {
        if let Err(position) = self.dead.binary_search(&worker) {
            self.dead.insert(position, worker);
            self.rescan(out);
        }
    }

    /// Reads the rows again: now, or behind the scan in progress.
    fn rescan(&mut self, out: &mut Vec<UnitAction>) {
        if self.step == Step::Waiting {
            self.start_scan(out);
        } else {
            self.has_changed = true;
        }
    }

    fn report(&mut self, action: UnitAction, out: &mut Vec<UnitAction>) {
        self.step = Step::Idle;
        out.push(action);
    }

    fn read(&mut self, unit: UnitRef, step: Step, out: &mut Vec<UnitAction>) {
        self.step = step;
        out.push(UnitAction::Get(unit));
    }

    fn begin(&mut self, claim: Claim, out: &mut Vec<UnitAction>) {
        self.step = Step::Working(claim);
        out.push(UnitAction::Claimed(claim));
    }

    fn verify_end(&mut self, claim: Claim, row: UnitRow, found: UnitRow, version: u64, out: &mut Vec<UnitAction>) {
        let is_unwritten = found == claim.row;
        if found == row {
            self.report(UnitAction::Finished(claim), out);
        } else if is_unwritten || planted!(self, FencedFinish) && !found.is_settled() {
            self.step = Step::Finishing(claim, row);
            out.push(UnitAction::Put { unit: claim.unit, row, expected: version });
        } else {
            self.report(UnitAction::Refused(claim), out);
        }
    }

    /// Goes on with a list that has units, or with the rows behind the cursors.
    fn advance(&mut self, out: &mut Vec<UnitAction>) {
        let left = |list: &List| u64::from(list.count).saturating_sub(list.cursor);
        let own = usize::from(self.config.own.0);
        let longest = || (0..self.lists.len()).max_by_key(|list| left(&self.lists[*list]));
        let next = if left(&self.lists[own]) > 0 { Some(own) } else { longest() };
        match next.filter(|list| left(&self.lists[*list]) > 0) {
            Some(list) => {
                let list = ListId(list as u16);
                self.step = Step::Adding(list);
                out.push(UnitAction::Add(list));
            }
            None if self.config.guarantee == Guarantee::FailStop => {
                self.step = Step::Ended;
                out.push(UnitAction::Ended);
            }
            None => self.start_scan(out),
        }
    }

    fn take_number(&mut self, list: ListId, value: Option<u64>, out: &mut Vec<UnitAction>) {
        let place = &mut self.lists[usize::from(list.0)];
        let Some(number) = value else { return self.advance(out) };
        place.cursor = place.cursor.max(number.saturating_add(1));
        if number >= u64::from(place.count) {
            return self.advance(out);
        }
        let unit = UnitRef { list, number: number as u32 };
        let row = UnitRow::NEW.claimed_by(self.config.worker);
        let claim = Claim { unit, row, version: self.config.first_version };
        if self.config.guarantee == Guarantee::FailStop {
            return self.begin(claim, out);
        }
        self.mark(claim, out);
    }

    fn mark(&mut self, claim: Claim, out: &mut Vec<UnitAction>) {
        self.step = Step::Marking(claim);
        out.push(UnitAction::Put { unit: claim.unit, row: claim.row, expected: claim.version });
    }

    /// Reads the rows behind the cursors: dead workers had some of them, or passed them without a mark.
    fn start_scan(&mut self, out: &mut Vec<UnitAction>) {
        self.has_changed = false;
        self.scan_from(ListId(0), None, false, out);
    }

    /// Reads the next row that is not known to be settled.
    fn scan_from(&mut self, list: ListId, number: Option<u32>, has_claimed: bool, out: &mut Vec<UnitAction>) {
        for index in usize::from(list.0)..self.lists.len() {
            let from = if index == usize::from(list.0) { number.unwrap_or(0) } else { 0 };
            if let Some(next) = self.lists[index].unsettled_from(from) {
                let unit = UnitRef { list: ListId(index as u16), number: next };
                return self.read(unit, Step::Scanning(unit, has_claimed), out);
            }
        }
        if has_claimed && self.has_changed {
            return self.start_scan(out);
        }
        let (step, action) =
            if has_claimed { (Step::Waiting, UnitAction::Wait) } else { (Step::Ended, UnitAction::Ended) };
        self.step = step;
        out.push(action);
    }

    fn scan(&mut self, unit: UnitRef, has_claimed: bool, row: UnitRow, version: u64, out: &mut Vec<UnitAction>) {
        let me = self.config.worker;
        match row.state {
            UnitState::Open => return self.mark(Claim { unit, row: row.claimed_by(me), version }, out),
            UnitState::Claimed(worker) if self.dead.binary_search(&worker).is_ok() => {
                let row = row.with_strike();
                if row.state == UnitState::Open {
                    return self.mark(Claim { unit, row: row.claimed_by(me), version }, out);
                }
                self.step = Step::Failing(unit, has_claimed);
                return out.push(UnitAction::Put { unit, row, expected: version });
            }
            UnitState::Claimed(_) | UnitState::Done(_) | UnitState::Failed => {}
        }
        if row.is_settled() {
            self.lists[usize::from(unit.list.0)].settle(unit.number);
        }
        self.scan_from(unit.list, Some(unit.number + 1), has_claimed || !row.is_settled(), out);
    }
}

impl UnitRow {
    /// Returns the row of a unit that a worker claims.
    fn claimed_by(self, worker: WorkerId) -> Self {
        Self { state: UnitState::Claimed(worker), claims: self.claims.saturating_add(1), ..self }
    }

    /// Returns the worker of a claimed row.
    fn worker(&self) -> WorkerId {
        match self.state {
            UnitState::Claimed(worker) => worker,
            state => panic!("the worker of a unit that is {state:?}"),
        }
    }

    /// Returns the row of a unit whose worker died or gave it back.
    fn with_strike(self) -> Self {
        let strikes = self.strikes.saturating_add(1);
        let state = if strikes >= STRIKES_MAX { UnitState::Failed } else { UnitState::Open };
        Self { state, strikes, ..self }
    }
}
