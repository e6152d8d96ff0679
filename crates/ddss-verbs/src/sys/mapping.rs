//! Mapped memory of a file descriptor, accessed by bounded copies only.
//!
//! Other processes read and write the same memory at any time. There is never a reference into it: every access is a
//! copy through atomics (each aligned 8-byte word is atomic) or a transfer by the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};

use super::crc::{self, Private};

/// Size from which mappings request huge pages. Where the machine grants them to shared memory (`shmem_enabled`), an
/// adapter registers the mapping in a fraction of the time, and copies miss the TLB less often.
const HUGE_PAGE_BYTES_MIN: usize = 2 << 20;

/// Shared mapping of a range of a file. Unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping(MmapRaw);

impl Mapping {
    /// Maps `bytes` bytes from `offset`. The caller has checked that the range is inside the file, for good.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let mapping = MmapOptions::new().offset(offset).len(bytes).map_raw(&fd)?;
        if bytes >= HUGE_PAGE_BYTES_MIN {
            // A kernel without huge pages refuses; small pages suffice.
            let _ = mapping.advise(Advice::HugePage);
        }
        Ok(Self(mapping))
    }

    /// Maps memory of this process alone, for buffers of an adapter.
    #[cfg(feature = "rdma")]
    pub(crate) fn private(bytes: usize) -> io::Result<Self> {
        Ok(Self(MmapOptions::new().len(bytes).map_anon()?.into()))
    }

    /// Returns the length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns the address of a range, for the kernel. Panics if the range is outside.
    pub(super) fn span(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes).expect("a range that was checked does not wrap");
        assert!(end <= self.bytes(), "a transfer of {bytes} bytes at {offset} is outside {}", self.bytes());
        self.0.as_mut_ptr().wrapping_add(offset)
    }

    /// Copies from the mapping. Panics if the range is outside.
    pub(crate) fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let base = self.span(offset, out.len());
        let head = base.align_offset(8).min(out.len());
        let (first, rest) = out.split_at_mut(head);
        for (index, byte) in first.iter_mut().enumerate() {
            *byte = byte_at(base.wrapping_add(index)).load(Ordering::Relaxed);
        }
        let base = base.wrapping_add(head);
        // SAFETY: `span` checked the source, which is aligned from here on so that no word is split; the target is a
        // private slice and no mapping.
        let done = unsafe { crc::copy_plain(base, rest.as_mut_ptr(), rest.len()) };
        let base = base.wrapping_add(done);
        let (words, last) = rest[done..].as_chunks_mut::<8>();
        for (index, word) in words.iter_mut().enumerate() {
            *word = word_at(base.wrapping_add(index * 8)).load(Ordering::Relaxed).to_ne_bytes();
        }
        let base = base.wrapping_add(words.len() * 8);
        for (index, byte) in last.iter_mut().enumerate() {
            *byte = byte_at(base.wrapping_add(index)).load(Ordering::Relaxed);
        }
    }

    /// Copies to the mapping. Panics if the range is outside.
    pub(crate) fn copy_in(&self, offset: usize, data: &[u8]) {
        let base = self.span(offset, data.len());
        let head = base.align_offset(8).min(data.len());
        let (first, rest) = data.split_at(head);
        for (index, byte) in first.iter().enumerate() {
            byte_at(base.wrapping_add(index)).store(*byte, Ordering::Relaxed);
        }
        let base = base.wrapping_add(head);
        // SAFETY: `span` checked the target, which is aligned from here on so that no word is split; the source is a
        // private slice and no mapping.
        let done = unsafe { crc::copy_plain(rest.as_ptr(), base, rest.len()) };
        let base = base.wrapping_add(done);
        let (words, last) = rest[done..].as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            word_at(base.wrapping_add(index * 8)).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let base = base.wrapping_add(words.len() * 8);
        for (index, byte) in last.iter().enumerate() {
            byte_at(base.wrapping_add(index)).store(*byte, Ordering::Relaxed);
        }
    }

    /// Copies from the mapping and continues `crc` over the copied bytes. Panics if the range is outside.
    pub(crate) fn copy_out_summed(&self, offset: usize, out: &mut [u8], crc: u32) -> u32 {
        let base = self.span(offset, out.len());
        let head = base.align_offset(8).min(out.len());
        let (first, rest) = out.split_at_mut(head);
        self.copy_out(offset, first);
        let crc = crc::append(crc, first);
        // SAFETY: `span` checked the source, which is aligned from here on so that no word is split; the target is a
        // private slice and no mapping.
        let (done, crc) =
            unsafe { crc::copy_summed(crc, base.wrapping_add(head), rest.as_mut_ptr(), Private::Target, rest.len()) };
        let rest = &mut rest[done..];
        self.copy_out(offset + head + done, rest);
        crc::append(crc, rest)
    }

    /// Copies to the mapping and continues `crc` over the copied bytes. Panics if the range is outside.
    pub(crate) fn copy_in_summed(&self, offset: usize, data: &[u8], crc: u32) -> u32 {
        let base = self.span(offset, data.len());
        let head = base.align_offset(8).min(data.len());
        let (first, rest) = data.split_at(head);
        self.copy_in(offset, first);
        let crc = crc::append(crc, first);
        // SAFETY: `span` checked the target, which is aligned from here on so that no word is split; the source is a
        // private slice and no mapping.
        let (done, crc) =
            unsafe { crc::copy_summed(crc, rest.as_ptr(), base.wrapping_add(head), Private::Source, rest.len()) };
        let rest = &rest[done..];
        self.copy_in(offset + head + done, rest);
        crc::append(crc, rest)
    }

    /// Continues `crc` over a range that nothing changes during the call. Panics if the range is outside.
    pub(crate) fn sum(&self, offset: usize, bytes: usize, crc: u32) -> u32 {
        let base = self.span(offset, bytes);
        // SAFETY: `span` checked the range.
        let (done, mut crc) = unsafe { crc::sum_whole(crc, base, bytes) };
        let mut rest = [0; 256];
        for at in (done..bytes).step_by(rest.len()) {
            let piece = &mut rest[..(bytes - at).min(256)];
            self.copy_out(offset + at, piece);
            crc = crc::append(crc, piece);
        }
        crc
    }

    /// Updates a word atomically with `change`; returns the previous value. Panics if the word is outside or
    /// unaligned.
    pub(crate) fn update(&self, offset: usize, mut change: impl FnMut(u64) -> Option<u64>) -> u64 {
        assert!(offset.is_multiple_of(8), "an atomic at {offset} is not aligned");
        let word = word_at(self.span(offset, 8));
        match word.fetch_update(Ordering::AcqRel, Ordering::Acquire, &mut change) {
            Ok(old) | Err(old) => old,
        }
    }
}

