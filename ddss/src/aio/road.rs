//! The lane that the tasks of one client share, and what is under way on it.
//!
//! ```text
//!          begin                completion              the task looks
//!   Free ────────► Waiting ─────────────────► Done ──────────────────────► Free
//!                    │  └─ deadline ─► Late ────────── completion ─────────► Free
//!                    └──── future dropped ─► Late
//! ```
//!
//! Memory of the arena belongs to a call from *begin* until *Free*, whatever became of its future.

use crate::arena::{Run, SharedSlots};
use crate::lanes::NoCompletion;
use crate::words::first_word;
use ddss_core::limits::RING_SLOTS;
use ddss_core::{Completion, LockToken, Operation, Outcome, Request, RequestId, SegmentId};
use ddss_ipc::{Lane, SharedMemory};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Which call: a slot and which life of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CallId(u64);

impl CallId {
    fn new(index: usize, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | index as u64)
    }
    fn index(self) -> usize {
        self.0 as u32 as usize
    }
}

enum Status {
    Free,
    Waiting {
        waker: Option<Waker>,
        deadline: Instant,
    },
    Done(Completion),
    /// Nobody waits for it any more.
    Late,
}

struct Slot {
    generation: u32,
    status: Status,
    run: Option<Run>,
    harmless: bool,
    /// It asked for this segment's lock: granted to nobody, it has to be given back.
    lock: Option<SegmentId>,
}

/// What the tasks of one client share.
pub(super) struct Road {
    state: Mutex<State>,
    pub(super) arena: SharedMemory,
    runs: SharedSlots,
    /// The reactor sleeps without a time-out.
    pub(super) dormant: AtomicBool,
}

pub(super) struct State {
    lane: Lane,
    slots: Vec<Slot>,
    /// Tasks that wait for a place on the lane or in the arena, in order.
    room: VecDeque<Queued>,
    tickets: u64,
    armed: bool,
    gone: bool,
}

/// A task in the line for room.
struct Queued {
    ticket: u64,
    waker: Waker,
    deadline: Instant,
}

/// How a call began.
pub(super) enum Begun {
    UnderWay(CallId),
    /// In line, under that ticket.
    Queued(u64),
}

/// How long a task looks for its completion before it lets the executor go on.
const SPIN: Duration = Duration::from_micros(2);
/// How much longer than its deadline a call waits for the daemon to say how it ended.
const GRACE: Duration = Duration::from_millis(20);

