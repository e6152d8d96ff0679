//! The lane that the tasks of one client share, and what is under way on it.
//!
//! No lock lies on the way of a call. What it asks for lies in a place of its own ([`CallTable`]); the lane stands at a
//! [`Combiner`], and whoever comes there sends out for all and takes in for all. Who finds somebody at it leaves word, and goes on
//! with something else: it is done by who is there.
//!
//! Memory of the arena belongs to a call from its begin until its place is given back, whatever became of its future. Only
//! where there is no room for one more does a task stand in line ([`Backpressure`]). Calls whose purpose is to wait have a part of
//! the places, and a few are set aside for calls under a lock. A call whose future was dropped while it waits is cancelled.

use super::backpressure::{Backpressure, Place, Places};
use super::sleep::Pauses;
use crate::api::atomics::first_word;
use crate::call::arena::{ArenaRun, SharedSlots};
use crate::call::channels::{ChannelPool, NoCompletion};
use crate::call::priority::Priority;
use crate::deadline::timeout_us;
use atomic_waker::AtomicWaker;
use ddss_core::limits::RING_SLOTS;
use ddss_core::{Completion, Entry, LockToken, Operation, Outcome, Request, RequestId, SegmentId};
use ddss_ipc::{CallId, CallStatus, CallTable, Channel, Combiner, Notify, SharedMemory};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Calls under way at the most: one bit of the desk's word for each, and a few bits for other things.
const CALLS: usize = 60;
/// Places that calls whose purpose is to wait may have, at the most.
const WAITS: u32 = 48;
/// Places that only calls under a lock, and releases, take.
const SET_ASIDE: usize = 4;
/// Cancels under way at the most; the others wait for their turn.
const CANCELS: usize = 4;
const _: () = assert!(CALLS + CANCELS <= RING_SLOTS && WAITS as usize + SET_ASIDE < CALLS);
const _: () = assert!(CALLS <= CANCEL.trailing_zeros() as usize);
/// The number of a cancel: no call has it.
const CANCEL_ID: RequestId = RequestId(u64::MAX);
/// Left at the desk besides the places of calls that are to go out: some calls are to be cancelled.
const CANCEL: u64 = 1 << 60;
/// The next completion is to wake the reactor.
const ARM: u64 = 1 << 61;
/// The reactor is awake.
const AWAKE: u64 = 1 << 62;
const _: () = assert!(AWAKE.trailing_zeros() < Combiner::<()>::BITS);

/// How long a task looks for its completion before it lets the executor go on.
const SPIN: Duration = Duration::from_micros(2);
/// What is noted of a call by who begins it, for who ends it.
#[derive(Default)]
struct CallRecord {
    waker: AtomicWaker,
    /// The run of the arena that it has: the first slot below, the number of slots above.
    run: AtomicU64,
    /// It asked for this segment's lock: granted to nobody, it has to be given back. 0: it did not.
    lock: AtomicU64,
    /// True if it counts among the calls whose purpose is to wait.
    waits: AtomicBool,
    /// The call that is to be cancelled.
    cancelled: AtomicU64,
    /// When it began and when its time is over, in nanoseconds since the road began.
    began_ns: AtomicU64,
    deadline_ns: AtomicU64,
}

impl CallRecord {
    fn set_run(&self, run: Option<ArenaRun>) {
        self.run.store(run.map_or(0, |run| u64::from(run.slots) << 32 | u64::from(run.first)), Ordering::Relaxed);
    }

    fn run(&self) -> Option<ArenaRun> {
        let bits = self.run.load(Ordering::Relaxed);
        (bits >> 32 > 0).then_some(ArenaRun { first: bits as u32, slots: (bits >> 32) as u32 })
    }

    fn lock(&self) -> Option<SegmentId> {
        Some(self.lock.load(Ordering::Relaxed)).filter(|&bits| bits != 0).map(SegmentId::from_bits)
    }
}

/// What stands at the desk.
struct Work {
    lane: Channel,
    armed: bool,
    /// Places whose calls are to be cancelled, and how many cancels are under way.
    cancels: u64,
    cancelling: usize,
}

