//! The lanes of a client, and one blocking call on one of them.

use crate::arena::{Run, SharedSlots};
use ddss_core::{Completion, Operation, Request, RequestId};
use ddss_ipc::{Attachment, Lane, SharedMemory, WaitClass, Waited};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How a call on a lane ended that brought no completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCompletion {
    /// The deadline passed; the daemon may still be at it.
    Late,
    /// The daemon is gone.
    Gone,
    /// Nothing went out: everything is in use.
    Busy,
}

/// A run of the arena that a call uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Nothing,
    /// The lane's own.
    Own,
    Shared(Run),
}

/// A lane with its own run of the arena and what is still under way on it from calls that stopped waiting.
pub(crate) struct Seat {
    lane: Lane,
    own: Run,
    next: u64,
    late: Vec<(u64, Held)>,
}

/// All lanes of one client.
pub(crate) struct Lanes {
    seats: Box<[Mutex<Seat>]>,
    shared: SharedSlots,
    arena: SharedMemory,
}

/// Arena memory for one call, until the call ends.
pub(crate) struct Buffer {
    held: Held,
    run: Run,
}

impl Buffer {
    pub(crate) fn range(&self, bytes: usize) -> ddss_core::ArenaRange {
        self.run.range(bytes)
    }
}

/// A call on a lane that this thread holds.
pub(crate) struct Call<'a> {
    seat: MutexGuard<'a, Seat>,
    lanes: &'a Lanes,
    deadline: Instant,
    /// What is left until then, as long as nothing was waited for.
    left: Option<Duration>,
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

impl Lanes {
    /// Slots of the arena that belong to one lane.
    const OWN_SLOTS: u32 = 16;
    /// How much longer than its deadline a call waits for the daemon to say how it ended.
    const GRACE: Duration = Duration::from_millis(20);

    pub(crate) fn new(attachment: &Attachment) -> Self {
        let arena = attachment.arena().clone();
        let slots = (arena.len() / ddss_core::limits::ARENA_SLOT_BYTES) as u32;
        let mut lanes: Vec<Lane> = std::iter::from_fn(|| attachment.take_lane()).collect();
        let own = Self::OWN_SLOTS.min(slots / (2 * lanes.len().max(1) as u32));
        let count = lanes.len() as u32;
        let seats = lanes.drain(..).enumerate().map(|(index, lane)| {
            let own = Run { first: index as u32 * own, slots: own };
            Mutex::new(Seat { lane, own, next: 1, late: Vec::new() })
        });
        Self { seats: seats.collect(), shared: SharedSlots::new(count * own, slots), arena }
    }

    /// Takes the lane of this thread, or another one that is free, or waits for its own.
    pub(crate) fn call(&self, timeout: Duration) -> Call<'_> {
        let deadline = Instant::now() + timeout;
        let count = self.seats.len();
        let preferred = thread_number() % count;
        let free = (0..count).find_map(|step| match self.seats[(preferred + step) % count].try_lock() {
            Ok(seat) => Some(seat),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        let left = free.is_some().then_some(timeout);
        let seat = free.unwrap_or_else(|| self.seats[preferred].lock().unwrap_or_else(PoisonError::into_inner));
        Call { seat, lanes: self, deadline, left }
    }

    pub(crate) fn arena(&self) -> &SharedMemory {
        &self.arena
    }
}

impl Call<'_> {
    /// Arena memory for this call.
    pub(crate) fn buffer(&mut self, bytes: usize) -> Result<Buffer, NoCompletion> {
        self.collect_late();
        let own = self.seat.own;
        let own_is_free = self.seat.late.iter().all(|&(_, held)| held != Held::Own);
        if bytes <= own.bytes() && own_is_free {
            return Ok(Buffer { held: Held::Own, run: own });
        }
        self.left = None;
        let run = self.lanes.shared.take(bytes, self.deadline).ok_or(NoCompletion::Busy)?;
        Ok(Buffer { held: Held::Shared(run), run })
    }

    /// Submits, waits, and takes the completion; `read` looks at the arena before the buffer is given up.
    pub(crate) fn run<T>(
        mut self,
        operation: Operation,
        buffer: Option<Buffer>,
        class: WaitClass,
        read: impl FnOnce(&Completion, &SharedMemory) -> T,
    ) -> Result<T, NoCompletion> {
        let held = buffer.map_or(Held::Nothing, |buffer| buffer.held);
        let id = self.seat.next;
        self.seat.next += 1;
        let left = self.left.unwrap_or_else(|| self.deadline.saturating_duration_since(Instant::now()));
        let timeout_us = u32::try_from(left.as_micros()).unwrap_or(u32::MAX).max(1);
        let request = Request { timeout_us, ..Request::new(RequestId(id), operation) };
        if self.seat.lane.submit(request.encode()).is_err() {
            self.release(held);
            return Err(NoCompletion::Busy);
        }
        self.seat.lane.ring();
        match self.wait_for(id, class) {
            Ok(completion) => {
                let result = read(&completion, &self.lanes.arena);
                self.release(held);
                Ok(result)
            }
            Err(none) => {
                self.seat.late.push((id, held));
                Err(none)
            }
        }
    }

    fn wait_for(&mut self, id: u64, class: WaitClass) -> Result<Completion, NoCompletion> {
        let patience = self.deadline + Lanes::GRACE;
        loop {
            while let Some(entry) = self.seat.lane.reap() {
                let completion = Completion::decode(&entry);
                if completion.request == RequestId(id) {
                    return Ok(completion);
                }
                self.ended_late(completion.request.0);
            }
            match self.seat.lane.wait(class, patience) {
                Waited::Ready => {}
                Waited::TimedOut => return Err(NoCompletion::Late),
                Waited::Gone => return Err(NoCompletion::Gone),
            }
        }
    }

    fn collect_late(&mut self) {
        if self.seat.late.is_empty() {
            return;
        }
        while let Some(entry) = self.seat.lane.reap() {
            self.ended_late(Completion::decode(&entry).request.0);
        }
    }

    /// A call that stopped waiting has ended now: what it used is free.
    fn ended_late(&mut self, id: u64) {
        if let Some(index) = self.seat.late.iter().position(|&(late, _)| late == id) {
            let (_, held) = self.seat.late.swap_remove(index);
            self.release(held);
        }
    }

    fn release(&self, held: Held) {
        if let Held::Shared(run) = held {
            self.lanes.shared.give(run);
        }
    }
}
