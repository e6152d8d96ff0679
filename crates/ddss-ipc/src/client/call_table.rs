//! Calls that tasks have under way: whose turn it is with each, without a lock.
//!
//! # State
//!
//! ```text
//!           begin            submit                    end                    free
//!   (free) ──────► BEGUN ───────────────► WAITING ─────────────► DONE ───────────────────► (free)
//!                     │                   │  │  ▲ doze            ▲
//!                     │                   │  ▼  │                 │ end: somebody has to be woken
//!                     │                   │ DOZING ───────────────┘
//!                     │ submit, for        \  /
//!                     │ nobody              \/ abandon                        end, then free
//!                     └──────────────────► LATE ───────────────────────────────────────────► (free)
//! ```
//!
//! | what | who touches it |
//! | --- | --- |
//! | a place | taken and given back by its bit in a [`SlotBitmap`] |
//! | a state, with its generation | who began the call; who ends it, of whom there is one at a time; who looks after deadlines |
//! | the words: the request | who began it, until he submits it; then who sends it out |
//! | the words: the completion | who ends it, from then on until DONE; then who frees it |
//!
//! A few places can be set aside for calls that shall not wait for any of the others.
//!
//! A call ends once: the one who leads its state from WAITING or DOZING to LATE, or finds it DONE, settles with that who
//! frees it. A generation is never used again, so that an answer to an earlier call of the same place is *stale*, and an
//! owner that looks after his call was given up by others finds it *over*.

use crate::shm::slot_bitmap::SlotBitmap;
use crate::sync::{AtomicU64, Ordering, order};
use ddss_core::Entry;

const FREE: u64 = 0;
const WAITING: u64 = 1;
const DOZING: u64 = 2;
const DONE: u64 = 3;
const LATE: u64 = 4;

const PHASE_BITS: u32 = 3;
const INDEX_BITS: u32 = 8;

/// Which call: a place, and which life of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId(u64);

impl CallId {
    /// The number as it travels with the request.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
    /// Takes it back. Whether there is such a call, [`CallTable::end`] says.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// Its place.
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

/// What its owner finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStatus {
    /// It is under way.
    Waiting,
    /// It has ended with this, and is the finder's to free.
    Done(Entry),
    /// It was given up.
    Over,
}

/// Who is to hear of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// Its owner, who looks.
    Told,
    /// Its owner, who dozes: wake him.
    Dozes,
    /// Nobody: it is to be freed.
    Late,
    /// There is no such call.
    Stale,
}

/// Two lines, since processors fetch lines in pairs.
#[repr(align(128))]
struct CallSlot {
    state: AtomicU64,
    words: [AtomicU64; 8],
}

/// Calls under way, each in a place of its own.
pub struct CallTable {
    places: SlotBitmap,
    set_aside: SlotBitmap,
    cells: Box<[CallSlot]>,
}

impl std::fmt::Debug for CallTable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Calls").field("places", &self.cells.len()).finish_non_exhaustive()
    }
}

impl CallTable {
    /// Room for so many, up to 256.
    pub fn new(count: usize) -> Self {
        Self::with_set_aside(count, 0)
    }

    /// The same, where the last `set_aside` places are for [`begin_urgent`](Self::begin_urgent) alone.
    pub fn with_set_aside(count: usize, set_aside: usize) -> Self {
        assert!(count <= 1 << INDEX_BITS, "{count} calls are more than can be told apart");
        assert!(set_aside <= count, "{set_aside} of {count} places cannot be set aside");
        let word = || AtomicU64::new(0);
        let cell = || CallSlot { state: word(), words: std::array::from_fn(|_| word()) };
        let (common, count) = ((count - set_aside) as u32, count as u32);
        let (places, set_aside) = (SlotBitmap::new(0, common), SlotBitmap::new(common, count));
        Self { places, set_aside, cells: (0..count).map(|_| cell()).collect() }
    }

    fn cell(&self, id: CallId) -> &CallSlot {
        &self.cells[id.index()]
    }

