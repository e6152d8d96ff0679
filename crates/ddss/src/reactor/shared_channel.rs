//! The channel that the tasks of one client share, and the calls in flight on it.
//!
//! The call path takes no lock. A call's parameters are stored in its own place ([`CallTable`]). The channel belongs to
//! a [`Combiner`]: the thread that holds it submits requests and collects completions for all. A thread that finds it
//! taken leaves a request bit, which the holder executes, and continues.
//!
//! Arena memory belongs to a call from its begin until its place is returned, even if its future was dropped. A task
//! enters a queue ([`Backpressure`]) only when capacity is exhausted. A few places are reserved for calls under a lock.
//! The first calls that wait for an event keep their places. Those beyond are parked in the daemon ([`ParkedCalls`]):
//! they give their place back at once, and a few places are offered for their completions. A waiting call whose future
//! was dropped is cancelled.

use self::pauses::Pauses;
use crate::call::arena::{ArenaRun, SharedSlots};
use crate::call::channels::{ChannelPool, NoCompletion};
use crate::deadline::timeout_us;
use crate::plan::priority::Priority;
use crate::reactor::backpressure::{Backpressure, ChannelPlace, Places};
use crate::value::first_word;
use atomic_waker::AtomicWaker;
use ddss_core::limits::RING_SLOTS;
use ddss_core::{Completion, Entry, Limit, LockToken, Operation, Outcome, Request, RequestId, SegmentId};
use ddss_ipc::lock_free::{CallId, CallStatus, CallTable, Combiner, Notify, ProcessByte};
use ddss_ipc::{Channel, SharedMemory};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

mod parked_calls;
mod parking;
pub(crate) mod pauses;
mod places;

use parked_calls::ParkedCalls;

/// Maximum calls in flight: one bit each in the combiner's word; the rest of the bits are flags.
const CALLS_MAX: usize = 52;
/// Maximum waiting calls that keep their places, and maximum places of those that are parked, until their tasks see it. A task may
/// not be polled for long.
const WAITS_MAX: u32 = 16;
/// Maximum places that are offered for completions of parked waits.
const COLLECTS_MAX: usize = 8;
/// Places reserved for releases and for calls under a lock.
const RESERVED_PLACES: usize = 4;
/// Maximum cancels in flight; further cancels wait.
const CANCELS_MAX: usize = 4;
const _: () = assert!(CALLS_MAX + CANCELS_MAX + COLLECTS_MAX <= RING_SLOTS);
const _: () = assert!(2 * WAITS_MAX as usize + RESERVED_PLACES < CALLS_MAX);
const _: () = assert!(CALLS_MAX <= CANCEL.trailing_zeros() as usize);
/// Request id of a cancel; no call has this id.
const CANCEL_ID: RequestId = RequestId(u64::MAX);
/// Request id of an offered place that no wait has used; no call has this id.
const COLLECT_ID: RequestId = RequestId(u64::MAX - 1);
/// Request bit of the combiner: some calls have to be cancelled.
const CANCEL: u64 = 1 << 60;
/// Request bit: the next completion has to wake the reactor.
const ARM: u64 = 1 << 61;
/// Request bit: the reactor is awake.
const AWAKE: u64 = 1 << 62;
const _: () = assert!(AWAKE.trailing_zeros() < Combiner::<()>::BITS);

/// State of a channel whose daemon lives, as far as the reactor knows.
pub(super) const OPEN: u8 = 1;
/// State of a channel whose daemon is gone.
const GONE: u8 = 2;

