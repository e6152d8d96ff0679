//! The ring of a channel: slots that carry a request out and a completion back in the same cache line.
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
//! | state | writer | reader |
//! | --- | --- | --- |
//! | a slot | the client its request, then the service a completion, then the client .. | the other side |
//! | count of requests submitted | the client, in private memory | the client |
//! | counts of requests taken, completions published | the service, in private memory | the service |
//! | count of completions reaped | the client, in private memory | the client |
//!
//! No index is shared. Entry `p` (a count that wraps at 2^31) lives in slot `p % RING_SLOTS` and is published under
//! position `p + 1`, so that zeroed memory holds nothing. A reader looks only for the one sequence that it expects
//! next. Any other sequence in the slot (old, future, or false) means "not yet".
//!
//! Completion `p` (the one published as number `p`, whichever request it answers) takes the slot of request `p`. With
//! one call in flight that is the line which the service has just read, so that a round trip takes three transfers
//! between the cores and not four (measured: 230 against 310 nanoseconds, raw ping-pong 205).
//!
//! # Why a slot is free for its next writer
//!
//! *Completion `p` over request `p`:* each completion stands for a request that was taken, and requests are taken in
//! order. So when number `p` is published, the same thread has copied request `p` out.
//!
//! *Request `p` over completion `p - RING_SLOTS`:* the client keeps `submitted - reaped <= RING_SLOTS`, so before it
//! submits `p` it has copied completion `p - RING_SLOTS` out.
//!
//! Between the two there is one Release and one Acquire on word 0 in each direction. The service takes no more than
//! `RING_SLOTS` requests beyond those it answered, counted in private memory. A client with a false count overwrites
//! its own requests and loses its own completions.
//!
//! # Safety
//!
//! - *The other process writes a slot during a read.* The line is read once into a local copy, and only the copy is
//!   used. A false write may mix two requests; the result is still one `Entry`, which its reader validates.
//! - *The mapping goes away.* A `MappedRing` holds the mapping; the memory behind it is sealed against shrinking.
//! - *Alignment and bounds* are asserted once, where a `MappedRing` is made (`SharedMemory::ring_at`).

use ddss_core::Entry;
use ddss_core::limits::RING_SLOTS;

use crate::sync::{AtomicU64, Ordering, order};

/// Part of word 0 that belongs to the ring.
pub(crate) const SEQUENCE_MASK: u64 = 0xffff_ffff;

/// Kind of an entry: the lowest bit of its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    /// From the client to the service.
    Request = 0,
    /// From the service to the client.
    Completion = 1,
}

/// Returns the sequence of the entry that follows `count` others.
#[inline(always)]
fn sequence_after(count: u32, kind: Kind) -> u32 {
    count.wrapping_add(1) << 1 | kind as u32
}

/// Returns the slot (as a wrapping count) of the entry with that sequence.
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
    /// Creates an empty slot.
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

    /// Copies the line in wide steps. Eight single words would be stored one by one, and moving the entry would wait
    /// for each of these stores to reach the cache (measured: a third of the time that the service spends on a call).
    #[cfg(not(loom))]
    #[inline(always)]
    fn copy(&self) -> Entry {
        let line = self.words.as_ptr().cast::<Line>();
        // SAFETY: one line, aligned, readable as long as `self` is. A correct producer does not write the slot before
        // this read ends (see the module's documentation). Bytes that a byzantine client writes during the read are
        // read once, here, and mix at most two of its own requests.
        let line = unsafe { line.read_volatile() };
        // SAFETY: both types have 64 bytes, and any bit pattern is valid.
        unsafe { std::mem::transmute::<Line, Entry>(line) }
    }
}

#[cfg(all(not(loom), target_arch = "x86_64"))]
type Line = [std::arch::x86_64::__m128i; 4];
#[cfg(all(not(loom), not(target_arch = "x86_64")))]
type Line = Entry;