/// What the tasks of one client share.
pub(super) struct Dispatcher {
    desk: Combiner<Work>,
    calls: CallTable,
    notes: Box<[CallRecord]>,
    pub(super) arena: SharedMemory,
    runs: SharedSlots,
    room: Backpressure,
    pub(super) pauses: Pauses,
    /// Calls whose purpose is to wait.
    waits: AtomicU32,
    /// Places whose calls are to be cancelled, on their way to the desk.
    cancels: AtomicU64,
    /// Calls of batches that have begun and wait for the rest of theirs.
    gathered: AtomicU64,
    gone: AtomicBool,
    /// The reactor sleeps without a time-out.
    dormant: AtomicBool,
    began: Instant,
    #[cfg(test)]
    rings: std::sync::atomic::AtomicUsize,
}

/// How a call began.
pub(super) enum StartedCall {
    UnderWay(CallId),
    /// In line, under that ticket.
    Queued(u64),
}

impl Dispatcher {
    pub(super) fn new(lane: Channel, arena: SharedMemory, runs: SharedSlots) -> Self {
        Self {
            desk: Combiner::new(Work { lane, armed: false, cancels: 0, cancelling: 0 }),
            calls: CallTable::with_reserved(CALLS, SET_ASIDE),
            notes: std::iter::repeat_with(CallRecord::default).take(CALLS).collect(),
            arena,
            runs,
            room: Backpressure::default(),
            pauses: Pauses::default(),
            waits: AtomicU32::new(0),
            cancels: AtomicU64::new(0),
            gathered: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            dormant: AtomicBool::new(true),
            began: Instant::now(),
            #[cfg(test)]
            rings: Default::default(),
        }
    }

    fn note(&self, id: CallId) -> &CallRecord {
        &self.notes[id.index()]
    }

