//! The lanes of a client, and one blocking call on one of them.
//!
//! No lock lies on the way of a call. A thread claims the lane that it had the last time by one exchange, or, if
//! another thread is at work there, the next one that is free. Only where more threads call than there are lanes does one
//! sleep, until another one's call is over: in line ([`WaitQueue`]). The same goes for memory of the arena that a lane's own run
//! has no room for.
//!
//! A lane beside those that the user asked for is there for other calls while some lanes wait, and one for the holder of a
//! lock: neither waits for room that waits hold.

use super::arena::{ArenaRun, SharedSlots};
use super::priority::Priority;
use super::wait_queue::WaitQueue;
use crate::deadline::{Deadline, timeout_us};
use ddss_core::{Completion, Failure, LockToken, Operation, Outcome, Request, RequestId, SegmentId};
use ddss_ipc::{Attachment, Channel, PoolGuard, SharedMemory, TryLockPool, WaitClass, WaitOutcome};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a call on a lane ended that brought no completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCompletion {
    /// The deadline passed; the daemon may still be at it, with something that leaves nothing behind or with
    /// something that does. If it had passed before anything went out, nothing is left behind either.
    Late { harmless: bool },
    /// The daemon is gone.
    Gone,
    /// The daemon was told to stop and has not begun it.
    GoingDown,
    /// The daemon was gone before anything went out.
    NotSent,
    /// Nothing went out: everything is in use.
    Busy,
    /// Nothing went out: the caller gave the call more time than a call may have.
    TooLong(Duration),
}

/// A run of the arena that a call uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArenaLease {
    Nothing,
    /// The lane's own.
    Own,
    Shared(ArenaRun),
}

/// A lane with its own run of the arena and what is still under way on it from calls that stopped waiting.
pub(crate) struct ChannelSlot {
    pub(crate) lane: Channel,
    own: ArenaRun,
    pub(crate) next: u64,
    pub(crate) late: Vec<AbandonedCall>,
}

/// A call that stopped waiting before it ended.
pub(crate) struct AbandonedCall {
    pub(crate) id: u64,
    pub(crate) held: ArenaLease,
    /// It asked for this segment's lock: granted after all, it has to be given back.
    pub(crate) lock: Option<SegmentId>,
}

/// All lanes of one client.
pub(crate) struct ChannelPool {
    seats: TryLockPool<ChannelSlot>,
    /// For other calls while some of the seats wait.
    beside_waits: TryLockPool<ChannelSlot>,
    /// For calls under a lock, and its release.
    for_holders: TryLockPool<ChannelSlot>,
    /// How many seats wait.
    waits: AtomicUsize,
    pub(crate) shared: SharedSlots,
    arena: SharedMemory,
    /// The lane and the part of the arena that asynchronous calls use.
    for_tasks: Mutex<Option<(Channel, SharedSlots)>>,
    line: WaitQueue,
}

/// Lanes that are in use by calls whose purpose is to wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Tells that a lane is free when it is: dropped behind the lane.
struct Left<'a>(&'a WaitQueue);

impl Drop for Left<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.tell();
    }
}

/// Arena memory for one call, until the call ends.
pub(crate) struct Buffer {
    held: ArenaLease,
    run: ArenaRun,
}

impl Buffer {
    pub(crate) fn range(&self, bytes: usize) -> ddss_core::ArenaRange {
        self.run.range(bytes)
    }
}

/// A call on a lane that this thread holds.
pub(crate) struct Call<'a> {
    pub(crate) seat: PoolGuard<'a, ChannelSlot>,
    /// Before the word that the seat is free.
    _waiting: Option<Waiting<'a>>,
    _left: Left<'a>,
    pub(crate) lanes: &'a ChannelPool,
    /// Its caller's, who may go on with it after this.
    time: &'a mut Deadline,
}

/// Numbers the threads of this process, so that each comes back to the lane that it had.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        mine.get()
    })
}

impl ChannelPool {
    /// Slots of the arena that belong to one lane.
    const OWN_SLOTS: u32 = 16;
    /// How much longer than its deadline a call waits for the daemon to say how it ended.
    pub(crate) const GRACE: Duration = Duration::from_millis(15);
    /// Lanes of a client besides those that its threads are promised: for tasks, beside waits, and for holders of locks.
    pub(crate) const MORE: usize = 3;

