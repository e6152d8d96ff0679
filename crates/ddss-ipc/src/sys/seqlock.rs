//! Reader of a value in shared memory behind a line of version words: checked once, read many times.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use ddss_core::limits::LINE_BYTES;

use super::memory::{MemoryError, SharedMemory};

/// Words of the line.
const WORDS: usize = LINE_BYTES / size_of::<u64>();

/// A line of eight words, and the payload behind it. Alignment and bounds are checked at creation, so that reading a
/// word is one load, and reading bytes only checks their range.
///
/// ```
/// use ddss_ipc::SharedMemory;
/// use std::sync::atomic::Ordering;
///
/// let memory = SharedMemory::create("seqlock", 4096)?;
/// memory.store(1024 + 16, 7, Ordering::Release)?;
/// memory.write(1024 + 64, b"the bytes behind")?;
/// let seqlock = memory.seqlock_at(1024, 16)?;
/// let mut copy = [0; 5];
/// assert_eq!(seqlock.word::<2>(Ordering::Acquire), 7);
/// assert!(seqlock.read(4, &mut copy) && &copy == b"bytes");
/// assert!(!seqlock.read(12, &mut copy), "there are only sixteen");
/// # Ok::<(), ddss_ipc::MemoryError>(())
/// ```
#[derive(Debug)]
pub struct Seqlock {
    line: NonNull<AtomicU64>,
    bytes: usize,
    /// Keeps the mapping alive.
    _memory: SharedMemory,
}

// SAFETY: the pointer stays valid as long as `_memory` holds the mapping, from any thread; its target is only accessed
// by atomics and raw copies.
unsafe impl Send for Seqlock {}
// SAFETY: as above.
unsafe impl Sync for Seqlock {}

impl SharedMemory {
    /// Returns a reader of the line at `offset` and that many bytes behind it.
    pub fn seqlock_at(&self, offset: usize, bytes: usize) -> Result<Seqlock, MemoryError> {
        let all = bytes.saturating_add(LINE_BYTES);
        let line = self.check(offset, all)?.cast::<AtomicU64>();
        if !line.is_aligned() {
            return Err(MemoryError::Misaligned(offset));
        }
        Ok(Seqlock { line, bytes, _memory: self.clone() })
    }
}

impl Seqlock {
    /// Loads one word of the line.
    #[inline(always)]
    pub fn word<const INDEX: usize>(&self, ordering: Ordering) -> u64 {
        const { assert!(INDEX < WORDS, "a line has eight words") };
        self.word_at(INDEX).load(ordering)
    }

    /// Returns a word of the line or of the payload, which lies inside.
    #[inline(always)]
    fn word_at(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index * size_of::<u64>() < LINE_BYTES + self.bytes);
        // SAFETY: the callers pass an index of the line (`word`) or of a word that they found in the payload.
        let word = unsafe { self.line.add(index) };
        // SAFETY: `seqlock_at` found the line aligned and all of it inside the mapping that `_memory` holds; it is an
        // atomic, so that other processes may write it.
        unsafe { word.as_ref() }
    }

    /// Loads an aligned word of the payload; `None` outside of it.
    #[inline(always)]
    pub fn payload_word(&self, offset: usize, ordering: Ordering) -> Option<u64> {
        const BYTES: usize = size_of::<u64>();
        if !offset.is_multiple_of(BYTES) || BYTES > self.bytes || offset > self.bytes - BYTES {
            return None;
        }
        Some(self.word_at(WORDS + offset / BYTES).load(ordering))
    }

    /// Copies payload bytes out. Returns false, and copies nothing, if the range exceeds the payload. Concurrent writes
    /// of the other side may be torn in the copy. Ranges of up to one cache line, with offset and length multiples of
    /// eight, are read word by word, each word whole.
    #[inline(always)]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let bytes = into.len();
        if bytes > self.bytes || offset > self.bytes - bytes {
            return false;
        }
        if bytes <= LINE_BYTES && (offset | bytes).is_multiple_of(size_of::<u64>()) {
            let first = WORDS + offset / size_of::<u64>();
            for (index, chunk) in into.chunks_exact_mut(size_of::<u64>()).enumerate() {
                chunk.copy_from_slice(&self.word_at(first + index).load(Ordering::Relaxed).to_ne_bytes());
            }
            return true;
        }
        // SAFETY: the sum was just found inside; the line in front was checked at creation.
        let from = unsafe { self.line.cast::<u8>().add(LINE_BYTES + offset) };
        // SAFETY: the range lies inside the mapping that `_memory` holds; `into` is exclusive, so the two do not
        // overlap. Other processes may write the source meanwhile: the bytes are plain data of which any value is
        // valid.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), bytes) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_outside_of_payload_is_rejected() {
        // If this failed, a local read could read another segment, or kill the process.
        let memory = SharedMemory::create("seqlock", 8192).unwrap();
        memory.write(4096 + 64, &std::array::from_fn::<u8, 100, _>(|index| index as u8)).unwrap();
        let seqlock = memory.seqlock_at(4096, 100).unwrap();
        for (offset, bytes) in [(0, 100), (0, 8), (8, 64), (92, 8), (96, 4), (1, 7), (3, 65), (100, 0)] {
            let mut copy = vec![0; bytes];
            assert!(seqlock.read(offset, &mut copy), "{bytes} at {offset}");
            assert!(copy.iter().enumerate().all(|(index, &byte)| usize::from(byte) == offset + index));
        }
        for (offset, bytes) in [(93, 8), (96, 8), (0, 101), (101, 0), (usize::MAX, 1), (usize::MAX - 7, 8)] {
            assert!(!seqlock.read(offset, &mut vec![0; bytes]), "{bytes} at {offset}");
        }
        for (offset, word) in [(0, Some(0x0706_0504_0302_0100)), (88, Some(0x5f5e_5d5c_5b5a_5958))] {
            assert_eq!(seqlock.payload_word(offset, Ordering::Acquire), word);
        }
        for offset in [4, 93, 96, 100, usize::MAX - 7] {
            assert_eq!(seqlock.payload_word(offset, Ordering::Acquire), None, "{offset}");
        }
        for (offset, bytes) in [(8192 - 64, 1), (8192, 0), (0, 8129), (0, usize::MAX), (usize::MAX - 63, 64), (4, 8)] {
            assert!(memory.seqlock_at(offset, bytes).is_err(), "{bytes} behind {offset}");
        }
        assert!(memory.seqlock_at(8192 - 64, 0).is_ok());
    }
}