    fn since_begin_ns(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Begins a call, or notes the task as one that waits for room. `ticket` is what it waited under before. Unless it
    /// goes out at once it does so with [`send_gathered`](Self::send_gathered).
    pub(super) fn begin(
        &self,
        ticket: Option<u64>,
        (priority, bytes): (Priority, usize),
        deadline: Instant,
        waker: &Waker,
        goes_out: bool,
        make: impl FnOnce(Option<ArenaRun>) -> Operation,
    ) -> Result<StartedCall, NoCompletion> {
        let now = Instant::now();
        if self.is_gone() || now >= deadline {
            ticket.into_iter().for_each(|ticket| self.give_up_line(ticket));
            return Err(match ticket {
                _ if self.is_gone() => NoCompletion::NotSent,
                Some(_) => NoCompletion::Busy,
                // It comes too late, and nothing of it went out.
                None => NoCompletion::Late { harmless: true },
            });
        }
        let left = deadline.saturating_duration_since(now);
        let Some(timeout_us) = timeout_us(left) else {
            ticket.into_iter().for_each(|ticket| self.give_up_line(ticket));
            return Err(NoCompletion::TooLong(left));
        };
        let at_once = if ticket.is_none() { self.take_room(priority, bytes) } else { None };
        let (id, run) = match at_once {
            Some(room) => room,
            None => match self.wait_for_room(ticket, (priority, bytes), deadline, waker) {
                Ok(room) => room,
                Err(ticket) => return Ok(StartedCall::Queued(ticket)),
            },
        };
        let operation = make(run);
        let lock = if let Operation::Lock { segment, .. } = operation { segment.to_bits() } else { 0 };
        let note = self.note(id);
        note.set_run(run);
        note.lock.store(lock, Ordering::Relaxed);
        note.began_ns.store(self.since_begin_ns(now), Ordering::Relaxed);
        note.deadline_ns.store(self.since_begin_ns(deadline), Ordering::Relaxed);
        let request = Request { timeout_us, ..Request::new(RequestId(id.to_bits()), operation) };
        self.calls.submit(id, &request.encode(), true);
        if goes_out {
            self.work(1 << id.index());
        } else {
            self.gathered.fetch_or(1 << id.index(), Ordering::Release);
        }
        Ok(StartedCall::UnderWay(id))
    }

    /// Sends out what batches have begun, with one ring for all.
    pub(super) fn send_gathered(&self) {
        // The second and every later call of a batch finds nothing to do.
        if self.gathered.load(Ordering::Relaxed) != 0 {
            self.work(self.gathered.swap(0, Ordering::Acquire));
        }
    }

    /// Takes room for a call that comes now, if no call of its priority stands in line.
    #[inline]
    fn take_room(&self, priority: Priority, bytes: usize) -> Option<Place> {
        if self.room.is_empty(priority) { self.take_place(priority, bytes) } else { None }
    }

    /// A place for a call whose purpose is to wait, if there are not too many of them.
    fn begin_wait(&self) -> Option<CallId> {
        let more = |waits: u32| (waits < WAITS).then_some(waits + 1);
        self.waits.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        let id = self.calls.begin();
        match id {
            Some(id) => self.note(id).waits.store(true, Ordering::Relaxed),
            None => _ = self.waits.fetch_sub(1, Ordering::AcqRel),
        }
        id
    }

    /// The same, or a place in line for it.
    #[cold]
    fn wait_for_room(
        &self,
        ticket: Option<u64>,
        (priority, bytes): (Priority, usize),
        deadline: Instant,
        waker: &Waker,
    ) -> Result<Place, u64> {
        // Calls that nobody waits for may have ended.
        self.work(0);
        let ticket = match ticket {
            Some(ticket) => ticket,
            None => match self.take_room(priority, bytes) {
                Some(room) => return Ok(room),
                None => self.room.stand_in_line(self, (priority, bytes), waker, deadline),
            },
        };
        self.work(ARM);
        self.room.claim(ticket, waker).ok_or(ticket)
    }

    /// The end of a call, if it is there; else the task is noted.
    pub(super) fn look<T>(
        &self,
        id: CallId,
        waker: &Waker,
        harmless: impl FnOnce() -> bool,
        read: impl FnOnce(&Completion, Option<ArenaRun>) -> T,
    ) -> Option<Result<T, NoCompletion>> {
        // With other calls under way this thread has better things to do than to look for one.
        let alone = self.calls.count() <= 1;
        let spin_until = Instant::now() + if alone { SPIN } else { Duration::ZERO };
        loop {
            self.work(0);
            match self.calls.poll(id) {
                CallStatus::Waiting if self.is_gone() => {
                    if self.calls.abandon(id) == CallStatus::Waiting {
                        return Some(Err(NoCompletion::Gone));
                    }
                }
                CallStatus::Waiting if Instant::now() < spin_until => std::hint::spin_loop(),
                CallStatus::Waiting => {
                    self.note(id).waker.register(waker);
                    self.work(ARM);
                    if self.calls.park(id) == CallStatus::Waiting && !self.is_gone() {
                        return None;
                    }
                    // It came meanwhile.
                    drop(self.note(id).waker.take());
                }
                CallStatus::Done(entry) => return Some(Ok(self.take(id, &entry, read))),
                CallStatus::Abandoned => return Some(Err(NoCompletion::Late { harmless: harmless() })),
            }
        }
    }

    fn take<T>(&self, id: CallId, entry: &Entry, read: impl FnOnce(&Completion, Option<ArenaRun>) -> T) -> T {
        let result = read(&Completion::decode(entry), self.note(id).run());
        self.free(id);
        result
    }

    /// The future of a call was dropped. One that may wait for another caller is cancelled.
    pub(super) fn abandon(&self, id: CallId, may_wait: bool) {
        match self.calls.abandon(id) {
            CallStatus::Waiting if may_wait => {
                // A place may be another call's by now: the newer one counts.
                self.note(id).cancelled.fetch_max(id.to_bits(), Ordering::Relaxed);
                // Pairs with the Acquire in `send_cancels`.
                self.cancels.fetch_or(1 << id.index(), Ordering::Release);
                // A lock that is granted all the same has to be seen: by the reactor.
                self.work(CANCEL | ARM);
            }
            CallStatus::Done(entry) => self.end_late(id, &Completion::decode(&entry)),
            CallStatus::Waiting | CallStatus::Abandoned => {}
        }
    }

    /// Gives a lock back without waiting for the answer. `false`: it goes as soon as there is a place for it, for which the
    /// reactor has to be awake.
    pub(super) fn let_go(&self, segment: SegmentId, token: LockToken) -> bool {
        self.work(0);
        if self.is_gone() {
            return true;
        }
        if let Some(id) = self.begin_release(segment, token) {
            self.work(1 << id.index());
            return true;
        }
        self.room.owe(self, segment, token);
        self.work(ARM);
        false
    }

    /// A future that waited for room was dropped. If its turn had come, it is the next one's.
    pub(super) fn give_up_line(&self, ticket: u64) {
        self.room.leave(self, ticket);
    }

    /// Returns true while locks are to be given back: some wait for a place, or some may be granted to dropped futures.
    pub(super) fn owes(&self) -> bool {
        let granted_to_nobody = |(id, awaited): (CallId, bool)| !awaited && self.note(id).lock().is_some();
        !self.is_gone() && (self.room.owes() || self.calls.calls_in_flight().any(granted_to_nobody))
    }

    /// The socket was readable, or time passed: hands out what came. Says when it has to be called again.
    pub(super) fn turn(&self, alive: bool) -> Option<Instant> {
        if !alive {
            self.gone.store(true, Ordering::Release);
        }
        self.work(AWAKE);
        // Pairs with the exchange in `minds`: a call that is begun now is seen here, or sees that the reactor sleeps.
        self.dormant.swap(true, Ordering::AcqRel);
        let (now, gone) = (Instant::now(), self.is_gone());
        let mut next = self.room.turn(self, now, gone);
        if let Some(pause) = self.pauses.turn(now) {
            next = Some(next.map_or(pause, |other| other.min(pause)));
        }
        let mut waits = self.room.is_needed();
        for (id, awaited) in self.calls.calls_in_flight() {
            let note = self.note(id);
            if !awaited {
                waits |= note.lock().is_some();
                continue;
            }
            let patience_ns =
                note.deadline_ns.load(Ordering::Relaxed).saturating_add(ChannelPool::GRACE.as_nanos() as u64);
            let patience = self.began + Duration::from_nanos(patience_ns);
            if gone {
                note.waker.wake();
            } else if patience > now {
                waits = true;
                next = Some(next.map_or(patience, |other| other.min(patience)));
            } else if self.calls.abandon(id) == CallStatus::Waiting {
                note.waker.wake();
            }
        }
        if waits && !gone {
            self.work(ARM);
        }
        // Calls that nobody waits for still hold memory; their end is collected with the next call.
        if next.is_some() {
            self.dormant.store(false, Ordering::Relaxed);
        }
        next
    }

    /// A call has begun. Whether the reactor has to be woken, since it sleeps without end and has to know of its deadline.
    #[inline]
    pub(super) fn minds(&self) -> bool {
        // Pairs with the exchange in `turn`.
        self.dormant.swap(false, Ordering::AcqRel)
    }

    #[cfg(test)]
    pub(super) fn rings(&self) -> usize {
        self.rings.load(Ordering::Relaxed)
    }

    /// Whether nothing of it is under way, so that its memory can be used by others.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        self.work(0);
        self.calls.count() == 0
    }

