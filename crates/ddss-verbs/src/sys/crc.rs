//! CRC32c, alone and combined with a copy, so that payload is read once; and the copy alone with the same vectors.
//!
//! Processors with wide carry-less multiplication sum faster than a core copies from its second-level cache
//! ([`vector`]). The others use the crc32c crate and copy separately. A few words are summed by the CRC instruction
//! alone ([`scalar`]).

#[cfg(target_arch = "x86_64")]
mod scalar;
#[cfg(target_arch = "x86_64")]
mod vector;

/// Length below which vectors do not pay.
#[cfg(target_arch = "x86_64")]
const WIDE_MIN: usize = 512;

/// The side of a copy that no other process can change: repeated reads use that side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Private {
    Source,
    Target,
}

/// Continues `crc` over `bytes`.
#[inline]
pub(crate) fn append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= WIDE_MIN && vector::is_available() {
        let whole = bytes.len() / vector::VECTOR * vector::VECTOR;
        let (folded, rest) = bytes.split_at(whole);
        // SAFETY: `is_available` says that the processor has the features of the function; the range is a slice; nothing
        // is written without a target.
        let crc = unsafe { vector::fold::<false>(crc, folded.as_ptr(), std::ptr::null_mut(), folded.as_ptr(), whole) };
        return append_few(crc, rest);
    }
    append_few(crc, bytes)
}

/// As [`append`], for lengths where vectors do not pay.
#[inline]
fn append_few(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= scalar::BYTES_MAX && scalar::is_available() {
        // SAFETY: `is_available` says that the processor has the features of the function.
        return unsafe { scalar::append(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// Returns the CRC of `bytes`.
#[inline]
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// Returns true if this processor sums so fast that a sum in memory and a copy by the kernel take no longer than one
/// copy with a sum.
#[inline]
pub(crate) fn has_wide_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    let wide = vector::is_available();
    #[cfg(not(target_arch = "x86_64"))]
    let wide = false;
    wide
}

/// Returns true if a copy with a sum takes this processor about as long as the sum alone. AMD cores multiply every
/// other cycle and store a vector in between; on Intel cores the copy takes twice as long.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_free_copy() -> bool {
    static AMD: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        // SAFETY: every x86-64 processor has the instruction, and leaf 0.
        #[allow(unused_unsafe, reason = "an unsafe call before Rust 1.94")]
        let vendor = unsafe { std::arch::x86_64::__cpuid(0) };
        (vendor.ebx, vendor.edx, vendor.ecx) == (0x6874_7541, 0x6974_6e65, 0x444d_4163)
    });
    has_wide_vectors() && *AMD
}

/// Always false without these vectors.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has_free_copy() -> bool {
    false
}

/// Continues `crc` over whole vectors from `from` on, if this processor has them. Returns the number of bytes summed
/// and the CRC.
///
/// # Safety
/// The range of `bytes` bytes is valid, and nothing changes it during the call.
#[inline]
pub(super) unsafe fn sum_whole(crc: u32, from: *const u8, bytes: usize) -> (usize, u32) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= WIDE_MIN && vector::is_available() {
        let whole = bytes / vector::VECTOR * vector::VECTOR;
        // SAFETY: `is_available` says that the processor has the features of the function; the caller guarantees the
        // range; nothing is written without a target.
        let crc = unsafe { vector::fold::<false>(crc, from, std::ptr::null_mut(), from, whole) };
        return (whole, crc);
    }
    let _ = (from, bytes);
    (0, crc)
}

/// Copies whole vectors from `from` to `to` and continues `crc` over them, if this processor has them. Returns the
/// number of bytes copied and the CRC.
///
/// # Safety
/// Both ranges of `bytes` bytes are valid and do not overlap. Other processes may change the range that is not
/// `private` during the call: it is read once, and the bytes read are the bytes written and summed.
#[inline]
pub(super) unsafe fn copy_summed(
    crc: u32,
    from: *const u8,
    to: *mut u8,
    private: Private,
    bytes: usize,
) -> (usize, u32) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= WIDE_MIN && vector::is_available() {
        let whole = bytes / vector::VECTOR * vector::VECTOR;
        let words = if private == Private::Source { from } else { to.cast_const() };
        // SAFETY: `is_available` says that the processor has the features of the function; the caller guarantees both
        // ranges.
        let crc = unsafe { vector::fold::<true>(crc, from, to, words, whole) };
        return (whole, crc);
    }
    let _ = (from, to, private, bytes);
    (0, crc)
}

