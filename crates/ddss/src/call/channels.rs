//! The channels of a client, and one blocking call on one of them.
//!
//! The call path takes no lock. A thread claims the channel of its last call by one exchange. If another thread uses
//! that channel, it claims the next free one. Only where more threads call than there are channels does a thread sleep,
//! in order, until a call ends ([`WaitQueue`]). The same holds for arena memory beyond a channel's own run.
//!
//! Two further channels exist beside the user's: one for other calls while some channels wait, and one for lock
//! holders. Neither waits for capacity that waiting calls use.

use super::arena::{ArenaExceeded, ArenaRun, SharedSlots};
use super::wait_queue::WaitQueue;
use crate::deadline::{Deadline, timeout_us};
use crate::plan::priority::Priority;
use crate::plan::{CallPlan, Decoder};
use ddss_core::{ArenaRange, Completion, Failure, Limit, LockToken, Operation, Outcome, Request, RequestId, SegmentId};
use ddss_ipc::lock_free::{PoolGuard, TryLockPool};
use ddss_ipc::{Attachment, Channel, SharedMemory, WaitClass, WaitOutcome};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reason why a call ended without a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCompletion {
    /// The deadline passed; the daemon may still execute the call. `harmless` is true if the call has no side effects,
    /// or if the deadline passed before anything went out.
    Late { harmless: bool },
    /// The daemon is gone.
    Gone,
    /// The daemon is shutting down and has not begun the call.
    ShuttingDown,
    /// The daemon was gone before anything went out.
    NotSent,
    /// Nothing went out: the client has no room for more of these.
    Busy(Limit),
    /// Nothing went out: the timeout exceeds the maximum of a call.
    TooLong(Duration),
    /// Nothing went out: the call needs more bytes than its part of the arena ever has.
    NeverFits(ArenaExceeded),
}

/// Arena memory that a call uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArenaLease {
    Nothing,
    /// The channel's own run.
    Own,
    Shared(ArenaRun),
}

/// A channel with its own arena run and its abandoned calls that are still in flight.
pub(crate) struct ChannelSlot {
    pub(crate) channel: Channel,
    own: ArenaRun,
    pub(crate) next_id: u64,
    pub(crate) abandoned: Vec<AbandonedCall>,
}

/// A call whose caller stopped waiting before it ended.
pub(crate) struct AbandonedCall {
    pub(crate) id: u64,
    pub(crate) lease: ArenaLease,
    /// Segment whose lock the call requested. If the lock is still granted, it has to be released.
    pub(crate) lock: Option<SegmentId>,
}

/// All channels of one client.
pub(crate) struct ChannelPool {
    channel_slots: TryLockPool<ChannelSlot>,
    /// For other calls while some of the channels wait.
    while_others_wait: TryLockPool<ChannelSlot>,
    /// For calls under a lock, and its release.
    for_lock_holders: TryLockPool<ChannelSlot>,
    /// Number of channels whose call waits for an event.
    waiting_count: AtomicUsize,
    /// Number of threads that wait for an event on a channel of their own, or are about to, and its maximum.
    waits: AtomicUsize,
    waits_max: usize,
    /// Number of abandoned calls that may still be granted a lock.
    late_locks: AtomicUsize,
    pub(crate) shared: SharedSlots,
    arena: SharedMemory,
    /// The channel and the part of the arena that asynchronous calls use.
    for_tasks: Mutex<Option<(Channel, SharedSlots)>>,
    wait_queue: WaitQueue,
}

/// Counts a channel that a waiting call uses; dropping it uncounts.
pub(crate) struct WaitingCount<'a>(&'a AtomicUsize);

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Notifies the wait queue that a channel is free; dropped after the channel.
struct NotifyOnDrop<'a>(&'a WaitQueue);

impl Drop for NotifyOnDrop<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.notify();
    }
}

/// A call on a channel that this thread holds.
pub(crate) struct Call<'a> {
    pub(crate) channel_slot: PoolGuard<'a, ChannelSlot>,
    /// Dropped before the notification that the channel is free.
    _waiting: Option<WaitingCount<'a>>,
    _notify: NotifyOnDrop<'a>,
    pub(crate) channels: &'a ChannelPool,
    /// The caller's deadline, which later steps may continue to use.
    time: &'a mut Deadline,
}