/// Time that a task polls for its completion before it yields to the executor.
const SPIN: Duration = Duration::from_micros(2);
/// State that the caller records for the thread that completes the call.
#[derive(Default)]
struct CallRecord {
    waker: AtomicWaker,
    /// The call's arena run: first slot in the low half, number of slots in the high half.
    run: AtomicU64,
    /// Segment whose lock the call requested, 0 for none. A grant that arrives after the future was dropped has to be
    /// released.
    lock: AtomicU64,
    /// True if the call counts as one that keeps its place while it waits for an event.
    waits: AtomicBool,
    /// True if the call is parked as soon as it has to wait.
    parks: AtomicBool,
    /// Segment of the call, for a wait that is parked.
    segment: AtomicU64,
    /// Request id of the call to cancel.
    cancelled: AtomicU64,
    /// Begin and deadline, in nanoseconds since the creation of this channel.
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

/// State that only the holder of the combiner touches.
struct Work {
    channel: Channel,
    armed: bool,
    /// Places whose calls are to be cancelled; below, the number of cancels in flight.
    cancels: u64,
    cancels_in_flight: usize,
    /// Offered places in flight.
    collects: usize,
}

/// Channel that all tasks of a client share.
pub(crate) struct SharedChannel {
    combiner: Combiner<Work>,
    calls: CallTable,
    records: Box<[CallRecord]>,
    pub(crate) arena: SharedMemory,
    runs: SharedSlots,
    backpressure: Backpressure,
    pub(super) pauses: Pauses,
    parked: ParkedCalls,
    /// Number of calls that wait for an event.
    wait_count: AtomicU32,
    /// Number of calls that are being parked.
    parking_count: AtomicU32,
    /// Places whose calls are to be cancelled, not yet seen by the combiner.
    cancels: AtomicU64,
    /// Calls of batches that have begun and wait for the rest of their batch.
    gathered: AtomicU64,
    /// [`OPEN`] or [`GONE`]; in a child of this process neither, which must not touch the channel.
    state: ProcessByte,
    /// Time until which the reactor sleeps at most, in nanoseconds since the creation of this channel; `u64::MAX`: for
    /// ever. Calls lower it, and wake the reactor if they end sooner.
    sleeps_until_ns: AtomicU64,
    created: Instant,
    #[cfg(test)]
    rings: std::sync::atomic::AtomicUsize,
}

/// Result of beginning a call.
pub(crate) enum StartedCall {
    InFlight(CallId),
    /// Queued under that ticket.
    Queued(u64),
}

impl SharedChannel {
    pub(crate) fn new(channel: Channel, arena: SharedMemory, runs: SharedSlots, state: ProcessByte) -> Self {
        Self {
            combiner: Combiner::new(Work { channel, armed: false, cancels: 0, cancels_in_flight: 0, collects: 0 }),
            calls: CallTable::with_reserved(CALLS_MAX, RESERVED_PLACES),
            records: std::iter::repeat_with(CallRecord::default).take(CALLS_MAX).collect(),
            arena,
            runs,
            backpressure: Backpressure::default(),
            pauses: Pauses::default(),
            parked: ParkedCalls::default(),
            wait_count: AtomicU32::new(0),
            parking_count: AtomicU32::new(0),
            cancels: AtomicU64::new(0),
            gathered: AtomicU64::new(0),
            state,
            sleeps_until_ns: AtomicU64::new(u64::MAX),
            created: Instant::now(),
            #[cfg(test)]
            rings: Default::default(),
        }
    }

    fn note(&self, id: CallId) -> &CallRecord {
        &self.records[id.index()]
    }

    fn since_begin_ns(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.created).as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_gone(&self) -> bool {
        self.state.load(Ordering::Acquire) != OPEN
    }

    /// Begins a call, or queues the task for capacity. `ticket` is the task's earlier place in the queue. A gathered
    /// call goes out with [`send_gathered`](Self::send_gathered).
    pub(crate) fn begin(
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
            ticket.into_iter().for_each(|ticket| self.leave_queue(ticket));
            return Err(match ticket {
                _ if self.is_gone() => NoCompletion::NotSent,
                Some(_) => NoCompletion::Busy(Limit::Tasks),
                // The deadline has passed and no part of the call went out.
                None => NoCompletion::Late { harmless: true },
            });
        }
        let left = deadline.saturating_duration_since(now);
        let Some(timeout_us) = timeout_us(left) else {
            ticket.into_iter().for_each(|ticket| self.leave_queue(ticket));
            return Err(NoCompletion::TooLong(left));
        };
        self.runs.check(bytes).map_err(NoCompletion::NeverFits)?;
        let at_once = if ticket.is_none() { self.take_room(priority, bytes) } else { None };
        let (id, run) = match at_once {
            Some(place) => place,
            None => match self.wait_for_room(ticket, (priority, bytes), deadline, waker) {
                Ok(place) => place,
                Err(ticket) => return Ok(StartedCall::Queued(ticket)),
            },
        };
        let operation = make(run);
        let lock = if let Operation::Lock { segment, .. } = operation { segment.to_bits() } else { 0 };
        let segment = if let Operation::Await { segment, .. } = operation { segment.to_bits() } else { lock };
        let note = self.note(id);
        note.set_run(run);
        note.lock.store(lock, Ordering::Relaxed);
        note.segment.store(segment, Ordering::Relaxed);
        note.began_ns.store(self.since_begin_ns(now), Ordering::Relaxed);
        note.deadline_ns.store(self.since_begin_ns(deadline), Ordering::Relaxed);
        let parks = note.parks.load(Ordering::Relaxed);
        let request = Request { timeout_us, parks, ..Request::new(RequestId(id.to_bits()), operation) };
        self.calls.submit(id, &request.encode(), true);
        if goes_out {
            self.run_combined(1 << id.index());
        } else {
            self.gathered.fetch_or(1 << id.index(), Ordering::Release);
        }
        Ok(StartedCall::InFlight(id))
    }