/// Copies whole vectors from `from` to `to`, if this processor has them. Returns the number of bytes copied.
///
/// # Safety
/// As for [`copy_summed`]. Other processes may change both sides: each byte is read once, and no aligned word is
/// split.
#[inline]
pub(super) unsafe fn copy_plain(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if bytes >= WIDE_MIN && vector::is_available() {
        let whole = bytes / vector::VECTOR * vector::VECTOR;
        // SAFETY: `is_available` says that the processor has the features of the function; the caller guarantees both
        // ranges.
        unsafe { vector::copy(from, to, whole) };
        return whole;
    }
    let _ = (from, to, bytes);
    0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    fn data(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|value| (value.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    /// Copies whole vectors; returns the number of bytes copied.
    fn copy_checked(crc: u32, from: &[u8], to: &mut [u8], private: Private) -> (usize, u32) {
        assert_eq!(from.len(), to.len());
        // SAFETY: two separate buffers of that length.
        unsafe { copy_summed(crc, from.as_ptr(), to.as_mut_ptr(), private, from.len()) }
    }

    #[test]
    fn checksum_matches_the_standard() {
        // If this failed, no other iWARP would accept our frames, or damaged frames would be accepted.
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        let data = data(200_000);
        // Each length of one block, and some of two and four.
        let long = (2100..70_000).step_by(61).chain([65_536, 65_537, 131_071, 131_072, 131_136, 200_000]);
        for bytes in (0..2100).chain(long) {
            let expected = crc32c::crc32c(&data[..bytes]);
            assert_eq!(checksum(&data[..bytes]), expected, "{bytes} bytes");
            let (first, rest) = data[..bytes].split_at(bytes / 3);
            assert_eq!(append(checksum(first), rest), expected, "{bytes} bytes in two parts");
        }
    }

    #[test]
    fn summed_copy_copies_and_sums() {
        // If this failed, sent bytes and summed bytes would differ, and each large read would end its connection.
        let data = data(70_000);
        for bytes in [0, 1, 255, 256, 511, 512, 513, 704, 960, 1024, 4096, 8192, 9000, 65_536, 70_000] {
            for (at, private) in [(0, Private::Source), (3, Private::Target)] {
                let (from, mut out) = (&data[at.min(bytes)..bytes], vec![0xee; bytes - at.min(bytes)]);
                let (done, crc) = copy_checked(77, from, &mut out, private);
                assert!(done == 0 || from.len() - done < 64, "{done} of {bytes} bytes");
                assert_eq!(crc, append(77, &from[..done]), "{bytes} bytes");
                assert_eq!(out[..done], from[..done]);
                assert!(out[done..].iter().all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn sum_covers_the_copied_bytes_while_the_source_changes() {
        // If this failed, a client that writes its memory while its node sends it would end the connection between two
        // nodes.
        const BYTES: usize = 8192;
        const MIXED: u32 = 20_000;
        let shared: Vec<AtomicU64> = (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let over = AtomicBool::new(false);
        let (mut mixed, mut wrong) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in (1..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    shared.iter().for_each(|word| word.store(value, Ordering::Relaxed));
                }
            });
            let mut out = vec![0; BYTES];
            let begun = Instant::now();
            while has_wide_vectors() && mixed < MIXED && begun.elapsed() < Duration::from_secs(10) {
                // SAFETY: both are valid and disjoint; the source changes during the call, the target is private.
                let (done, crc) =
                    unsafe { copy_summed(0, shared.as_ptr().cast(), out.as_mut_ptr(), Private::Target, BYTES) };
                wrong += u32::from(crc != append(0, &out[..done]));
                mixed += u32::from(out[..8] != out[BYTES - 8..]);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(wrong, 0, "sums of other bytes than were copied, of {mixed}");
        assert!(mixed > 100 || !has_wide_vectors(), "the source did not change during the copies: {mixed}");
    }
}