/// Returns this thread's number in the process, so that each thread returns to its former channel.
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
    /// Slots of the arena that belong to one channel.
    const OWN_SLOTS: u32 = 16;
    /// Time beyond its deadline that a call waits for the daemon's completion.
    pub(crate) const GRACE: Duration = Duration::from_millis(15);
    /// Channels of a client beyond those for its threads: for tasks, for calls while others wait, and for lock holders.
    pub(crate) const EXTRA_CHANNELS: usize = 3;

    /// Creates the pool. The last channel and half of the arena's shared part are for tasks. The two channels before it
    /// have no memory of their own.
    pub(crate) fn new(attachment: &Attachment) -> Self {
        let arena = attachment.arena().clone();
        let slots = (arena.len() / ddss_core::limits::ARENA_SLOT_BYTES) as u32;
        let mut channels: Vec<Channel> = std::iter::from_fn(|| attachment.take_channel()).collect();
        let for_tasks = channels.pop();
        let mut bare = || {
            let channel = if channels.len() > 1 { channels.pop() } else { None };
            TryLockPool::new(channel.map(|channel| ChannelSlot {
                channel,
                own: ArenaRun { first: 0, slots: 0 },
                next_id: 1,
                abandoned: Vec::new(),
            }))
        };
        let (while_others_wait, for_lock_holders) = (bare(), bare());
        let own = Self::OWN_SLOTS.min(slots / (2 * channels.len().max(1) as u32));
        let first = channels.len() as u32 * own;
        let waits_max = (channels.len() / 2).max(1);
        let middle = first + (slots - first) / 2;
        let channel_slots = channels.into_iter().enumerate().map(|(index, channel)| {
            let own = ArenaRun { first: index as u32 * own, slots: own };
            ChannelSlot { channel, own, next_id: 1, abandoned: Vec::new() }
        });
        let shared = SharedSlots::new(first, middle);
        let for_tasks = Mutex::new(for_tasks.map(|channel| (channel, SharedSlots::new(middle, slots))));
        let (channel_slots, waiting_count, wait_queue) =
            (TryLockPool::new(channel_slots), AtomicUsize::new(0), WaitQueue::default());
        Self {
            channel_slots,
            while_others_wait,
            for_lock_holders,
            waiting_count,
            waits: AtomicUsize::new(0),
            waits_max,
            late_locks: AtomicUsize::new(0),
            shared,
            arena,
            for_tasks,
            wait_queue,
        }
    }

    /// Hands the channel for tasks to its only user; `None` the second time.
    pub(crate) fn take_task_channel(&self) -> Option<(Channel, SharedSlots)> {
        self.for_tasks.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Permits a call to wait for an event on a channel of its own. `None` if half of the channels are used so.
    pub(crate) fn begin_wait(&self) -> Option<WaitingCount<'_>> {
        let more = |waits: usize| (waits < self.waits_max).then_some(waits + 1);
        self.waits.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(WaitingCount(&self.waits))
    }

    /// Takes the channel of this thread, or another free one; waits for one until the deadline.
    #[inline]
    pub(crate) fn call<'a>(&'a self, priority: Priority, time: &'a mut Deadline) -> Result<Call<'a>, NoCompletion> {
        let number = thread_number();
        if priority != Priority::Wait
            && self.wait_queue.is_empty(priority)
            && let Some(channel_slot) = self.channel_slots.try_acquire(number)
        {
            return Ok(Call {
                channel_slot,
                _waiting: None,
                _notify: NotifyOnDrop(&self.wait_queue),
                channels: self,
                time,
            });
        }
        self.wait_for_channel(number, priority, time)
    }

    #[cold]
    fn wait_for_channel<'a>(
        &'a self,
        number: usize,
        priority: Priority,
        time: &'a mut Deadline,
    ) -> Result<Call<'a>, NoCompletion> {
        let look = || self.claim(number, priority);
        let found = if self.wait_queue.is_empty(priority) { look() } else { None };
        let found = found.or_else(|| self.wait_queue.wait(priority, time.deadline(), look));
        let (channel_slot, waiting) = found.ok_or(NoCompletion::Busy(Limit::Channels))?;
        Ok(Call { channel_slot, _waiting: waiting, _notify: NotifyOnDrop(&self.wait_queue), channels: self, time })
    }

    /// Claims a free channel for a call of that priority.
    fn claim(
        &self,
        number: usize,
        priority: Priority,
    ) -> Option<(PoolGuard<'_, ChannelSlot>, Option<WaitingCount<'_>>)> {
        let channel_slot = self.channel_slots.try_acquire(number);
        let some_wait = || self.waiting_count.load(Ordering::Acquire) > 0;
        match priority {
            Priority::Wait => {
                let channel_slot = channel_slot?;
                self.waiting_count.fetch_add(1, Ordering::AcqRel);
                return Some((channel_slot, Some(WaitingCount(&self.waiting_count))));
            }
            Priority::Call => channel_slot.or_else(|| self.while_others_wait.try_acquire(0).filter(|_| some_wait())),
            Priority::Holder => channel_slot.or_else(|| self.for_lock_holders.try_acquire(0)),
        }
        .map(|channel_slot| (channel_slot, None))
    }

    /// Collects completions of calls whose callers gave up, on channels that no thread uses: a lock that was granted meanwhile is
    /// released. Returns true while such a lock may still come.
    pub(crate) fn collect_late_locks(&self) -> bool {
        let mut time = Deadline::of(Duration::ZERO);
        let pools = [&self.channel_slots, &self.while_others_wait, &self.for_lock_holders];
        for channel_slot in pools.into_iter().filter(|_| self.may_have_late_locks()).flat_map(TryLockPool::acquire_each)
        {
            let Some(channel_slot) = channel_slot else { continue };
            let (notify, time) = (NotifyOnDrop(&self.wait_queue), &mut time);
            Call { channel_slot, _waiting: None, _notify: notify, channels: self, time }.collect_abandoned();
        }
        self.may_have_late_locks()
    }

    /// Returns true if a lock may be granted to a caller who has given up.
    #[inline]
    pub(crate) fn may_have_late_locks(&self) -> bool {
        self.late_locks.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn arena(&self) -> &SharedMemory {
        &self.arena
    }
}

