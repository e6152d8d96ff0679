//! A lane's ring: slots through which requests go out and completions come back, in the same line.
//!
//! # State
//!
//! ```text
//!           63            32 31             1  0
//!          +----------------+----------------+---+
//!  word 0  | the caller's   |    position    | k |   written last (Release), read first (Acquire)
//!          +----------------+----------------+---+   k: 0 request, 1 completion; the two are the sequence
//!  words 1..8: the caller's                          written and read between the two
//! ```
//!
//! | what | who writes | who reads |
//! | --- | --- | --- |
//! | a slot | the client its request, then the service a completion, then the client .. | the other one |
//! | how many requests were submitted | the client, in its own memory | nobody else |
//! | how many requests were taken, completions published | the service, in its own memory | nobody else |
//! | how many completions were reaped | the client, in its own memory | nobody else |
//!
//! No index is shared. Number `p` (an endless count that wraps at 2^31) lives in slot `p % RING_SLOTS` and is published
//! under the position `p + 1`, so zeroed memory holds nothing. A reader looks only for the one sequence that it
//! expects next: anything else in the slot, be it old, torn from the future or a lie, is "nothing yet".
//!
//! Completion `p` (the one that is published as number `p`, whichever request it answers) takes the slot of request
//! `p`. With one call under way that is the line which the service has just read, so that three transfers between the
//! cores make a round trip and not four (measured: 230 against 310 nanoseconds, raw ping-pong 205).
//!
//! # Why a slot is free for who writes it next
//!
//! *Completion `p` over request `p`:* each completion stands for a request that was taken, and requests are taken in
//! order; so when number `p` is published, request `p` has been copied out, by the same thread.
//!
//! *Request `p` over completion `p - RING_SLOTS`:* the client keeps `submitted - reaped <= RING_SLOTS`, so before it
//! submits `p` it has copied completion `p - RING_SLOTS` out.
//!
//! In between there is one Release and one Acquire on word 0 in each direction. The service takes no more than
//! `RING_SLOTS` requests beyond those it answered, counted in its own memory. A client that lies about its count
//! overwrites its own requests and loses its own completions.
//!
//! # Safety
//!
//! - *The other process writes a slot while we read it.* The line is read once into a local copy, and only the copy is
//!   used. A lie may mix two requests; it is still one `Entry`, which its reader validates.
//! - *The mapping goes away.* A [`MappedRing`] holds the mapping; the memory behind it is sealed against shrinking.
//! - *Alignment and bounds* are asserted once, where [`MappedRing`] is made (`SharedMemory::ring_at`).

use ddss_core::Entry;
use ddss_core::limits::RING_SLOTS;

use crate::sync::{AtomicU64, Ordering, order};

/// The part of word 0 that belongs to the ring.
pub(crate) const SEQUENCE_MASK: u64 = 0xffff_ffff;

/// What a sequence stands for: its lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    /// From the client to the service.
    Request = 0,
    /// From the service to the client.
    Completion = 1,
}

/// The sequence under which the entry that follows `count` others is published.
#[inline(always)]
fn sequence_after(count: u32, kind: Kind) -> u32 {
    count.wrapping_add(1) << 1 | kind as u32
}

/// The slot (as an endless count) of an entry published under that sequence.
#[inline(always)]
pub(crate) fn slot_of(sequence: u32) -> u32 {
    (sequence >> 1).wrapping_sub(1)
}

/// One cache line of a ring.
#[repr(C, align(64))]
pub(crate) struct Slot {
    words: [AtomicU64; 8],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == ddss_core::limits::LINE_BYTES);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == size_of::<Entry>());

impl Slot {
    /// A slot that holds nothing.
    #[cfg(any(loom, test))]
    pub(crate) fn empty() -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    #[inline(always)]
    fn publish(&self, sequence: u32, entry: &Entry) {
        for (word, value) in self.words.iter().zip(entry).skip(1) {
            word.store(*value, Ordering::Relaxed);
        }
        let first = (entry[0] & !SEQUENCE_MASK) | u64::from(sequence);
        // Pairs with the Acquire in `take` and `sequence`.
        self.words[0].store(first, order::publish());
    }

    #[inline(always)]
    fn sequence(&self) -> u32 {
        // Pairs with the Release in `publish`.
        self.words[0].load(order::take()) as u32
    }

    #[inline(always)]
    fn take(&self, sequence: u32) -> Option<Entry> {
        // Pairs with the Release in `publish`.
        let first = self.words[0].load(order::take());
        (first as u32 == sequence).then(|| self.copy())
    }

