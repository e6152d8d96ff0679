//! Which slots of an arena are in use: a bit each, and nobody waits for anybody to look.
//!
//! # State
//!
//! A bit is 0 while its slot is free. Who wants a run looks for one, the lowest first, and then sets its bits, a word at
//! a time (`fetch_or`, Acquire). Where it finds one set that was free when it looked, somebody else was quicker: it
//! takes back the bits that it set itself, and looks on. Who gives a run back clears its bits (`fetch_and`, Release), so that
//! whoever takes a slot next comes after all that was done with it.
//!
//! Two that run into each other may both give up, where one of them could have had what it wanted. So each begins
//! anew a few times before it says that there is no room; and the caller, who waits for room, looks again.

use crate::sync::{AtomicU64, order};

const WORD_BITS: u32 = u64::BITS;

/// How often a search begins anew when others come between.
const TRIES: u32 = 4;

/// Which slots are in use, from one on to before another one.
///
/// ```
/// use ddss_ipc::SlotMap;
///
/// let slots = SlotMap::new(10, 100);
/// let large = slots.take(80).expect("so many are free");
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

/// The bits of a run in one word after the other: which word, and which bits. An empty run has none, wherever it is.
fn parts(at: u32, slots: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = at + slots;
    (at / WORD_BITS..end.div_ceil(WORD_BITS)).filter(move |_| slots > 0).map(move |word| {
        let (low, high) = ((word * WORD_BITS).max(at), ((word + 1) * WORD_BITS).min(end));
        let ones = u64::MAX >> (WORD_BITS - (high - low));
        (word as usize, ones << (low % WORD_BITS))
    })
}

impl SlotBitmap {
    /// All slots from `first` on to before `end` are free.
    pub fn new(first: u32, end: u32) -> Self {
        let count = end.saturating_sub(first);
        let words = (0..count.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        Self { words, first, count }
    }

    /// Takes the lowest run of so many slots that is free, and gives its first one.
    pub fn take(&self, slots: u32) -> Option<u32> {
        if slots == 0 || slots > self.count {
            return None;
        }
        (0..TRIES).find_map(|_| self.search(slots)).map(|at| self.first + at)
    }

    /// Gives back a run that was taken.
    pub fn give(&self, first: u32, slots: u32) {
        self.clear(first - self.first, slots);
    }

    /// Before which one they end.
    pub(crate) fn end(&self) -> u32 {
        self.first + self.count
    }

    /// How many are in use.
    pub fn in_use(&self) -> u32 {
        self.words.iter().map(|word| word.load(crate::sync::Ordering::Relaxed).count_ones()).sum()
    }

    /// One look at all slots. `None` if there is no run, or others took each one that there was.
    fn search(&self, slots: u32) -> Option<u32> {
        let (mut start, mut at) = (0, 0);
        while at < self.count {
            let word = self.words[(at / WORD_BITS) as usize].load(crate::sync::Ordering::Relaxed) >> (at % WORD_BITS);
            let left = (WORD_BITS - at % WORD_BITS).min(self.count - at);
            let free = word.trailing_zeros().min(left);
            at += free;
            if at - start >= slots {
                if self.set(start, slots) {
                    return Some(start);
                }
                // Somebody is at work here.
                start = at;
            } else if free < left {
                at += (word >> free).trailing_ones().min(left - free);
                start = at;
            }
        }
        None
    }

    /// Sets the bits of a run; `false`, and none is, if one is set already.
    fn set(&self, at: u32, slots: u32) -> bool {
        let mut done = 0;
        for (word, mask) in parts(at, slots) {
            // Pairs with the Release in `clear`.
            let taken = self.words[word].fetch_or(mask, order::take_slot()) & mask;
            if taken != 0 {
                self.words[word].fetch_and(!(mask & !taken), order::give_slot());
                self.clear(at, done);
                return false;
            }
            done += mask.count_ones();
        }
        true
    }

    fn clear(&self, at: u32, slots: u32) {
        for (word, mask) in parts(at, slots) {
            // Pairs with the Acquire in `set`.
            let before = self.words[word].fetch_and(!mask, order::give_slot());
            debug_assert_eq!(before & mask, mask, "a run is given back once");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn an_empty_run_is_no_bits() {
        // If this broke, who loses a race for a run would give back slots that are somebody else's.
        assert_eq!((0..130).map(|at| parts(at, 0).count()).sum::<usize>(), 0);
        assert_eq!(parts(60, 8).collect::<Vec<_>>(), [(0, 0xf << 60), (1, 0xf)]);
        assert_eq!(parts(64, 64).collect::<Vec<_>>(), [(1, u64::MAX)]);
    }

    #[test]
    fn runs_do_not_overlap_and_grow_together_again() {
        // If this broke, two transfers would use the same bytes, or a long-lived client would run out of them.
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
    fn runs_across_words_are_found_wherever_they_begin() {
        // If this broke, large transfers would be refused although there is room, or run over others.
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
    fn threads_never_get_the_same_slot() {
        // If this broke, the bytes of one call would land in the buffer of another.
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