    /// Takes a place, if one is free. Nobody else knows of it yet.
    #[inline]
    pub fn begin(&self) -> Option<CallId> {
        Some(self.begin_at(self.places.take(1)?))
    }

    /// The same, also in a place that is set aside.
    pub fn begin_urgent(&self) -> Option<CallId> {
        Some(self.begin_at(self.places.take(1).or_else(|| self.set_aside.take(1))?))
    }

    #[inline]
    fn begin_at(&self, index: u32) -> CallId {
        // Who gave it back had done with it: the places' own orderings see to that.
        let cell = &self.cells[index as usize];
        let generation = (cell.state.load(Ordering::Relaxed) >> PHASE_BITS) + 1;
        cell.state.store(generation << PHASE_BITS | FREE, Ordering::Relaxed);
        CallId(generation << INDEX_BITS | u64::from(index))
    }

    /// Says what is asked. Whoever is told of the call from now on finds that, and all that was written before. `awaited` is
    /// whether somebody is going to look for its end.
    #[inline]
    pub fn submit(&self, id: CallId, request: &Entry, awaited: bool) {
        let cell = self.cell(id);
        for (word, value) in cell.words.iter().zip(request) {
            word.store(*value, Ordering::Relaxed);
        }
        // Pairs with the Acquire in `under_way`; who sends it out learns of it at the desk.
        cell.state.swap(id.state(if awaited { WAITING } else { LATE }), order::end_call());
    }

    /// What was asked by the call that is in a place, for the one who sends it out.
    #[inline]
    pub fn request(&self, index: usize) -> Entry {
        std::array::from_fn(|word| self.cells[index].words[word].load(Ordering::Relaxed))
    }

    /// The service has answered. Of those who say so there is one at a time.
    #[inline]
    pub fn end(&self, id: CallId, completion: &Entry) -> Notify {
        let Some(cell) = self.cells.get(id.index()) else { return Notify::Stale };
        let mut state = cell.state.load(Ordering::Relaxed);
        if state == id.state(WAITING) || state == id.state(DOZING) {
            for (word, value) in cell.words.iter().zip(completion) {
                word.store(*value, Ordering::Relaxed);
            }
        }
        while state == id.state(WAITING) || state == id.state(DOZING) {
            // Pairs with the Acquire in `look` and `abandon`, and with the Release in `doze`.
            match cell.state.compare_exchange(state, id.state(DONE), order::end_call(), Ordering::Relaxed) {
                Ok(_) => return if state == id.state(DOZING) { Notify::Dozes } else { Notify::Told },
                Err(now) => state = now,
            }
        }
        if state == id.state(LATE) { Notify::Late } else { Notify::Stale }
    }

    fn found(&self, id: CallId, state: u64) -> CallStatus {
        if state == id.state(DONE) {
            CallStatus::Done(self.request(id.index()))
        } else if state == id.state(WAITING) || state == id.state(DOZING) {
            CallStatus::Waiting
        } else {
            CallStatus::Over
        }
    }

    /// Its owner looks.
    #[inline]
    pub fn look(&self, id: CallId) -> CallStatus {
        // Pairs with the Release in `end`.
        self.found(id, self.cell(id).state.load(order::see_call()))
    }

    /// Its owner has left word how he is to be woken, and looks once more. [`CallStatus::Waiting`]: he is going to be.
    pub fn doze(&self, id: CallId) -> CallStatus {
        let cell = self.cell(id);
        let (waiting, dozing) = (id.state(WAITING), id.state(DOZING));
        // Pairs with the Acquire in `end`: the word that he left is there.
        match cell.state.compare_exchange(waiting, dozing, order::doze(), order::see_call()) {
            Ok(_) => CallStatus::Waiting,
            Err(state) => self.found(id, state),
        }
    }