    #[cfg(loom)]
    fn copy(&self) -> Entry {
        std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed))
    }

    /// Copies the line in wide steps: eight single words would be stored one by one, and whoever then moves the entry
    /// would wait for each of these stores to reach the cache (measured: a third of what the service spends on a call).
    #[cfg(not(loom))]
    #[inline(always)]
    fn copy(&self) -> Entry {
        let line = self.words.as_ptr().cast::<Line>();
        // SAFETY: one line, aligned, readable as long as `self` is. An honest producer does not write the slot before
        // we are done (see the module's page); what a liar writes meanwhile is read once, here, and mixes at the most
        // two of its own requests.
        let line = unsafe { line.read_volatile() };
        // SAFETY: both are 64 bytes of which any value is a value.
        unsafe { std::mem::transmute::<Line, Entry>(line) }
    }
}

#[cfg(all(not(loom), target_arch = "x86_64"))]
type Line = [std::arch::x86_64::__m128i; 4];
#[cfg(all(not(loom), not(target_arch = "x86_64")))]
type Line = Entry;

/// Where the slots of a ring are: in a mapping, or in a model.
pub(crate) trait Slots {
    /// The slot of an endless position.
    fn slot(&self, position: u32) -> &Slot;
}

/// Publishes entries of one kind. The caller knows that the next slot is free (see the module's page).
pub(crate) struct Producer<S> {
    slots: S,
    kind: Kind,
    count: u32,
}

impl<S: Slots> Producer<S> {
    /// Starts after that many entries: none in a fresh ring.
    pub(crate) fn new(slots: S, kind: Kind, count: u32) -> Self {
        Self { slots, kind, count }
    }

    /// Fills the next slot.
    #[inline(always)]
    pub(crate) fn publish(&mut self, entry: &Entry) {
        self.slots.slot(self.count).publish(sequence_after(self.count, self.kind), entry);
        self.count = self.count.wrapping_add(1);
    }

    /// How many were published: the position of the next one.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The sequence that was published last.
    #[inline(always)]
    pub(crate) fn published(&self) -> u32 {
        self.count << 1 | self.kind as u32
    }

    /// Where the slots are.
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }
}

/// Takes entries of one kind.
pub(crate) struct Consumer<S> {
    slots: S,
    kind: Kind,
    count: u32,
}

/// What a slot holds that is not what its reader waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// What was there one lap ago, or nothing yet: the producer has not come by.
    Waiting,
    /// A sequence that no honest producer leaves there.
    Nonsense(u32),
}

impl<S: Slots> Consumer<S> {
    /// Starts after that many entries: none in a fresh ring.
    pub(crate) fn new(slots: S, kind: Kind, count: u32) -> Self {
        Self { slots, kind, count }
    }

    /// Copies the next entry out, if it is there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Entry> {
        let entry = self.slots.slot(self.count).take(self.awaited())?;
        self.count = self.count.wrapping_add(1);
        Some(entry)
    }

    /// Whether the next entry is there.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.slots.slot(self.count).sequence() == self.awaited()
    }

    /// Why the next request is not there. (It may have come since: that is "waiting" as well.)
    pub(crate) fn stale(&self) -> Stale {
        let seen = self.slots.slot(self.count).sequence();
        let awaited = self.awaited();
        // One lap ago there was a request, and over it the completion of that number.
        let request = awaited.wrapping_sub(2 * RING_SLOTS as u32);
        let completion = request | Kind::Completion as u32;
        // Only the first lap finds zeroes, but the bits of a position do not tell which lap it is.
        let honest = [awaited, request, completion, 0].contains(&seen);
        if honest { Stale::Waiting } else { Stale::Nonsense(seen) }
    }

    /// The sequence that the next entry will carry.
    #[inline(always)]
    pub(crate) fn awaited(&self) -> u32 {
        sequence_after(self.count, self.kind)
    }

    /// Where the slots are.
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }
}

#[cfg(not(loom))]
pub(crate) use mapped::MappedRing;

#[cfg(not(loom))]
mod mapped {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU32;

    use ddss_core::limits::RING_SLOTS;

    use super::{Slot, Slots, slot_of};
    use crate::sys::SharedMemory;

    /// The slots of a ring in a mapping that another process writes as well.
    pub(crate) struct MappedRing {
        first: NonNull<Slot>,
        _memory: SharedMemory,
    }

    // SAFETY: the pointer stays valid as long as `_memory` holds the mapping, from whichever thread; a slot is
    // nothing but atomics.
    unsafe impl Send for MappedRing {}