    /// The last lane and half of the arena's common part are for tasks. The two before it have no memory of their own.
    pub(crate) fn new(attachment: &Attachment) -> Self {
        let arena = attachment.arena().clone();
        let slots = (arena.len() / ddss_core::limits::ARENA_SLOT_BYTES) as u32;
        let mut lanes: Vec<Channel> = std::iter::from_fn(|| attachment.take_channel()).collect();
        let for_tasks = lanes.pop();
        let mut bare = || {
            let lane = if lanes.len() > 1 { lanes.pop() } else { None };
            TryLockPool::new(lane.map(|lane| ChannelSlot {
                lane,
                own: ArenaRun { first: 0, slots: 0 },
                next: 1,
                late: Vec::new(),
            }))
        };
        let (beside_waits, for_holders) = (bare(), bare());
        let own = Self::OWN_SLOTS.min(slots / (2 * lanes.len().max(1) as u32));
        let first = lanes.len() as u32 * own;
        let middle = first + (slots - first) / 2;
        let seats = lanes.into_iter().enumerate().map(|(index, lane)| {
            let own = ArenaRun { first: index as u32 * own, slots: own };
            ChannelSlot { lane, own, next: 1, late: Vec::new() }
        });
        let shared = SharedSlots::new(first, middle);
        let for_tasks = Mutex::new(for_tasks.map(|lane| (lane, SharedSlots::new(middle, slots))));
        let (seats, waits, line) = (TryLockPool::new(seats), AtomicUsize::new(0), WaitQueue::default());
        Self { seats, beside_waits, for_holders, waits, shared, arena, for_tasks, line }
    }

    /// Gives the lane for tasks away, once.
    pub(crate) fn lend_to_tasks(&self) -> Option<(Channel, SharedSlots)> {
        self.for_tasks.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the lane of this thread, or another one that is free; waits for one until the deadline.
    #[inline]
    pub(crate) fn call<'a>(&'a self, priority: Priority, time: &'a mut Deadline) -> Result<Call<'a>, NoCompletion> {
        let number = thread_number();
        if priority != Priority::Wait
            && self.line.is_empty(priority)
            && let Some(seat) = self.seats.try_acquire(number)
        {
            return Ok(Call { seat, _waiting: None, _left: Left(&self.line), lanes: self, time });
        }
        self.wait_for_a_lane(number, priority, time)
    }

    #[cold]
    fn wait_for_a_lane<'a>(
        &'a self,
        number: usize,
        priority: Priority,
        time: &'a mut Deadline,
    ) -> Result<Call<'a>, NoCompletion> {
        let look = || self.claim(number, priority);
        let found = if self.line.is_empty(priority) { look() } else { None };
        let found = found.or_else(|| self.line.wait(priority, time.deadline(), look));
        let (seat, waiting) = found.ok_or(NoCompletion::Busy)?;
        Ok(Call { seat, _waiting: waiting, _left: Left(&self.line), lanes: self, time })
    }

    /// A lane that is free for a call of that priority.
    fn claim(&self, number: usize, priority: Priority) -> Option<(PoolGuard<'_, ChannelSlot>, Option<Waiting<'_>>)> {
        let seat = self.seats.try_acquire(number);
        let some_wait = || self.waits.load(Ordering::Acquire) > 0;
        match priority {
            Priority::Wait => {
                let seat = seat?;
                self.waits.fetch_add(1, Ordering::AcqRel);
                return Some((seat, Some(Waiting(&self.waits))));
            }
            Priority::Call => seat.or_else(|| self.beside_waits.try_acquire(0).filter(|_| some_wait())),
            Priority::Holder => seat.or_else(|| self.for_holders.try_acquire(0)),
        }
        .map(|seat| (seat, None))
    }

    pub(crate) fn arena(&self) -> &SharedMemory {
        &self.arena
    }
}

/// The segment whose lock it asks for.
fn locked_by(operation: &Operation) -> Option<SegmentId> {
    if let Operation::Lock { segment, .. } = operation { Some(*segment) } else { None }
}

