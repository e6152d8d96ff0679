//! Lock-free bitmap of the slots in use in an arena.
//!
//! # State
//!
//! A bit is 0 while its slot is free. A thread that allocates a run searches for the lowest free one and sets its bits,
//! a word at a time (`fetch_or`, Acquire). A bit that is already set means that another thread was quicker: the thread
//! clears the bits that it has set, and searches on. A thread that frees a run clears its bits (`fetch_and`, Release),
//! so that the next owner of a slot comes after all accesses of the previous one.
//!
//! Two threads that collide may both give up, although one could have succeeded. So each search restarts a few times
//! before it reports that there is no room, and a caller that waits for room tries again.

use crate::sync::{AtomicU64, order};

const WORD_BITS: u32 = u64::BITS;

/// Restarts of a search that collides with other threads.
const SEARCH_TRIES: u32 = 4;

/// Bitmap of the slots in use, in a range of slots.
///
/// ```
/// use ddss_ipc::lock_free::SlotBitmap;
///
/// let slots = SlotBitmap::new(10, 100);
/// let large = slots.take(80).expect("80 slots are free");
/// assert_eq!((large, slots.take(11)), (10, None));
/// assert_eq!(slots.take(10), Some(90));
/// slots.give(large, 80);
/// assert_eq!(slots.take(1), Some(10), "the lowest first");
/// ```
#[derive(Debug)]
pub struct SlotBitmap {
    words: Box<[AtomicU64]>,
    first: u32,
    count: u32,
}

/// Splits a run into words: index and mask of each. An empty run has none, wherever it is.
fn word_masks(at: u32, slots: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = at + slots;
    (at / WORD_BITS..end.div_ceil(WORD_BITS)).filter(move |_| slots > 0).map(move |word| {
        let (low, high) = ((word * WORD_BITS).max(at), ((word + 1) * WORD_BITS).min(end));
        let ones = u64::MAX >> (WORD_BITS - (high - low));
        (word as usize, ones << (low % WORD_BITS))
    })
}

impl SlotBitmap {
    /// Creates a bitmap of the free slots `first..end`.
    pub fn new(first: u32, end: u32) -> Self {
        let count = end.saturating_sub(first);
        let words = (0..count.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        Self { words, first, count }
    }

    /// Allocates the lowest free run of that many slots and returns its first slot.
    pub fn take(&self, slots: u32) -> Option<u32> {
        if slots == 0 || slots > self.count {
            return None;
        }
        (0..SEARCH_TRIES).find_map(|_| self.search(slots)).map(|at| self.first + at)
    }

    /// Frees a run.
    pub fn give(&self, first: u32, slots: u32) {
        self.clear(first - self.first, slots);
    }

    /// Returns the end of the range (exclusive).
    pub(crate) fn end(&self) -> u32 {
        self.first + self.count
    }

    /// Returns the number of slots in use.
    pub fn in_use(&self) -> u32 {
        self.words.iter().map(|word| word.load(crate::sync::Ordering::Relaxed).count_ones()).sum()
    }

    /// Searches all slots once. Returns `None` if there is no run, or if other threads took each one found.
    fn search(&self, slots: u32) -> Option<u32> {
        let (mut start, mut at) = (0, 0);
        while at < self.count {
            let word = self.words[(at / WORD_BITS) as usize].load(crate::sync::Ordering::Relaxed) >> (at % WORD_BITS);
            let remaining = (WORD_BITS - at % WORD_BITS).min(self.count - at);
            let free = word.trailing_zeros().min(remaining);
            at += free;
            if at - start >= slots {
                if self.set(start, slots) {
                    return Some(start);
                }
                // Another thread allocates here.
                start = at;
            } else if free < remaining {
                at += (word >> free).trailing_ones().min(remaining - free);
                start = at;
            }
        }
        None
    }

    /// Sets the bits of a run. Returns false, with none set, if one was set already.
    fn set(&self, at: u32, slots: u32) -> bool {
        let mut done = 0;
        for (word, mask) in word_masks(at, slots) {
            // Pairs with the Release in `clear`.
            let taken = self.words[word].fetch_or(mask, order::slot_acquire()) & mask;
            if taken != 0 {
                self.words[word].fetch_and(!(mask & !taken), order::slot_release());
                self.clear(at, done);
                return false;
            }
            done += mask.count_ones();
        }
        true
    }

    fn clear(&self, at: u32, slots: u32) {
        for (word, mask) in word_masks(at, slots) {
            // Pairs with the Acquire in `set`.
            let before = self.words[word].fetch_and(!mask, order::slot_release());
            debug_assert_eq!(before & mask, mask, "a run is given back once");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn empty_run_has_no_bits() {
        // If this failed, a thread that loses a race for a run would free slots of another thread.
        assert_eq!((0..130).map(|at| word_masks(at, 0).count()).sum::<usize>(), 0);
        assert_eq!(word_masks(60, 8).collect::<Vec<_>>(), [(0, 0xf << 60), (1, 0xf)]);
        assert_eq!(word_masks(64, 64).collect::<Vec<_>>(), [(1, u64::MAX)]);
    }

    #[test]
    fn runs_do_not_overlap_and_coalesce() {
        // If this failed, two transfers would use the same bytes, or a long-lived client would run out of slots.
        let slots = SlotBitmap::new(4, 12);
        assert_eq!([3, 1, 4].map(|count| slots.take(count)), [Some(4), Some(7), Some(8)]);
        assert_eq!(slots.in_use(), 8);
        assert_eq!(slots.take(1), None);
        slots.give(4, 3);
        slots.give(8, 4);
        assert_eq!(slots.take(5), None, "one in the middle is in use");
        slots.give(7, 1);
        assert_eq!(slots.take(8), Some(4));
        assert_eq!([SlotBitmap::new(5, 5).take(1), SlotBitmap::new(5, 3).take(1), slots.take(0)], [None; 3]);
    }

    #[test]
    fn runs_across_words_are_found_at_any_offset() {
        // If this failed, large transfers would be refused although there is room, or overwrite others.
        for begin in [0, 1, 62, 63, 64, 100, 127, 128] {
            for count in [1, 2, 63, 64, 65, 128, 129, 200] {
                let slots = SlotBitmap::new(1000, 1000 + begin + count);
                if begin > 0 {
                    assert_eq!(slots.take(begin), Some(1000));
                }
                assert_eq!(slots.take(count + 1), None);
                assert_eq!(slots.take(count), Some(1000 + begin), "{count} from {begin} on");
                assert_eq!(slots.take(1), None);
                slots.give(1000 + begin, count);
                assert_eq!(slots.take(count), Some(1000 + begin));
            }
        }
    }

    #[test]
    fn concurrent_threads_never_get_the_same_slot() {
        // If this failed, the bytes of one call would be written to the buffer of another.
        const COUNT: u32 = 150;
        let slots = SlotBitmap::new(0, COUNT);
        let used: Vec<AtomicBool> = (0..COUNT).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (slots, used) = (&slots, &used);
                scope.spawn(move || {
                    for turn in 0..20_000 {
                        let count = 1 + (turn * 7 + thread * 13) % 70;
                        let Some(first) = slots.take(count) else { continue };
                        let run = &used[first as usize..(first + count) as usize];
                        assert!(run.iter().all(|slot| !slot.swap(true, Ordering::Relaxed)), "a slot in two runs");
                        run.iter().for_each(|slot| slot.store(false, Ordering::Relaxed));
                        slots.give(first, count);
                    }
                });
            }
        });
        assert_eq!(slots.take(COUNT), Some(0), "all came back");
    }
}