    /// Submits the gathered calls of batches with a single wake-up.
    pub(crate) fn send_gathered(&self) {
        // For the second and later calls of a batch nothing is left to submit.
        if self.gathered.load(Ordering::Relaxed) != 0 {
            self.run_combined(self.gathered.swap(0, Ordering::Acquire));
        }
    }

    /// Takes capacity for a new call, if no call of its priority is queued.
    #[inline]
    fn take_room(&self, priority: Priority, bytes: usize) -> Option<ChannelPlace> {
        if self.backpressure.is_empty(priority) { self.take_place(priority, bytes) } else { None }
    }

    /// Takes a place for a call, or queues the task.
    #[cold]
    fn wait_for_room(
        &self,
        ticket: Option<u64>,
        (priority, bytes): (Priority, usize),
        deadline: Instant,
        waker: &Waker,
    ) -> Result<ChannelPlace, u64> {
        // Abandoned calls may have ended.
        self.run_combined(0);
        let ticket = match ticket {
            Some(ticket) => ticket,
            None => match self.take_room(priority, bytes) {
                Some(place) => return Ok(place),
                None => self.backpressure.enqueue(self, (priority, bytes), waker, deadline),
            },
        };
        self.run_combined(ARM);
        self.backpressure.claim(ticket, waker).ok_or(ticket)
    }