    /// Sends out what is left at the desk, takes in what came, and arms the lane if that was asked for: now, or by who is at
    /// it.
    #[inline]
    fn work(&self, left: u64) {
        self.desk.submit(left, |work, left| {
            self.send_out(work, left & ((1 << CALLS) - 1));
            if left & CANCEL != 0 {
                self.send_cancels(work);
            }
            if left & AWAKE != 0 && std::mem::take(&mut work.armed) {
                work.lane.disarm_async();
            }
            self.take_in(work);
            // With nothing under way there is nothing to be woken by, and nothing would be armed.
            while left & ARM != 0 && !work.armed && work.lane.outstanding() > 0 {
                work.armed = work.lane.arm_async();
                self.take_in(work);
            }
        });
    }

    /// Calls go out in the order in which they were begun: a task that made two of them counts on it.
    fn send_out(&self, work: &mut Work, mut places: u64) {
        if places == 0 {
            return;
        }
        let began = |index: u32| self.notes[index as usize].began_ns.load(Ordering::Relaxed);
        while places != 0 {
            let (mut first, mut others) = (places.trailing_zeros(), places & (places - 1));
            while others != 0 {
                let other = others.trailing_zeros();
                first = if began(other) < began(first) { other } else { first };
                others &= others - 1;
            }
            places &= !(1 << first);
            let request = self.calls.request(first as usize);
            work.lane.submit(request).expect("there are not more places than the lane has");
        }
        work.lane.ring_doorbell();
        #[cfg(test)]
        self.rings.fetch_add(1, Ordering::Relaxed);
    }