fn byte_at<'a>(address: *mut u8) -> &'a AtomicU8 {
    // SAFETY: `span` checked that the address is inside a live mapping, and the callers are methods of that mapping
    // and drop the reference before they return. Every other access to the byte is atomic or comes from another
    // process.
    unsafe { AtomicU8::from_ptr(address) }
}

fn word_at<'a>(address: *mut u8) -> &'a AtomicU64 {
    debug_assert!(address.cast::<u64>().is_aligned());
    // SAFETY: as above, for eight bytes; the callers aligned the address.
    unsafe { AtomicU64::from_ptr(address.cast()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn mapping(bytes: usize) -> Mapping {
        let fd = memfd_create("mapping", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, bytes as u64).unwrap();
        Mapping::new(fd.as_fd(), 0, bytes).unwrap()
    }

    #[test]
    fn copies_are_exact_at_every_alignment() {
        // If this failed, transfers to unaligned offsets would damage neighbouring bytes.
        let memory = mapping(4096);
        for offset in 0..17 {
            for bytes in (0..41).chain([511, 512, 520, 769, 2000]) {
                memory.copy_in(0, &[0xee; 2100]);
                let data: Vec<u8> = (0..bytes).map(|value| ((value * 7) >> 2) as u8).collect();
                memory.copy_in(offset, &data);
                let mut out = vec![0; 2100];
                memory.copy_out(0, &mut out);
                let mut expected = vec![0xee; 2100];
                expected[offset..offset + bytes].copy_from_slice(&data);
                assert_eq!(out, expected, "{bytes} bytes at {offset}");
                let mut back = vec![0; bytes];
                memory.copy_out(offset, &mut back);
                assert_eq!(back, data);
            }
        }
    }

    #[test]
    fn summed_copies_equal_plain_copies() {
        // If this failed, large transfers would carry other bytes than small ones.
        let memory = mapping(1 << 16);
        let data: Vec<u8> = (0..40_000_u32).map(|value| (value.wrapping_mul(97) >> 5) as u8).collect();
        for (offset, bytes) in [(0, 0), (3, 5), (8, 8), (0, 4096), (1, 4096), (7, 513), (64, 40_000)] {
            memory.copy_in(0, &vec![0xee; 1 << 16]);
            let crc = memory.copy_in_summed(offset, &data[..bytes], 5);
            assert_eq!(crc, crc32c::crc32c_append(5, &data[..bytes]));
            let mut out = vec![0; bytes + 2];
            memory.copy_out(offset, &mut out[..bytes + 1]);
            assert!(out[..bytes] == data[..bytes] && out[bytes] == 0xee, "{bytes} bytes at {offset}");
            assert_eq!(memory.sum(offset, bytes, 5), crc);
            let mut back = vec![0; bytes];
            assert_eq!(memory.copy_out_summed(offset, &mut back, 5), crc);
            assert!(back == data[..bytes]);
        }
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn copy_past_the_end_panics() {
        // If this failed, a wrong bound in the protocol would become a wild write in the daemon.
        mapping(4096).copy_in(4090, &[0; 7]);
    }
}