impl Call<'_> {
    pub(crate) fn deadline(&mut self) -> Instant {
        self.time.deadline()
    }

    /// Arena memory for this call.
    pub(crate) fn buffer(&mut self, bytes: usize) -> Result<Buffer, NoCompletion> {
        self.collect_late();
        let own = self.seat.own;
        let own_is_free = self.seat.late.iter().all(|late| late.held != ArenaLease::Own);
        if bytes <= own.bytes() && own_is_free {
            return Ok(Buffer { held: ArenaLease::Own, run: own });
        }
        let deadline = self.deadline();
        let run = self.lanes.shared.take(bytes, deadline).ok_or(NoCompletion::Busy)?;
        Ok(Buffer { held: ArenaLease::Shared(run), run })
    }

    /// Writes into a buffer of this call, from that place of the arena on.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        self.lanes.arena.write(offset as usize, bytes).expect("a buffer lies inside the arena");
    }

    /// Submits, waits, and takes the completion; `read` looks at the arena before the buffer is given up.
    pub(crate) fn run<T>(
        self,
        operation: Operation,
        buffer: Option<Buffer>,
        class: WaitClass,
        read: impl FnOnce(&Completion, &SharedMemory) -> T,
    ) -> Result<T, NoCompletion> {
        self.run_while(operation, buffer, class, None::<fn()>, read)
    }

    /// The same, and between submitting and waiting its caller does something else.
    #[inline]
    pub(crate) fn run_while<T>(
        mut self,
        operation: Operation,
        buffer: Option<Buffer>,
        class: WaitClass,
        meanwhile: Option<impl FnOnce()>,
        read: impl FnOnce(&Completion, &SharedMemory) -> T,
    ) -> Result<T, NoCompletion> {
        let held = buffer.map_or(ArenaLease::Nothing, |buffer| buffer.held);
        let left = self.time.left();
        if left.is_zero() {
            self.release(held);
            return Err(NoCompletion::Late { harmless: true });
        }
        let Some(timeout_us) = timeout_us(left) else {
            self.release(held);
            return Err(NoCompletion::TooLong(left));
        };
        let id = self.seat.next;
        self.seat.next += 1;
        let request = Request { timeout_us, ..Request::new(RequestId(id), operation) };
        let mut entry = request.encode();
        let has_working_hint = meanwhile.is_some() && self.seat.lane.is_on_service_core();
        if has_working_hint {
            Request::set_working_hint(&mut entry);
        }
        if self.seat.lane.submit(entry).is_err() {
            self.release(held);
            return Err(NoCompletion::Busy);
        }
        self.seat.lane.ring_doorbell();
        if let Some(meanwhile) = meanwhile {
            // Should it panic, the daemon still is at this call and may write into its buffer.
            self.seat.late.push(AbandonedCall { id, held, lock: locked_by(&operation) });
            if has_working_hint {
                self.seat.lane.yield_to_service();
            }
            meanwhile();
            self.seat.late.pop();
        }
        match self.wait_for(id, class, operation.is_harmless()) {
            Ok(Completion { outcome: Outcome::Failed(Failure::GoingDown), .. }) => {
                self.release(held);
                Err(NoCompletion::GoingDown)
            }
            Ok(completion) => {
                let result = read(&completion, &self.lanes.arena);
                self.release(held);
                Ok(result)
            }
            Err(none) => {
                self.seat.late.push(AbandonedCall { id, held, lock: locked_by(&operation) });
                Err(none)
            }
        }
    }

    fn wait_for(&mut self, id: u64, class: WaitClass, harmless: bool) -> Result<Completion, NoCompletion> {
        loop {
            let patience = self.deadline() + ChannelPool::GRACE;
            match self.seat.lane.wait(class, patience) {
                WaitOutcome::Ready => {}
                WaitOutcome::TimedOut => return Err(NoCompletion::Late { harmless }),
                WaitOutcome::Gone => return Err(NoCompletion::Gone),
            }
            while let Some(entry) = self.seat.lane.reap() {
                let completion = Completion::decode(&entry);
                if completion.request == RequestId(id) {
                    return Ok(completion);
                }
                self.ended_late(&completion);
            }
        }
    }

    pub(crate) fn collect_late(&mut self) {
        if self.seat.late.is_empty() {
            return;
        }
        while let Some(entry) = self.seat.lane.reap() {
            self.ended_late(&Completion::decode(&entry));
        }
    }

    /// A call that stopped waiting has ended now: what it used is free.
    pub(crate) fn ended_late(&mut self, completion: &Completion) {
        let id = completion.request.0;
        let Some(index) = self.seat.late.iter().position(|late| late.id == id) else { return };
        let AbandonedCall { held, lock, .. } = self.seat.late.swap_remove(index);
        self.release(held);
        if let (Some(segment), Outcome::Done) = (lock, completion.outcome) {
            let token = LockToken(u64::from_le_bytes(std::array::from_fn(|i| completion.data[i])));
            let operation = Operation::Unlock { segment, token };
            self.seat.next += 1;
            let unlock = Request::new(RequestId(self.seat.next), operation);
            // If there is no room for it, the lease ends the lock.
            if self.seat.lane.submit(unlock.encode()).is_ok() {
                self.seat.lane.ring_doorbell();
                self.seat.late.push(AbandonedCall { id: unlock.id.0, held: ArenaLease::Nothing, lock: None });
                self.seat.next += 1;
            }
        }
    }

    pub(crate) fn release(&self, held: ArenaLease) {
        if let ArenaLease::Shared(run) = held {
            self.lanes.shared.give(run);
        }
    }
}