    /// Takes the completion of a call if it has arrived; otherwise registers the waker.
    pub(crate) fn take_completion<T>(
        &self,
        id: CallId,
        waker: &Waker,
        harmless: impl FnOnce() -> bool,
        read: impl FnOnce(&Completion, Option<ArenaRun>) -> T,
    ) -> Option<Result<T, NoCompletion>> {
        // With other calls in flight the thread has other work than to poll for a single completion.
        let alone = self.calls.count() <= 1;
        let spin_until = Instant::now() + if alone { SPIN } else { Duration::ZERO };
        loop {
            self.run_combined(0);
            match self.calls.poll(id) {
                CallStatus::Waiting if self.is_gone() => {
                    if self.calls.abandon(id) == CallStatus::Waiting {
                        return Some(Err(NoCompletion::Gone));
                    }
                }
                CallStatus::Waiting if Instant::now() < spin_until => std::hint::spin_loop(),
                CallStatus::Waiting => {
                    self.note(id).waker.register(waker);
                    self.run_combined(ARM);
                    if self.calls.park(id) == CallStatus::Waiting && !self.is_gone() {
                        return None;
                    }
                    // The completion arrived meanwhile.
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

    /// Abandons a call whose future was dropped. A call that may wait for another client is cancelled.
    pub(crate) fn abandon(&self, id: CallId, may_wait: bool) {
        match self.calls.abandon(id) {
            CallStatus::Waiting if may_wait => {
                // The place may belong to a newer call by now; the newer id counts.
                self.note(id).cancelled.fetch_max(id.to_bits(), Ordering::Relaxed);
                // Pairs with the Acquire in `send_cancels`.
                self.cancels.fetch_or(1 << id.index(), Ordering::Release);
                // The reactor has to see a lock that is granted nevertheless.
                self.run_combined(CANCEL | ARM);
            }
            CallStatus::Done(entry) => self.complete_abandoned(id, &Completion::decode(&entry)),
            CallStatus::Waiting | CallStatus::Abandoned => {}
        }
    }

    /// Releases a lock without waiting for the reply. Returns `false` if the release had to be queued; the reactor then
    /// has to be awake.
    pub(crate) fn release_lock(&self, segment: SegmentId, token: LockToken) -> bool {
        self.run_combined(0);
        if self.is_gone() {
            return true;
        }
        if let Some(id) = self.begin_release(segment, token) {
            self.run_combined(1 << id.index());
            return true;
        }
        self.backpressure.queue_release(self, segment, token);
        self.run_combined(ARM);
        false
    }

    /// Removes a task that waited for capacity and was dropped. Its grant goes to the next task.
    pub(crate) fn leave_queue(&self, ticket: u64) {
        self.backpressure.leave(self, ticket);
    }

    /// Returns true while releases are queued, or locks may be granted to dropped futures.
    pub(crate) fn has_pending_releases(&self) -> bool {
        let granted_to_nobody = |(id, awaited): (CallId, bool)| !awaited && self.note(id).lock().is_some();
        !self.is_gone()
            && (self.backpressure.has_pending_releases()
                || self.parked.has_abandoned_locks()
                || self.calls.calls_in_flight().any(granted_to_nobody))
    }

    /// Handles a readable socket or elapsed time: delivers completions. Returns the time of the next call.
    pub(crate) fn turn(&self, alive: bool) -> Option<Instant> {
        if !alive {
            self.state.store(GONE, Ordering::Release);
        }
        self.run_combined(AWAKE);
        // Pairs with `needs_reactor`: a call that begins now is seen here, or its caller wakes the reactor.
        let announced_ns = self.sleeps_until_ns.swap(u64::MAX, Ordering::AcqRel);
        let (now, gone) = (Instant::now(), self.is_gone());
        let mut next = self.backpressure.turn(self, now, gone);
        // The call that announced this time may have ended. Later calls rely on it, and need not wake the reactor.
        let announced = self.created + Duration::from_nanos(announced_ns.min(u64::MAX >> 1));
        if announced_ns != u64::MAX && announced > now {
            next = Some(next.map_or(announced, |other| other.min(announced)));
        }
        if let Some(pause) = self.pauses.turn(now) {
            next = Some(next.map_or(pause, |other| other.min(pause)));
        }
        if let Some(patience) = self.parked.turn(now, gone) {
            next = Some(next.map_or(patience, |other| other.min(patience)));
        }
        let mut waits = self.backpressure.is_needed() || self.parked.owed() > 0;
        for (id, awaited) in self.calls.calls_in_flight() {
            let note = self.note(id);
            if !awaited {
                waits |= note.lock().is_some();
                continue;
            }
            let deadline = self.created + Duration::from_nanos(note.deadline_ns.load(Ordering::Relaxed));
            let patience = deadline + ChannelPool::GRACE;
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
            self.run_combined(ARM);
        }
        // Abandoned calls still use memory; the next call collects their completions.
        if let Some(next) = next {
            // Keeps an earlier time: its caller wakes the reactor.
            self.sleeps_until_ns.fetch_min(self.since_begin_ns(next), Ordering::AcqRel);
        }
        next
    }

    /// Returns true if a call that has begun must wake the reactor, which would sleep beyond the call's deadline.
    #[inline]
    pub(crate) fn needs_reactor(&self, deadline: Instant) -> bool {
        let patience_ns = self.since_begin_ns(deadline + ChannelPool::GRACE);
        // Pairs with the exchange in `turn`.
        self.sleeps_until_ns.fetch_min(patience_ns, Ordering::AcqRel) > patience_ns
    }

    #[cfg(test)]
    pub(crate) fn rings(&self) -> usize {
        self.rings.load(Ordering::Relaxed)
    }

    /// Returns the number of parked waits for which the daemon owes a completion.
    #[cfg(test)]
    pub(crate) fn parked(&self) -> usize {
        self.run_combined(0);
        self.parked.owed()
    }

    /// Returns true if no call is in flight, so that the memory can be reused.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.run_combined(0);
        self.calls.count() == 0 && self.parked.owed() == 0
    }

    /// Executes request bits: submits requests, collects completions, and arms the channel if asked to. Runs on this
    /// thread, or on the thread that holds the combiner.
    #[inline]
    fn run_combined(&self, left: u64) {
        if self.state.is_inherited() {
            return;
        }
        self.combiner.submit(left, |work, left| {
            self.submit_requests(work, left & ((1 << CALLS_MAX) - 1));
            if left & CANCEL != 0 {
                self.send_cancels(work);
            }
            if left & AWAKE != 0 && std::mem::take(&mut work.armed) {
                work.channel.disarm_async();
            }
            self.collect_completions(work);
            // With no call in flight no completion can wake the reactor, so arming is pointless.
            while left & ARM != 0 && !work.armed && work.channel.outstanding() > 0 {
                work.armed = work.channel.arm_async();
                self.collect_completions(work);
            }
        });
    }

    /// Submits calls in the order in which they began: a task that makes two calls depends on it.
    fn submit_requests(&self, work: &mut Work, mut places: u64) {
        if places == 0 {
            return;
        }
        let created = |index: u32| self.records[index as usize].began_ns.load(Ordering::Relaxed);
        while places != 0 {
            let (mut first, mut others) = (places.trailing_zeros(), places & (places - 1));
            while others != 0 {
                let other = others.trailing_zeros();
                first = if created(other) < created(first) { other } else { first };
                others &= others - 1;
            }
            places &= !(1 << first);
            let request = self.calls.request(first as usize);
            work.channel.submit(request).expect("there are not more places than the channel has");
        }
        work.channel.ring_doorbell();
        #[cfg(test)]
        self.rings.fetch_add(1, Ordering::Relaxed);
    }

    /// Cancels abandoned calls, after the calls themselves went out. A call that has completed meanwhile needs no
    /// cancel.
    #[cold]
    fn send_cancels(&self, work: &mut Work) {
        // Pairs with the Release in `abandon`.
        work.cancels |= self.cancels.swap(0, Ordering::Acquire);
        let before = work.cancels_in_flight;
        while work.cancels != 0 && work.cancels_in_flight < CANCELS_MAX {
            let index = work.cancels.trailing_zeros() as usize;
            work.cancels &= work.cancels - 1;
            let id = CallId::from_bits(self.records[index].cancelled.load(Ordering::Relaxed));
            // The combiner's holder frees places, so that a request bit stays set until this is done.
            if self.calls.is_abandoned(id) {
                let cancel = Request::new(CANCEL_ID, Request::cancel_of(&self.calls.request(index)));
                work.channel.submit(cancel.encode()).expect("there are not more of them than the channel has");
                work.cancels_in_flight += 1;
            }
        }
        while work.cancels_in_flight < CANCELS_MAX
            && let Some(operation) = self.parked.next_cancel()
        {
            let cancel = Request { parks: true, ..Request::new(CANCEL_ID, operation) };
            work.channel.submit(cancel.encode()).expect("there are not more of them than the channel has");
            work.cancels_in_flight += 1;
        }
        if work.cancels_in_flight > before {
            work.channel.ring_doorbell();
        }
    }

    /// Collects the completions that have arrived.
    #[inline]
    fn collect_completions(&self, work: &mut Work) {
        while let Some(entry) = work.channel.reap() {
            let completion = Completion::decode(&entry);
            if completion.request == CANCEL_ID {
                work.cancels_in_flight = work.cancels_in_flight.saturating_sub(1);
                self.send_cancels(work);
                continue;
            }
            if completion.request == COLLECT_ID {
                work.collects = work.collects.saturating_sub(1);
                continue;
            }
            let id = CallId::from_bits(completion.request.0);
            if completion.parked {
                self.record_parked(id);
            }
            match self.calls.complete(id, &entry) {
                Notify::Parked => self.note(id).waker.wake(),
                Notify::Abandoned => self.complete_abandoned(id, &completion),
                Notify::Polling => {}
                Notify::Stale => {
                    if let Some(granted) = self.parked.end(id.to_bits(), &entry) {
                        work.collects = work.collects.saturating_sub(1);
                        granted.into_iter().for_each(|(segment, token)| _ = self.release_lock(segment, token));
                    }
                }
            }
        }
        self.offer_places(work);
    }

    /// Completes an abandoned call. A lock that it was granted is released.
    fn complete_abandoned(&self, id: CallId, completion: &Completion) {
        let lock = self.note(id).lock().filter(|_| completion.outcome == Outcome::Done && !completion.parked);
        // A reactor that is falling asleep may not have seen yet that the call was abandoned.
        self.note(id).waker.wake();
        self.free(id);
        if let Some(segment) = lock {
            self.release_lock(segment, LockToken(first_word(completion)));
        }
        if completion.parked {
            self.abandon_parked(id);
        }
    }

    fn free(&self, id: CallId) {
        self.give_place((id, self.note(id).run()));
        self.backpressure.serve(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestNode;

    #[test]
    fn call_with_an_earlier_deadline_wakes_the_reactor() {
        // If this broke, a task's short call would end at the deadline of another task's long wait.
        let node = TestNode::start();
        let client = node.client();
        let session = client.inner.last_session();
        let (channel, runs) = session.channels.take_task_channel().unwrap();
        let channel =
            SharedChannel::new(channel, session.channels.arena().clone(), runs, ProcessByte::new(OPEN).unwrap());
        let (now, grace) = (Instant::now(), ChannelPool::GRACE);
        let [soon, later, last] = [60, 600, 700].map(|seconds| now + Duration::from_secs(seconds));
        assert_eq!(channel.turn(true), None);
        assert!(channel.needs_reactor(later), "the reactor sleeps for ever");
        assert_eq!(channel.turn(true), Some(later + grace));
        assert!(!channel.needs_reactor(last));
        assert!(channel.needs_reactor(soon));
        assert!(!channel.needs_reactor(later));
        assert_eq!(channel.turn(true), Some(soon + grace));
        // A call that begins while the reactor looks around.
        assert!(channel.needs_reactor(now - grace));
        assert_eq!(channel.turn(true), None);
    }
}