/// Storage of a ring's slots: a mapping, or a model.
pub(crate) trait Slots {
    /// Returns the slot of a wrapping position.
    fn slot(&self, position: u32) -> &Slot;
}

/// Publishes entries of one kind. The caller ensures that the next slot is free (see the module's documentation).
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

    /// Returns the number of published entries: the position of the next one.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the sequence that was published last.
    #[inline(always)]
    pub(crate) fn published(&self) -> u32 {
        self.count << 1 | self.kind as u32
    }

    /// Returns the storage.
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

/// Content of a slot without the awaited entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// The entry of one lap ago, or nothing yet: the producer has not reached the slot.
    Pending,
    /// A sequence that no correct producer leaves there.
    Invalid(u32),
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

    /// Returns true if the next entry is there.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.slots.slot(self.count).sequence() == self.awaited()
    }

    /// Classifies the content of the next slot. An entry that has arrived since counts as pending.
    pub(crate) fn classify_stale(&self) -> Stale {
        let seen = self.slots.slot(self.count).sequence();
        let awaited = self.awaited();
        // One lap ago the slot held a request, and then the completion of that number.
        let request = awaited.wrapping_sub(2 * RING_SLOTS as u32);
        let completion = request | Kind::Completion as u32;
        // Only the first lap finds zeroes, but the bits of a position do not tell which lap it is.
        let honest = [awaited, request, completion, 0].contains(&seen);
        if honest { Stale::Pending } else { Stale::Invalid(seen) }
    }

    /// Returns the sequence of the next entry.
    #[inline(always)]
    pub(crate) fn awaited(&self) -> u32 {
        sequence_after(self.count, self.kind)
    }

    /// Returns the storage.
    pub(crate) fn slots(&self) -> &S {
        &self.slots
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
    fn entries_round_trip_once_across_sequence_wrap() {
        // If this failed, a channel would stop for good (or answer twice) after 2^31 calls.
        for start in [(1 << 31) - 100, u32::MAX - 100] {
            let [(mut submit, mut taken), (mut reply, mut reaped)] = ring(start);
            for value in 0..500_u64 {
                assert_eq!((taken.take(), reaped.take()), (None, None));
                submit.publish(&[value << 32, value, 2, 3, 4, 5, 6, 7]);
                assert_eq!(reaped.take(), None, "a request is not its own answer");
                let entry = taken.take().unwrap();
                assert_eq!((entry[0] >> 32, entry[1], entry[7]), (value, value, 7));
                assert_eq!((taken.take(), taken.classify_stale()), (None, Stale::Pending));
                reply.publish(&[value << 32, !value, 0, 0, 0, 0, 0, 0]);
                assert_eq!(reaped.take().unwrap()[1], !value);
                assert_eq!(taken.classify_stale(), Stale::Pending);
            }
        }
    }

    #[test]
    fn full_window_survives_early_completions() {
        // If this failed, the last request of a full window would be lost, or overwritten by an early completion.
        let [(mut submit, mut taken), (mut reply, mut reaped)] = ring(7);
        for value in 0..RING_SLOTS as u64 {
            submit.publish(&[0, value, 0, 0, 0, 0, 0, 0]);
        }
        // Half of the requests are taken and answered, newest first, while the others wait.
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
        assert_eq!((taken.take(), taken.classify_stale(), reaped.take()), (None, Stale::Pending, None));
    }

    #[test]
    fn invalid_sequence_differs_from_empty_slot() {
        // If this failed, a client that corrupts its ring would never be disconnected.
        let [(mut submit, taken), _] = ring(0);
        assert_eq!(taken.classify_stale(), Stale::Pending);
        submit.count = 3 * RING_SLOTS as u32;
        submit.publish(&[0; 8]);
        assert!(!taken.is_ready());
        assert_eq!(taken.classify_stale(), Stale::Invalid((3 * RING_SLOTS as u32 + 1) << 1));
    }
}
