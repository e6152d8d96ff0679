//! One direction of a lane: a ring of slots with a single producer and a single consumer.
//!
//! # State
//!
//! ```text
//!           63            32 31             0
//!          +----------------+----------------+
//!  word 0  | the caller's   |    sequence    |   written last (Release), read first (Acquire)
//!          +----------------+----------------+
//!  words 1..8: the caller's                      written and read Relaxed, between the two
//! ```
//!
//! | what | who writes | who reads |
//! | --- | --- | --- |
//! | a slot of the ring | the producer | the consumer |
//! | the producer's position | the producer, in its own memory | nobody else |
//! | the consumer's position | the consumer, in its own memory | nobody else |
//!
//! No index is shared. Position `p` (an endless count that wraps at 2^32) lives in slot `p % RING_SLOTS` and is
//! published under the sequence `p + 1`, so zeroed memory holds nothing. The consumer looks only for the one sequence
//! that it expects next: anything else in the slot, be it old, torn from the future or a lie, is "nothing yet".
//!
//! # Why a slot is free when the producer comes round
//!
//! The client keeps `submitted - reaped <= RING_SLOTS`. Requests are consumed in order, and each completion stands
//! for a consumed request; so before position `p` is submitted, position `p - RING_SLOTS` was consumed, and the
//! completion that says so was read with Acquire after the service published it with Release, which it did after it
//! had copied the request. The same count frees the completion slots: the service never has more than `RING_SLOTS`
//! requests of a lane under way, and it counts that in its own memory. A client that lies about its count overwrites
//! its own requests and loses its own completions.
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

/// The end of a ring that fills slots. The caller knows that the next slot is free (see the module's page).
pub(crate) struct Producer<S> {
    slots: S,
    position: u32,
}

impl<S: Slots> Producer<S> {
    /// Starts at a position: zero for a fresh ring.
    pub(crate) fn new(slots: S, position: u32) -> Self {
        Self { slots, position }
    }

    /// Fills the next slot.
    #[inline(always)]
    pub(crate) fn publish(&mut self, entry: &Entry) {
        let sequence = self.position.wrapping_add(1);
        self.slots.slot(self.position).publish(sequence, entry);
        self.position = sequence;
    }

    /// How many slots were filled since the ring was made, which is also the last sequence that was published.
    #[inline(always)]
    pub(crate) fn position(&self) -> u32 {
        self.position
    }

    /// Where the slots are.
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }
}

/// The end of a ring that empties slots.
pub(crate) struct Consumer<S> {
    slots: S,
    position: u32,
}

/// What a slot holds that is not what its reader waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// The entry of one lap ago, or nothing yet: the producer has not come by.
    Waiting,
    /// A sequence that no honest producer leaves there.
    Nonsense(u32),
}

impl<S: Slots> Consumer<S> {
    /// Starts at a position: zero for a fresh ring.
    pub(crate) fn new(slots: S, position: u32) -> Self {
        Self { slots, position }
    }

    /// Copies the next entry out, if it is there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Entry> {
        let sequence = self.awaited();
        let entry = self.slots.slot(self.position).take(sequence)?;
        self.position = sequence;
        Some(entry)
    }

    /// Whether the next entry is there.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.slots.slot(self.position).sequence() == self.awaited()
    }

    /// Why the next entry is not there. (It may have come since: that is "waiting" as well.)
    pub(crate) fn stale(&self) -> Stale {
        let seen = self.slots.slot(self.position).sequence();
        let awaited = self.awaited();
        let lap_ago = awaited.wrapping_sub(RING_SLOTS as u32);
        // Only the first lap finds zeroes, but the 32 bits of a position do not tell which lap it is.
        if seen == lap_ago || seen == awaited || seen == 0 { Stale::Waiting } else { Stale::Nonsense(seen) }
    }

    /// The sequence that the next entry will carry.
    #[inline(always)]
    pub(crate) fn awaited(&self) -> u32 {
        self.position.wrapping_add(1)
    }

    /// How many entries were taken since the ring was made.
    pub(crate) fn position(&self) -> u32 {
        self.position
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

    use super::{Slot, Slots};
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

        /// The half of a slot's first word that holds its sequence, to sleep on.
        pub(crate) fn sequence_word(&self, position: u32) -> &AtomicU32 {
            let half = if cfg!(target_endian = "little") { 0 } else { 1 };
            let words = std::ptr::from_ref(self.slot(position)).cast::<AtomicU32>();
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

    fn ring(position: u32) -> (Producer<Heap>, Consumer<Heap>) {
        let slots = Heap(Arc::new((0..RING_SLOTS).map(|_| Slot::empty()).collect()));
        (Producer::new(slots.clone(), position), Consumer::new(slots, position))
    }

    #[test]
    fn entries_come_out_once_in_order_across_the_wrap_of_the_sequence() {
        // If this broke, a lane would stop for good (or answer twice) after 2^32 calls.
        let (mut producer, mut consumer) = ring(u32::MAX - 100);
        for lap in 0..500_u64 {
            assert_eq!(consumer.take(), None);
            producer.publish(&[lap << 32, lap, 2, 3, 4, 5, 6, 7]);
            let entry = consumer.take().unwrap();
            assert_eq!((entry[0] >> 32, entry[1], entry[7]), (lap, lap, 7));
        }
    }

    #[test]
    fn a_full_ring_comes_out_whole() {
        // If this broke, the last request of a full window would be lost.
        let (mut producer, mut consumer) = ring(7);
        for value in 0..RING_SLOTS as u64 {
            producer.publish(&[0, value, 0, 0, 0, 0, 0, 0]);
        }
        for value in 0..RING_SLOTS as u64 {
            assert_eq!(consumer.take().unwrap()[1], value);
        }
        assert_eq!(consumer.take(), None);
        assert_eq!(consumer.stale(), Stale::Waiting);
    }

    #[test]
    fn a_sequence_from_nowhere_is_told_from_an_empty_slot() {
        // If this broke, a client that scribbles over its ring would never be cut off.
        let (mut producer, consumer) = ring(0);
        assert_eq!(consumer.stale(), Stale::Waiting);
        producer.position = 3 * RING_SLOTS as u32;
        producer.publish(&[0; 8]);
        assert!(!consumer.is_ready());
        assert_eq!(consumer.stale(), Stale::Nonsense(3 * RING_SLOTS as u32 + 1));
    }
}