impl Road {
    pub(super) fn new(lane: Lane, arena: SharedMemory, runs: SharedSlots) -> Self {
        let slot = || Slot { generation: 0, status: Status::Free, run: None, harmless: true, lock: None };
        let slots = std::iter::repeat_with(slot).take(RING_SLOTS).collect();
        let state = State { lane, slots, room: VecDeque::new(), tickets: 0, armed: false, gone: false };
        Self { state: Mutex::new(state), arena, runs, dormant: AtomicBool::new(true) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call, or notes the task as one that waits for room. `ticket` is what it waited under before.
    pub(super) fn begin(
        &self,
        ticket: Option<u64>,
        bytes: usize,
        deadline: Instant,
        waker: &Waker,
        make: impl FnOnce(Option<Run>) -> Operation,
    ) -> Result<Begun, NoCompletion> {
        let mut state = self.lock();
        if state.gone {
            return Err(NoCompletion::Gone);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(NoCompletion::Busy);
        }
        state.reap(&self.runs);
        let free = state.slots.iter().position(|slot| matches!(slot.status, Status::Free));
        let run = if bytes > 0 { self.runs.try_take(bytes).map(Some) } else { Some(None) };
        let (Some(index), Some(run)) = (free, run) else {
            if let Some(Some(run)) = run {
                self.runs.give(run);
            }
            let ticket = state.stand_in_line(ticket, waker, deadline);
            state.arm(&self.runs);
            return Ok(Begun::Queued(ticket));
        };
        state.leave_line(ticket);
        let slot = &mut state.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.status = Status::Waiting { waker: None, deadline };
        slot.run = run;
        let operation = make(run);
        slot.harmless = operation.is_harmless();
        slot.lock = match operation {
            Operation::Lock { segment, .. } => Some(segment),
            _ => None,
        };
        let id = CallId::new(index, slot.generation);
        let left = deadline.saturating_duration_since(now).as_micros();
        let timeout_us = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        let request = Request { timeout_us, ..Request::new(RequestId(id.0), operation) };
        state.lane.submit(request.encode()).expect("there are as many slots as a lane has places");
        state.lane.ring();
        Ok(Begun::UnderWay(id))
    }

    /// The end of a call, if it is there; else the task is noted.
    pub(super) fn look<T>(
        &self,
        id: CallId,
        waker: &Waker,
        read: impl FnOnce(&Completion, Option<Run>) -> T,
    ) -> Option<Result<T, NoCompletion>> {
        let mut state = self.lock();
        // With other calls under way this thread has better things to do than to look for one.
        let alone = state.lane.outstanding() <= 1;
        let spin_until = Instant::now() + if alone { SPIN } else { Duration::ZERO };
        loop {
            state.reap(&self.runs);
            let gone = state.gone;
            let slot = &mut state.slots[id.index()];
            match &mut slot.status {
                Status::Done(completion) => {
                    let result = read(completion, slot.run);
                    state.free(id.index(), &self.runs);
                    return Some(Ok(result));
                }
                Status::Waiting { .. } if gone => {
                    slot.status = Status::Late;
                    return Some(Err(NoCompletion::Gone));
                }
                Status::Waiting { waker: noted, .. } => {
                    if Instant::now() < spin_until {
                        std::hint::spin_loop();
                        continue;
                    }
                    *noted = Some(waker.clone());
                    if state.arm(&self.runs) {
                        return None;
                    }
                }
                Status::Late | Status::Free => return Some(Err(NoCompletion::Late { harmless: slot.harmless })),
            }
        }
    }

    /// The future of a call was dropped.
    pub(super) fn abandon(&self, id: CallId) {
        let mut state = self.lock();
        let index = id.index();
        match state.slots[index].status {
            Status::Waiting { .. } => {
                state.slots[index].status = Status::Late;
                if state.slots[index].lock.is_some() {
                    // Its grant has to be seen by somebody: the reactor.
                    while !state.arm(&self.runs) {}
                }
            }
            Status::Done(completion) => state.end_late(index, &completion, &self.runs),
            Status::Late | Status::Free => {}
        }
    }

    /// Gives a lock back for somebody who does not wait.
    pub(super) fn let_go(&self, segment: SegmentId, token: LockToken) {
        let mut state = self.lock();
        state.reap(&self.runs);
        state.let_go(segment, token);
    }

    /// A future that waited for room was dropped. If its turn had come, it is the next one's.
    pub(super) fn give_up_line(&self, ticket: u64) {
        let mut state = self.lock();
        if !state.leave_line(Some(ticket)) {
            state.call_next();
        }
    }

    /// The socket was readable, or time passed: hands out what came. Says when it has to be called again.
    pub(super) fn turn(&self, alive: bool) -> Option<Instant> {
        let mut state = self.lock();
        state.gone |= !alive;
        if state.armed {
            state.lane.disarm_async();
            state.armed = false;
        }
        state.reap(&self.runs);
        let now = Instant::now();
        let gone = state.gone;
        let mut next: Option<Instant> = None;
        let mut waits = false;
        for slot in &mut state.slots {
            waits |= matches!(slot.status, Status::Late) && slot.lock.is_some();
            let Status::Waiting { waker, deadline } = &mut slot.status else { continue };
            let patience = *deadline + GRACE;
            if gone || patience <= now {
                let waker = waker.take();
                if !gone {
                    slot.status = Status::Late;
                }
                waker.into_iter().for_each(Waker::wake);
            } else {
                waits = true;
                next = Some(next.map_or(patience, |other| other.min(patience)));
            }
        }
        for queued in &state.room {
            if gone || queued.deadline <= now {
                queued.waker.wake_by_ref();
            } else {
                next = Some(next.map_or(queued.deadline, |other| other.min(queued.deadline)));
            }
        }
        state.room.retain(|queued| !gone && queued.deadline > now);
        if waits && !gone {
            while !state.arm(&self.runs) {}
        }
        // Calls that nobody waits for still hold memory; their end is collected with the next call.
        self.dormant.store(next.is_none(), Ordering::Release);
        next
    }

    /// Whether nothing of it is under way, so that its memory can be used by others.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        let mut state = self.lock();
        state.reap(&self.runs);
        state.slots.iter().all(|slot| matches!(slot.status, Status::Free))
    }
}

impl State {
    /// Takes the completions that are there.
    fn reap(&mut self, runs: &SharedSlots) {
        while let Some(entry) = self.lane.reap() {
            let completion = Completion::decode(&entry);
            let id = CallId(completion.request.0);
            let Some(slot) = self.slots.get_mut(id.index()) else { continue };
            if CallId::new(id.index(), slot.generation) != id {
                continue;
            }
            match std::mem::replace(&mut slot.status, Status::Free) {
                Status::Waiting { waker, .. } => {
                    slot.status = Status::Done(completion);
                    waker.into_iter().for_each(Waker::wake);
                }
                Status::Late => self.end_late(id.index(), &completion, runs),
                other => slot.status = other,
            }
        }
    }

