//! Asynchronous calls in flight: ownership of each call without a lock.
//!
//! # State
//!
//! ```text
//!           begin            submit                    complete               free
//!   (free) ──────► BEGUN ───────────────► WAITING ─────────────► DONE ───────────────────► (free)
//!                     │                   │  │  ▲ park            ▲
//!                     │                   │  ▼  │                 │ complete: the caller must be woken
//!                     │                   │ PARKED ───────────────┘
//!                     │ submit, not        \  /
//!                     │ awaited             \/ abandon                        complete, then free
//!                     └──────────────────► ABANDONED ──────────────────────────────────────► (free)
//! ```
//!
//! | state | accessed by |
//! | --- | --- |
//! | a slot | allocated and freed by its bit in a [`SlotBitmap`] |
//! | a call's state, with its generation | the caller; the single completing thread; the thread that checks deadlines |
//! | the words: the request | the caller until it submits; then the thread that sends the request |
//! | the words: the completion | the completing thread until DONE; then the thread that frees the call |
//!
//! Some slots can be reserved for calls that must not wait for any other call.
//!
//! A call ends once. The thread that moves it from WAITING or PARKED to ABANDONED, or that finds it DONE, decides which
//! thread frees it. Generations are never reused. A completion of an earlier call in the same slot is *stale*. A caller
//! whose call was abandoned by another thread sees [`CallStatus::Abandoned`].

use crossbeam_utils::CachePadded;

use crate::shm::slot_bitmap::SlotBitmap;
use crate::sync::{AtomicU64, Ordering, order};
use ddss_core::Entry;

const FREE: u64 = 0;
const WAITING: u64 = 1;
const PARKED: u64 = 2;
const DONE: u64 = 3;
const ABANDONED: u64 = 4;

const PHASE_BITS: u32 = 3;
const INDEX_BITS: u32 = 8;

/// Identifier of a call: slot index and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId(u64);

impl CallId {
    /// Returns the number that travels with the request.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
    /// Restores an id from its number. [`CallTable::complete`] checks whether the call exists.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// Returns the slot index.
    pub const fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
    const fn generation(self) -> u64 {
        self.0 >> INDEX_BITS
    }
    const fn state(self, phase: u64) -> u64 {
        self.generation() << PHASE_BITS | phase
    }
}

/// State of a call as its caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStatus {
    /// The call is in flight.
    Waiting,
    /// The call has completed with this entry. The caller frees it.
    Done(Entry),
    /// The call was abandoned.
    Abandoned,
}

/// Action that the completing thread has to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// None: the caller polls.
    Polling,
    /// Wake the caller, which is parked.
    Parked,
    /// Free the call: its caller has abandoned it.
    Abandoned,
    /// None: the call does not exist.
    Stale,
}

struct CallSlot {
    state: AtomicU64,
    words: [AtomicU64; 8],
}

/// Table of calls in flight, one slot each.
pub struct CallTable {
    slots: SlotBitmap,
    reserved: SlotBitmap,
    cells: Box<[CachePadded<CallSlot>]>,
}

impl std::fmt::Debug for CallTable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CallTable").field("slots", &self.cells.len()).finish_non_exhaustive()
    }
}

impl CallTable {
    /// Creates a table of `count` slots, at most 256.
    pub fn new(count: usize) -> Self {
        Self::with_reserved(count, 0)
    }

    /// Creates a table whose last `reserved` slots are only for [`begin_urgent`](Self::begin_urgent).
    pub fn with_reserved(count: usize, reserved: usize) -> Self {
        assert!(count <= 1 << INDEX_BITS, "{count} calls exceed the index bits");
        assert!(reserved <= count, "cannot reserve {reserved} of {count} slots");
        let word = || AtomicU64::new(0);
        let cell = || CachePadded::new(CallSlot { state: word(), words: std::array::from_fn(|_| word()) });
        let (common, count) = ((count - reserved) as u32, count as u32);
        let (slots, reserved) = (SlotBitmap::new(0, common), SlotBitmap::new(common, count));
        Self { slots, reserved, cells: (0..count).map(|_| cell()).collect() }
    }

    fn cell(&self, id: CallId) -> &CallSlot {
        &self.cells[id.index()]
    }