    impl MappedRing {
        /// Wraps the slots that start at `first`.
        ///
        /// # Safety
        ///
        /// `RING_SLOTS` slots from `first` on lie inside the mapping of `memory` and `first` is aligned to a line.
        pub(crate) unsafe fn new(first: NonNull<Slot>, memory: SharedMemory) -> Self {
            Self { first, _memory: memory }
        }

        /// The half of a slot's first word where that sequence will be, to sleep on.
        pub(crate) fn sequence_word(&self, sequence: u32) -> &AtomicU32 {
            let half = if cfg!(target_endian = "little") { 0 } else { 1 };
            let words = std::ptr::from_ref(self.slot(slot_of(sequence))).cast::<AtomicU32>();
            let word = words.wrapping_add(half);
            // SAFETY: both halves of word 0 lie inside the slot, which lives as long as `self`; the futex only
            // compares, so the mixed size never meets a write of ours.
            unsafe { &*word }
        }
    }

    impl Slots for MappedRing {
        #[inline(always)]
        fn slot(&self, position: u32) -> &Slot {
            let index = position as usize % RING_SLOTS;
            // SAFETY: `index < RING_SLOTS`, and who made `self` promised that many slots inside the mapping.
            let slot = unsafe { self.first.add(index) };
            // SAFETY: the slot is aligned, inside a mapping that `self` holds, and made of atomics only, so that
            // another process may write it at any time.
            unsafe { slot.as_ref() }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone)]
    struct Heap(Arc<Vec<Slot>>);

    impl Slots for Heap {
        fn slot(&self, position: u32) -> &Slot {
            &self.0[position as usize % RING_SLOTS]
        }
    }

    fn ring(count: u32) -> [(Producer<Heap>, Consumer<Heap>); 2] {
        let slots = Heap(Arc::new((0..RING_SLOTS).map(|_| Slot::empty()).collect()));
        [Kind::Request, Kind::Completion]
            .map(|kind| (Producer::new(slots.clone(), kind, count), Consumer::new(slots.clone(), kind, count)))
    }

    #[test]
    fn entries_go_there_and_back_once_across_the_wrap_of_the_sequence() {
        // If this broke, a lane would stop for good (or answer twice) after 2^31 calls.
        for start in [(1 << 31) - 100, u32::MAX - 100] {
            let [(mut submit, mut taken), (mut reply, mut reaped)] = ring(start);
            for value in 0..500_u64 {
                assert_eq!((taken.take(), reaped.take()), (None, None));
                submit.publish(&[value << 32, value, 2, 3, 4, 5, 6, 7]);
                assert_eq!(reaped.take(), None, "a request is not its own answer");
                let entry = taken.take().unwrap();
                assert_eq!((entry[0] >> 32, entry[1], entry[7]), (value, value, 7));
                assert_eq!((taken.take(), taken.stale()), (None, Stale::Waiting));
                reply.publish(&[value << 32, !value, 0, 0, 0, 0, 0, 0]);
                assert_eq!(reaped.take().unwrap()[1], !value);
                assert_eq!(taken.stale(), Stale::Waiting);
            }
        }
    }

    #[test]
    fn a_full_window_comes_out_whole_and_back_in_any_order() {
        // If this broke, the last request of a full window would be lost, or overwritten by an early answer.
        let [(mut submit, mut taken), (mut reply, mut reaped)] = ring(7);
        for value in 0..RING_SLOTS as u64 {
            submit.publish(&[0, value, 0, 0, 0, 0, 0, 0]);
        }
        // Half of them are taken, and the newest of those is answered first, while the others wait to be taken.
        let half = RING_SLOTS as u64 / 2;
        for value in 0..half {
            assert_eq!(taken.take().unwrap()[1], value);
        }
        for value in (0..half).rev() {
            reply.publish(&[0, value, 0, 0, 0, 0, 0, 0]);
        }
        for value in half..RING_SLOTS as u64 {
            assert_eq!(taken.take().unwrap()[1], value);
        }
        for value in (0..half).rev() {
            assert_eq!(reaped.take().unwrap()[1], value);
        }
        assert_eq!((taken.take(), taken.stale(), reaped.take()), (None, Stale::Waiting, None));
    }

    #[test]
    fn a_sequence_from_nowhere_is_told_from_an_empty_slot() {
        // If this broke, a client that scribbles over its ring would never be cut off.
        let [(mut submit, taken), _] = ring(0);
        assert_eq!(taken.stale(), Stale::Waiting);
        submit.count = 3 * RING_SLOTS as u32;
        submit.publish(&[0; 8]);
        assert!(!taken.is_ready());
        assert_eq!(taken.stale(), Stale::Nonsense((3 * RING_SLOTS as u32 + 1) << 1));
    }
}