    /// Cancels calls whose futures were dropped, behind the calls themselves. A call that has ended meanwhile needs no cancel.
    #[cold]
    fn send_cancels(&self, work: &mut Work) {
        // Pairs with the Release in `abandon`.
        work.cancels |= self.cancels.swap(0, Ordering::Acquire);
        let before = work.cancelling;
        while work.cancels != 0 && work.cancelling < CANCELS {
            let index = work.cancels.trailing_zeros() as usize;
            work.cancels &= work.cancels - 1;
            let id = CallId::from_bits(self.notes[index].cancelled.load(Ordering::Relaxed));
            // Who works at the desk frees it, so that its request stays there until this is done.
            if self.calls.is_abandoned(id) {
                let cancel = Request::new(CANCEL_ID, Request::cancel_of(&self.calls.request(index)));
                work.lane.submit(cancel.encode()).expect("there are not more of them than the lane has");
                work.cancelling += 1;
            }
        }
        if work.cancelling > before {
            work.lane.ring_doorbell();
        }
    }

    /// Takes the completions that are there.
    #[inline]
    fn take_in(&self, work: &mut Work) {
        while let Some(entry) = work.lane.reap() {
            let completion = Completion::decode(&entry);
            if completion.request == CANCEL_ID {
                work.cancelling = work.cancelling.saturating_sub(1);
                self.send_cancels(work);
                continue;
            }
            let id = CallId::from_bits(completion.request.0);
            match self.calls.complete(id, &entry) {
                Notify::Parked => self.note(id).waker.wake(),
                Notify::Abandoned => self.end_late(id, &completion),
                Notify::Polling | Notify::Stale => {}
            }
        }
    }

    /// A call that nobody waits for has ended. A lock that it was granted goes back.
    fn end_late(&self, id: CallId, completion: &Completion) {
        let lock = self.note(id).lock().filter(|_| completion.outcome == Outcome::Done);
        // Who dozes may not have heard yet that his call was given up.
        self.note(id).waker.wake();
        self.free(id);
        if let Some(segment) = lock {
            self.let_go(segment, LockToken(first_word(completion)));
        }
    }

    fn free(&self, id: CallId) {
        self.give_place((id, self.note(id).run()));
        self.room.serve(self);
    }
}

impl Places for Dispatcher {
    #[inline]
    fn take_place(&self, priority: Priority, bytes: usize) -> Option<Place> {
        let id = match priority {
            Priority::Call => self.calls.begin(),
            Priority::Wait => self.begin_wait(),
            Priority::Holder => self.calls.begin_urgent(),
        }?;
        if bytes == 0 {
            return Some((id, None));
        }
        let run = self.runs.try_take(bytes);
        if run.is_none() {
            self.give_place((id, None));
        }
        Some((id, Some(run?)))
    }

    #[inline]
    fn give_place(&self, (id, run): Place) {
        let waited = &self.note(id).waits;
        if waited.load(Ordering::Relaxed) {
            waited.store(false, Ordering::Relaxed);
            self.waits.fetch_sub(1, Ordering::AcqRel);
        }
        self.calls.free(id);
        if let Some(run) = run {
            self.runs.give(run);
        }
    }

    fn begin_release(&self, segment: SegmentId, token: LockToken) -> Option<CallId> {
        let id = self.calls.begin_urgent()?;
        let note = self.note(id);
        note.set_run(None);
        note.lock.store(0, Ordering::Relaxed);
        note.began_ns.store(self.since_begin_ns(Instant::now()), Ordering::Relaxed);
        let request = Request::new(RequestId(id.to_bits()), Operation::Unlock { segment, token });
        self.calls.submit(id, &request.encode(), false);
        Some(id)
    }

    fn send(&self, places: u64) {
        self.work(places);
    }
}