    /// Allocates a slot, if one is free. No other thread knows of the call yet.
    #[inline]
    pub fn begin(&self) -> Option<CallId> {
        Some(self.begin_at(self.slots.take(1)?))
    }

    /// Allocates a slot, a reserved one if no other is free.
    pub fn begin_urgent(&self) -> Option<CallId> {
        Some(self.begin_at(self.slots.take(1).or_else(|| self.reserved.take(1))?))
    }

    #[inline]
    fn begin_at(&self, index: u32) -> CallId {
        // The previous owner is done with the slot: the orderings of the bitmap ensure it.
        let cell = &self.cells[index as usize];
        let generation = (cell.state.load(Ordering::Relaxed) >> PHASE_BITS) + 1;
        cell.state.store(generation << PHASE_BITS | FREE, Ordering::Relaxed);
        CallId(generation << INDEX_BITS | u64::from(index))
    }

    /// Publishes the request. A thread that learns of the call afterwards sees the request and all earlier writes.
    /// `awaited` states whether the caller will wait for the completion.
    #[inline]
    pub fn submit(&self, id: CallId, request: &Entry, awaited: bool) {
        let cell = self.cell(id);
        for (word, value) in cell.words.iter().zip(request) {
            word.store(*value, Ordering::Relaxed);
        }
        // Pairs with the Acquire in `calls_in_flight`. The sending thread learns of the call through the combiner.
        cell.state.swap(id.state(if awaited { WAITING } else { ABANDONED }), order::call_transition());
    }

    /// Returns the request of the call in a slot, for the thread that sends it.
    #[inline]
    pub fn request(&self, index: usize) -> Entry {
        std::array::from_fn(|word| self.cells[index].words[word].load(Ordering::Relaxed))
    }

    /// Completes a call. Only one thread at a time may call this.
    #[inline]
    pub fn complete(&self, id: CallId, completion: &Entry) -> Notify {
        let Some(cell) = self.cells.get(id.index()) else { return Notify::Stale };
        let mut state = cell.state.load(Ordering::Relaxed);
        if state == id.state(WAITING) || state == id.state(PARKED) {
            for (word, value) in cell.words.iter().zip(completion) {
                word.store(*value, Ordering::Relaxed);
            }
        }
        while state == id.state(WAITING) || state == id.state(PARKED) {
            // Pairs with the Acquire in `poll` and `abandon`, and with the Release in `park`.
            match cell.state.compare_exchange(state, id.state(DONE), order::call_transition(), Ordering::Relaxed) {
                Ok(_) => return if state == id.state(PARKED) { Notify::Parked } else { Notify::Polling },
                Err(now) => state = now,
            }
        }
        if state == id.state(ABANDONED) { Notify::Abandoned } else { Notify::Stale }
    }

    fn status_of(&self, id: CallId, state: u64) -> CallStatus {
        if state == id.state(DONE) {
            CallStatus::Done(self.request(id.index()))
        } else if state == id.state(WAITING) || state == id.state(PARKED) {
            CallStatus::Waiting
        } else {
            CallStatus::Abandoned
        }
    }

    /// Returns the state of a call to its caller.
    #[inline]
    pub fn poll(&self, id: CallId) -> CallStatus {
        // Pairs with the Release in `complete`.
        self.status_of(id, self.cell(id).state.load(order::call_observe()))
    }

    /// Parks the caller, which has stored how to wake it, and checks the state once more. [`CallStatus::Waiting`] means
    /// that the caller will be woken.
    pub fn park(&self, id: CallId) -> CallStatus {
        let cell = self.cell(id);
        let (waiting, parked) = (id.state(WAITING), id.state(PARKED));
        // Pairs with the Acquire in `complete`, which then sees how to wake the caller.
        match cell.state.compare_exchange(waiting, parked, order::call_park(), order::call_observe()) {
            Ok(_) => CallStatus::Waiting,
            Err(state) => self.status_of(id, state),
        }
    }