    /// A call that nobody waits for has ended. A lock that it was granted goes back.
    fn end_late(&mut self, index: usize, completion: &Completion, runs: &SharedSlots) {
        let lock = self.slots[index].lock.take().filter(|_| completion.outcome == Outcome::Done);
        self.free(index, runs);
        if let Some(segment) = lock {
            self.let_go(segment, LockToken(first_word(completion)));
        }
    }

    /// Gives a lock back, and waits for nothing. If there is no room for it, the lease ends the lock.
    fn let_go(&mut self, segment: SegmentId, token: LockToken) {
        let free = self.slots.iter().position(|slot| matches!(slot.status, Status::Free));
        let Some(index) = free.filter(|_| !self.gone) else { return };
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        (slot.status, slot.run, slot.lock) = (Status::Late, None, None);
        let id = CallId::new(index, slot.generation);
        let request = Request::new(RequestId(id.0), Operation::Unlock { segment, token });
        self.lane.submit(request.encode()).expect("there are as many slots as a lane has places");
        self.lane.ring();
    }

    fn free(&mut self, index: usize, runs: &SharedSlots) {
        let slot = &mut self.slots[index];
        slot.status = Status::Free;
        if let Some(run) = slot.run.take() {
            runs.give(run);
        }
        self.call_next();
    }

    /// There is room for one more.
    fn call_next(&mut self) {
        if let Some(next) = self.room.pop_front() {
            next.waker.wake();
        }
    }

    /// Keeps the place of a task that is in line already, and puts another one at the end.
    fn stand_in_line(&mut self, ticket: Option<u64>, waker: &Waker, deadline: Instant) -> u64 {
        if let Some(queued) = self.room.iter_mut().find(|queued| Some(queued.ticket) == ticket) {
            queued.waker.clone_from(waker);
            return queued.ticket;
        }
        self.tickets += 1;
        self.room.push_back(Queued { ticket: self.tickets, waker: waker.clone(), deadline });
        self.tickets
    }

    /// Takes a task out of the line; `false` if it was not in it any more.
    fn leave_line(&mut self, ticket: Option<u64>) -> bool {
        let at = self.room.iter().position(|queued| Some(queued.ticket) == ticket);
        at.is_some_and(|at| self.room.remove(at).is_some())
    }

    /// Has the next completion wake the reactor; `false` if something came in between, and was taken.
    fn arm(&mut self, runs: &SharedSlots) -> bool {
        // With nothing under way there is nothing to be woken by, and nothing would be armed.
        if self.armed || self.lane.outstanding() == 0 {
            return true;
        }
        if self.lane.arm_async() {
            self.armed = true;
            return true;
        }
        self.reap(runs);
        false
    }
}