/// Returns the segment whose lock the operation requests.
fn locked_by(operation: &Operation) -> Option<SegmentId> {
    if let Operation::Lock { segment, .. } = operation { Some(*segment) } else { None }
}

impl Call<'_> {
    pub(crate) fn deadline(&mut self) -> Instant {
        self.time.deadline()
    }

    /// Allocates arena memory for this call.
    fn lease(&mut self, bytes: usize) -> Result<(ArenaLease, ArenaRange), NoCompletion> {
        self.collect_abandoned();
        let own = self.channel_slot.own;
        let own_is_free = self.channel_slot.abandoned.iter().all(|call| call.lease != ArenaLease::Own);
        if bytes <= own.bytes() && own_is_free {
            return Ok((ArenaLease::Own, own.range(bytes)));
        }
        let deadline = self.deadline();
        if bytes > own.bytes() {
            self.channels.shared.check(bytes).map_err(NoCompletion::NeverFits)?;
        }
        let run = self.channels.shared.take(bytes, deadline).ok_or(NoCompletion::Busy(Limit::Arena))?;
        Ok((ArenaLease::Shared(run), run.range(bytes)))
    }

    /// Runs a planned call, and takes and runs `meanwhile` between submitting and waiting. The decoder sees the arena before the
    /// memory is returned. An unsuccessful completion comes back as it is.
    #[inline(always)]
    pub(crate) fn execute<T>(
        mut self,
        plan: &CallPlan<'_>,
        meanwhile: &mut Option<impl FnOnce()>,
        decode: &mut impl Decoder<T>,
    ) -> Result<Result<T, Completion>, NoCompletion> {
        let bytes = plan.arena_bytes();
        let (lease, range) = if bytes == 0 { (ArenaLease::Nothing, ArenaRange::NOWHERE) } else { self.lease(bytes)? };
        let operation = plan.encode(&self.channels.arena, range);
        let left = self.time.remaining();
        if left.is_zero() {
            self.release(lease);
            return Err(NoCompletion::Late { harmless: true });
        }
        let Some(timeout_us) = timeout_us(left) else {
            self.release(lease);
            return Err(NoCompletion::TooLong(left));
        };
        let id = self.channel_slot.next_id;
        self.channel_slot.next_id += 1;
        let request = Request { timeout_us, ..Request::new(RequestId(id), operation) };
        if self.channel_slot.channel.submit(request.encode()).is_err() && !self.submit_late(&request) {
            self.release(lease);
            return Err(NoCompletion::Busy(Limit::Channels));
        }
        self.channel_slot.channel.ring_doorbell();
        if let Some(meanwhile) = meanwhile.take() {
            // If the closure panics, the daemon still executes this call and may write into its buffer.
            self.abandon(id, lease, &operation);
            if self.channel_slot.channel.is_on_service_core() {
                self.channel_slot.channel.yield_to_service();
            }
            meanwhile();
            self.take_abandoned(id);
        }
        // Matched by reference: a completion is copied only if it is an error.
        match &self.wait_for(id, plan.wait_class, plan.is_harmless) {
            Ok(completion) => {
                let ended = match completion.outcome {
                    Outcome::Done => Ok(Ok(decode(completion, &plan.reply(completion, &self.channels.arena, range)))),
                    Outcome::Failed(Failure::GoingDown) => Err(NoCompletion::ShuttingDown),
                    _ => Ok(Err(*completion)),
                };
                self.release(lease);
                ended
            }
            &Err(none) => {
                self.abandon(id, lease, &operation);
                Err(none)
            }
        }
    }

    /// Records a call for whose completion nobody waits.
    fn abandon(&mut self, id: u64, lease: ArenaLease, operation: &Operation) {
        let lock = locked_by(operation);
        self.channels.late_locks.fetch_add(lock.is_some().into(), Ordering::Relaxed);
        self.channel_slot.abandoned.push(AbandonedCall { id, lease, lock });
    }

    /// Removes an abandoned call.
    fn take_abandoned(&mut self, id: u64) -> Option<AbandonedCall> {
        let index = self.channel_slot.abandoned.iter().position(|call| call.id == id)?;
        let call = self.channel_slot.abandoned.swap_remove(index);
        self.channels.late_locks.fetch_sub(call.lock.is_some().into(), Ordering::Relaxed);
        Some(call)
    }

    /// Submits a request to a channel that was full. Calls that were abandoned may have ended since.
    #[cold]
    fn submit_late(&mut self, request: &Request) -> bool {
        self.collect_abandoned();
        self.channel_slot.channel.submit(request.encode()).is_ok()
    }

    fn wait_for(&mut self, id: u64, class: WaitClass, harmless: bool) -> Result<Completion, NoCompletion> {
        loop {
            let patience = self.deadline() + ChannelPool::GRACE;
            match self.channel_slot.channel.wait(class, patience) {
                WaitOutcome::Ready => {}
                WaitOutcome::TimedOut => return Err(NoCompletion::Late { harmless }),
                WaitOutcome::Gone => return Err(NoCompletion::Gone),
            }
            while let Some(entry) = self.channel_slot.channel.reap() {
                let completion = Completion::decode(&entry);
                if completion.request == RequestId(id) {
                    return Ok(completion);
                }
                self.complete_abandoned(&completion);
            }
        }
    }

    pub(crate) fn collect_abandoned(&mut self) {
        if self.channel_slot.abandoned.is_empty() {
            return;
        }
        while let Some(entry) = self.channel_slot.channel.reap() {
            self.complete_abandoned(&Completion::decode(&entry));
        }
    }

    /// Completes an abandoned call: its resources are free again.
    pub(crate) fn complete_abandoned(&mut self, completion: &Completion) {
        let id = completion.request.0;
        let Some(AbandonedCall { lease, lock, .. }) = self.take_abandoned(id) else { return };
        self.release(lease);
        if let (Some(segment), Outcome::Done) = (lock, completion.outcome) {
            let token = LockToken(u64::from_le_bytes(std::array::from_fn(|i| completion.data[i])));
            let operation = Operation::Unlock { segment, token };
            self.channel_slot.next_id += 1;
            let unlock = Request::new(RequestId(self.channel_slot.next_id), operation);
            // If there is no capacity for the release, the lease ends the lock.
            if self.channel_slot.channel.submit(unlock.encode()).is_ok() {
                self.channel_slot.channel.ring_doorbell();
                self.channel_slot.abandoned.push(AbandonedCall {
                    id: unlock.id.0,
                    lease: ArenaLease::Nothing,
                    lock: None,
                });
                self.channel_slot.next_id += 1;
            }
        }
    }

    pub(crate) fn release(&self, lease: ArenaLease) {
        if let ArenaLease::Shared(run) = lease {
            self.channels.shared.release(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::TestNode;
    use ddss_core::LockRequest;
    use ddss_core::limits::RING_SLOTS;
    use std::sync::Arc;

    #[test]
    fn refused_lock_looks_at_no_channel() {
        // If this broke, a thread that polls a lock would disturb the calls of all others, and start a thread each time.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.client());
        let segment = mine.segment("locked").allocate(Spec::new(64)).unwrap();
        let held = theirs.segment("locked").open().unwrap().lock().unwrap();
        let (session, mut time) = (mine.inner.last_session(), mine.time());
        let busy = session.channels.call(Priority::Holder, &mut time).unwrap();
        for _ in 0..100 {
            assert!(segment.try_lock().unwrap().is_none());
            assert!(!mine.keeper().unwrap().is_running());
        }
        drop((busy, held));
        segment.try_lock().unwrap().unwrap().unlock().unwrap();
    }

    #[test]
    fn client_is_detached_while_a_late_lock_is_awaited() {
        // If this broke, another client would find the lock and the place of one that was dropped taken.
        let node = TestNode::start();
        let ends_at_once = || {
            let client = node.client();
            let id = client.segment("locked").open().unwrap().id();
            let session = Arc::clone(&client.inner.last_session());
            let mut time = client.time();
            let mut call = session.channels.call(Priority::Call, &mut time).unwrap();
            let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
            let lock = Operation::Lock { segment: id, lock_request };
            call.abandon(u64::MAX, ArenaLease::Nothing, &lock);
            drop(call);
            client.release_late_locks();
            assert!(client.keeper().unwrap().is_running());
            let attached = Arc::downgrade(&session);
            drop((session, client));
            attached.strong_count() == 0
        };
        node.client().segment("locked").allocate(Spec::new(64)).unwrap();
        // The keeper has a session only for a moment.
        assert!((0..20).filter(|_| ends_at_once()).count() > 0);
    }

    #[test]
    fn channel_that_was_full_takes_calls_when_the_daemon_goes_on() {
        // If this broke, a thread whose calls were late for a while would be refused for ever.
        let node = TestNode::start();
        let client = node.client();
        let (session, mut time) = (client.inner.last_session(), client.time());
        let mut late = session.channels.call(Priority::Call, &mut time).unwrap();
        let slot = &mut *late.channel_slot;
        for id in 1.. {
            let request = Request { timeout_us: 1_000_000, ..Request::new(RequestId(id), Operation::Null) };
            if slot.channel.submit(request.encode()).is_err() {
                break;
            }
            slot.next_id = id + 1;
            slot.abandoned.push(AbandonedCall { id, lease: ArenaLease::Nothing, lock: None });
        }
        assert_eq!(slot.abandoned.len(), RING_SLOTS);
        slot.channel.ring_doorbell();
        let end = Instant::now() + Duration::from_secs(60);
        assert!(matches!(slot.channel.wait(WaitClass::Polling, end), WaitOutcome::Ready));
        drop(late);
        // The same channel, without arena memory.
        client.ping().unwrap();
    }
}