    /// Abandons a call. [`CallStatus::Waiting`] means that it was in flight; the completing thread then frees it.
    pub fn abandon(&self, id: CallId) -> CallStatus {
        let cell = self.cell(id);
        let mut state = cell.state.load(order::call_observe());
        while state == id.state(WAITING) || state == id.state(PARKED) {
            match cell.state.compare_exchange(state, id.state(ABANDONED), order::call_observe(), order::call_observe())
            {
                Ok(_) => return CallStatus::Waiting,
                Err(now) => state = now,
            }
        }
        self.status_of(id, state)
    }

    /// Returns true if the call is in flight and abandoned.
    pub fn is_abandoned(&self, id: CallId) -> bool {
        self.cell(id).state.load(order::call_observe()) == id.state(ABANDONED)
    }

    /// Frees a slot.
    #[inline]
    pub fn free(&self, id: CallId) {
        self.cell(id).state.store(id.state(FREE), Ordering::Relaxed);
        let index = id.index() as u32;
        if index < self.slots.end() { self.slots.give(index, 1) } else { self.reserved.give(index, 1) }
    }

    /// Iterates over calls in flight. The flag is false for abandoned ones.
    pub fn calls_in_flight(&self) -> impl Iterator<Item = (CallId, bool)> + '_ {
        self.cells.iter().enumerate().filter_map(|(index, cell)| {
            // Pairs with the Release in `submit`: the caller's record of the call is visible.
            let state = cell.state.load(order::call_observe());
            let (generation, phase) = (state >> PHASE_BITS, state & ((1 << PHASE_BITS) - 1));
            let id = CallId(generation << INDEX_BITS | index as u64);
            matches!(phase, WAITING | PARKED | ABANDONED).then_some((id, phase != ABANDONED))
        })
    }

    /// Returns the number of slots in use.
    pub fn count(&self) -> u32 {
        self.slots.in_use() + self.reserved.in_use()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn completion_matches_only_its_own_generation() {
        // If this failed, a late completion would be taken for that of the next call, with its bytes.
        let calls = CallTable::new(1);
        let first = calls.begin().unwrap();
        assert_eq!((calls.begin(), calls.count()), (None, 1));
        calls.submit(first, &[1; 8], true);
        assert_eq!((calls.request(0), calls.poll(first)), ([1; 8], CallStatus::Waiting));
        assert_eq!(calls.calls_in_flight().collect::<Vec<_>>(), [(first, true)]);
        assert_eq!(calls.abandon(first), CallStatus::Waiting);
        assert_eq!((calls.poll(first), calls.calls_in_flight().next()), (CallStatus::Abandoned, Some((first, false))));
        assert_eq!(calls.complete(first, &[2; 8]), Notify::Abandoned);
        calls.free(first);
        let second = calls.begin().unwrap();
        assert_ne!(first, second);
        calls.submit(second, &[3; 8], true);
        assert_eq!((calls.complete(first, &[4; 8]), calls.poll(first)), (Notify::Stale, CallStatus::Abandoned));
        assert_eq!(calls.park(second), CallStatus::Waiting);
        assert_eq!((calls.park(second), calls.complete(second, &[5; 8])), (CallStatus::Waiting, Notify::Parked));
        assert_eq!((calls.complete(second, &[6; 8]), calls.abandon(second)), (Notify::Stale, CallStatus::Done([5; 8])));
        assert_eq!(calls.complete(CallId::from_bits(77), &[6; 8]), Notify::Stale);
        calls.free(second);
        assert_eq!((calls.calls_in_flight().count(), calls.count()), (0, 0));
    }

    #[test]
    fn reserved_slots_serve_only_urgent_calls() {
        // If this failed, a release would wait for slots that other calls occupy.
        let calls = CallTable::with_reserved(3, 1);
        let common = [calls.begin().unwrap(), calls.begin().unwrap()];
        assert_eq!(calls.begin(), None);
        let urgent = calls.begin_urgent().unwrap();
        assert_eq!((calls.begin_urgent(), calls.count()), (None, 3));
        calls.submit(urgent, &[1; 8], false);
        assert!(calls.is_abandoned(urgent));
        calls.free(urgent);
        assert!(!calls.is_abandoned(urgent));
        assert_eq!((calls.begin(), calls.begin_urgent().is_some()), (None, true));
        calls.free(common[0]);
        assert!(calls.begin().is_some());
    }
}