    /// Nobody waits for it any more. [`CallStatus::Waiting`]: it was under way, and is freed by who ends it.
    pub fn abandon(&self, id: CallId) -> CallStatus {
        let cell = self.cell(id);
        let mut state = cell.state.load(order::see_call());
        while state == id.state(WAITING) || state == id.state(DOZING) {
            match cell.state.compare_exchange(state, id.state(LATE), order::see_call(), order::see_call()) {
                Ok(_) => return CallStatus::Waiting,
                Err(now) => state = now,
            }
        }
        self.found(id, state)
    }

    /// Returns true if it is under way and its owner has given it up.
    pub fn is_late(&self, id: CallId) -> bool {
        self.cell(id).state.load(order::see_call()) == id.state(LATE)
    }

    /// Gives a place back.
    #[inline]
    pub fn free(&self, id: CallId) {
        self.cell(id).state.store(id.state(FREE), Ordering::Relaxed);
        let index = id.index() as u32;
        if index < self.places.end() { self.places.give(index, 1) } else { self.set_aside.give(index, 1) }
    }

    /// The calls that somebody waits for, and those that nobody does (`false`).
    pub fn under_way(&self) -> impl Iterator<Item = (CallId, bool)> + '_ {
        self.cells.iter().enumerate().filter_map(|(index, cell)| {
            // Pairs with the Release in `submit`: what its owner wrote down of it is there.
            let state = cell.state.load(order::see_call());
            let (generation, phase) = (state >> PHASE_BITS, state & ((1 << PHASE_BITS) - 1));
            let id = CallId(generation << INDEX_BITS | index as u64);
            matches!(phase, WAITING | DOZING | LATE).then_some((id, phase != LATE))
        })
    }

    /// How many places are in use.
    pub fn count(&self) -> u32 {
        self.places.in_use() + self.set_aside.in_use()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_one_life_of_a_place() {
        // If this broke, a late answer would be taken for that of the next call, with its bytes.
        let calls = CallTable::new(1);
        let first = calls.begin().unwrap();
        assert_eq!((calls.begin(), calls.count()), (None, 1));
        calls.submit(first, &[1; 8], true);
        assert_eq!((calls.request(0), calls.look(first)), ([1; 8], CallStatus::Waiting));
        assert_eq!(calls.under_way().collect::<Vec<_>>(), [(first, true)]);
        assert_eq!(calls.abandon(first), CallStatus::Waiting);
        assert_eq!((calls.look(first), calls.under_way().next()), (CallStatus::Over, Some((first, false))));
        assert_eq!(calls.end(first, &[2; 8]), Notify::Late);
        calls.free(first);
        let second = calls.begin().unwrap();
        assert_ne!(first, second);
        calls.submit(second, &[3; 8], true);
        assert_eq!((calls.end(first, &[4; 8]), calls.look(first)), (Notify::Stale, CallStatus::Over));
        assert_eq!(calls.doze(second), CallStatus::Waiting);
        assert_eq!((calls.doze(second), calls.end(second, &[5; 8])), (CallStatus::Waiting, Notify::Dozes));
        assert_eq!((calls.end(second, &[6; 8]), calls.abandon(second)), (Notify::Stale, CallStatus::Done([5; 8])));
        assert_eq!(calls.end(CallId::from_bits(77), &[6; 8]), Notify::Stale);
        calls.free(second);
        assert_eq!((calls.under_way().count(), calls.count()), (0, 0));
    }

    #[test]
    fn places_that_are_set_aside_are_for_urgent_calls_alone() {
        // If this broke, a release would wait for room that others hold.
        let calls = CallTable::with_set_aside(3, 1);
        let common = [calls.begin().unwrap(), calls.begin().unwrap()];
        assert_eq!(calls.begin(), None);
        let urgent = calls.begin_urgent().unwrap();
        assert_eq!((calls.begin_urgent(), calls.count()), (None, 3));
        calls.submit(urgent, &[1; 8], false);
        assert!(calls.is_late(urgent));
        calls.free(urgent);
        assert!(!calls.is_late(urgent));
        assert_eq!((calls.begin(), calls.begin_urgent().is_some()), (None, true));
        calls.free(common[0]);
        assert!(calls.begin().is_some());
    }
}
