//! A consistent read of shared memory by a seqlock: the minimal cost of a local read.
//!
//! The words are read one by one, as atomics, because another process may write them at the same time. For large values
//! a plain copy of unshared memory is faster. No writer competes here.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::harness::{Figure, RoundTrip};

struct Copy {
    sequence: AtomicU64,
    words: Vec<AtomicU64>,
    copy: Vec<u64>,
}

/// A copy of `size_bytes` (a multiple of 8) under a sequence lock.
pub fn seqlock_copy(size_bytes: usize) -> Figure {
    assert!(size_bytes.is_multiple_of(8), "{size_bytes} bytes are no whole words");
    let words: Vec<AtomicU64> = (0..size_bytes as u64 / 8).map(AtomicU64::new).collect();
    let copy = vec![0; words.len()];
    let trip = Copy { sequence: AtomicU64::new(2), words, copy };
    Figure::new("raw", "seqlock", size_bytes, "near/spin/t1", trip)
}

impl RoundTrip for Copy {
    fn once(&mut self) {
        let Copy { sequence, words, copy } = self;
        // Another process could change the words, so the compiler must not reuse earlier reads.
        let (sequence, words) = black_box((&*sequence, words.as_slice()));
        loop {
            let before = sequence.load(Ordering::Acquire);
            for (word, copy) in words.iter().zip(copy.iter_mut()) {
                *copy = word.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && sequence.load(Ordering::Relaxed) == before {
                break;
            }
        }
        black_box(copy.as_slice());
    }
}
