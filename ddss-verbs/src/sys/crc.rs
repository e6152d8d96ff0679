//! CRC32c, alone and while copying: payload is touched once, not twice. And the copy alone, by the same vectors.
//!
//! Processors with wide carry-less multiplication fold 256 bytes at a step, which is as fast as a copy; the others use the
//! crc32c crate and copy apart. The constants are computed here: folding over `t` bits multiplies by `x^(t±32)` modulo the
//! polynomial, in the bit-reflected form that the CRC works in (Gopal et al., *Fast CRC Computation Using PCLMULQDQ*).

/// Bytes of one step.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 256;
/// Below this, steps are not worth their start and end.
#[cfg(target_arch = "x86_64")]
const FOLD_MIN: usize = 512;

/// Continues `crc` over `bytes`.
#[inline]
pub(crate) fn append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= FOLD_MIN && wide::available() {
        let steps = bytes.len() / STEP * STEP;
        let (folded, rest) = bytes.split_at(steps);
        // SAFETY: `available` says that the processor has what the function is compiled for; the range is a
        // slice; nothing is written without a target.
        let crc = unsafe { wide::fold::<false>(crc, folded.as_ptr(), std::ptr::null_mut(), steps) };
        return crc32c::crc32c_append(crc, rest);
    }
    crc32c::crc32c_append(crc, bytes)
}

/// The CRC over `bytes`.
#[inline]
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// Whether this processor sums so fast that a sum over memory and then a copy by the kernel take no longer than one copy
/// with a sum.
#[inline]
pub(crate) fn is_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    let wide = wide::available();
    #[cfg(not(target_arch = "x86_64"))]
    let wide = false;
    wide
}

/// Continues `crc` over whole steps from `from` on, if this processor is good at it. Returns how many bytes it did and the
/// CRC.
///
/// # Safety
/// The range of `bytes` bytes is valid. Others may change it meanwhile: each vector is read once.
#[inline]
pub(super) unsafe fn sum_steps(crc: u32, from: *const u8, bytes: usize) -> (usize, u32) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= FOLD_MIN && wide::available() {
        let steps = bytes / STEP * STEP;
        // SAFETY: `available` says that the processor has what the function is compiled for; the caller vouches
        // for the range; nothing is written without a target.
        let crc = unsafe { wide::fold::<false>(crc, from, std::ptr::null_mut(), steps) };
        return (steps, crc);
    }
    let _ = (from, bytes);
    (0, crc)
}

/// Copies whole steps from `from` to `to` and continues `crc` over them, if this processor is good at it. Returns how
/// many bytes it did and the CRC.
///
/// # Safety
/// Both ranges of `bytes` bytes are valid and do not overlap. Other processes may change them meanwhile: each
/// vector is read once, and what was read is what is written and summed.
#[inline]
pub(super) unsafe fn copy_steps(crc: u32, from: *const u8, to: *mut u8, bytes: usize) -> (usize, u32) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= FOLD_MIN && wide::available() {
        let steps = bytes / STEP * STEP;
        // SAFETY: `available` says that the processor has what the function is compiled for; the caller vouches
        // for both ranges.
        let crc = unsafe { wide::fold::<true>(crc, from, to, steps) };
        return (steps, crc);
    }
    let _ = (from, to, bytes);
    (0, crc)
}

/// Copies whole steps from `from` to `to`, if this processor is good at it. Returns how many bytes it did.
///
/// # Safety
/// As for [`copy_steps`]: what is written was read once, and no aligned word is split.
#[inline]
pub(super) unsafe fn copy_plain(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if bytes >= FOLD_MIN && wide::available() {
        let steps = bytes / STEP * STEP;
        // SAFETY: `available` says that the processor has what the function is compiled for; the caller vouches
        // for both ranges.
        unsafe { wide::copy(from, to, steps) };
        return steps;
    }
    let _ = (from, to, bytes);
    0
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi64x,
        _mm_xor_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_set4_epi64,
        _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    use super::STEP;

    const POLYNOMIAL: u32 = 0x1edc_6f41;
    /// Three-way exclusive or.
    const XOR3: i32 = 0x96;

    /// `x^power` modulo the polynomial, reflected, as a 33-bit factor.
    const fn factor(power: u32) -> i64 {
        let mut value = 1_u32;
        let mut left = power;
        while left > 0 {
            let carry = value >> 31 != 0;
            value <<= 1;
            if carry {
                value ^= POLYNOMIAL;
            }
            left -= 1;
        }
        (value.reverse_bits() as i64) << 1
    }

    const BY_STEP: (i64, i64) = (factor(2048 + 32), factor(2048 - 32));
    const BY_VECTOR: (i64, i64) = (factor(512 + 32), factor(512 - 32));
    const BY_LANE: (i64, i64) = (factor(128 + 32), factor(128 - 32));

    #[inline]
    pub(super) fn available() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
            && std::arch::is_x86_feature_detected!("sse4.2")
    }

    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold_vector(accumulator: __m512i, factors: __m512i, next: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128::<0x00>(accumulator, factors);
        let high = _mm512_clmulepi64_epi128::<0x11>(accumulator, factors);
        _mm512_ternarylogic_epi64::<XOR3>(low, high, next)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.2")]
    fn fold_lane(accumulator: __m128i, factors: __m128i, next: __m128i) -> __m128i {
        let low = _mm_clmulepi64_si128::<0x00>(accumulator, factors);
        let high = _mm_clmulepi64_si128::<0x11>(accumulator, factors);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }

    /// Reads a vector, and writes it to the target if there is one.
    ///
    /// # Safety
    /// 64 bytes are valid at `from`, and at `to` if `COPY`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn take<const COPY: bool>(from: *const u8, to: *mut u8) -> __m512i {
        // SAFETY: the caller vouches for the source; an unaligned load has no further needs.
        let vector = unsafe { _mm512_loadu_si512(from.cast()) };
        if COPY {
            // SAFETY: the caller vouches for the target; an unaligned store has no further needs.
            unsafe { _mm512_storeu_si512(to.cast(), vector) };
        }
        vector
    }

    /// Four vectors in a row.
    ///
    /// # Safety
    /// As [`take`], for 256 bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn take_step<const COPY: bool>(from: *const u8, to: *mut u8) -> [__m512i; 4] {
        [0, 64, 128, 192].map(|at| {
            // SAFETY: the caller vouches for 256 bytes at both.
            unsafe { take::<COPY>(from.wrapping_add(at), to.wrapping_add(at)) }
        })
    }

    /// Copies `bytes` bytes, a multiple of [`STEP`].
    ///
    /// # Safety
    /// The processor has the feature; `bytes` bytes are valid at both, without overlap.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(STEP) {
            // SAFETY: a whole step is left, for which the caller vouches.
            unsafe { take_step::<true>(from.wrapping_add(at), to.wrapping_add(at)) };
        }
    }

    /// The CRC continued over `bytes` bytes at `from`, a multiple of [`STEP`] and not zero; copies them if `COPY`.
    ///
    /// # Safety
    /// The processor has the features; `bytes` bytes are valid at `from`, and at `to` if `COPY`, without overlap.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) unsafe fn fold<const COPY: bool>(crc: u32, from: *const u8, to: *mut u8, bytes: usize) -> u32 {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(STEP));
        let by_step = _mm512_set4_epi64(BY_STEP.1, BY_STEP.0, BY_STEP.1, BY_STEP.0);
        // SAFETY: there is at least one step.
        let [mut a, mut b, mut c, mut d] = unsafe { take_step::<COPY>(from, to) };
        let start = _mm_set_epi64x(0, i64::from(!crc));
        a = _mm512_xor_si512(a, _mm512_zextsi128_si512(start));
        let mut at = STEP;
        while at < bytes {
            // SAFETY: a whole step is left.
            let next = unsafe { take_step::<COPY>(from.wrapping_add(at), to.wrapping_add(at)) };
            a = fold_vector(a, by_step, next[0]);
            b = fold_vector(b, by_step, next[1]);
            c = fold_vector(c, by_step, next[2]);
            d = fold_vector(d, by_step, next[3]);
            at += STEP;
        }
        let by_vector = _mm512_set4_epi64(BY_VECTOR.1, BY_VECTOR.0, BY_VECTOR.1, BY_VECTOR.0);
        b = fold_vector(a, by_vector, b);
        c = fold_vector(b, by_vector, c);
        d = fold_vector(c, by_vector, d);
        let by_lane = _mm_set_epi64x(BY_LANE.1, BY_LANE.0);
        let mut lane = _mm512_extracti32x4_epi32::<0>(d);
        lane = fold_lane(lane, by_lane, _mm512_extracti32x4_epi32::<1>(d));
        lane = fold_lane(lane, by_lane, _mm512_extracti32x4_epi32::<2>(d));
        lane = fold_lane(lane, by_lane, _mm512_extracti32x4_epi32::<3>(d));
        // What is left is congruent to all that was folded, so its CRC is the CRC.
        let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane) as u64);
        let crc = _mm_crc32_u64(crc, _mm_extract_epi64::<1>(lane) as u64);
        !(crc as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_of_the_standard() {
        // If this failed, no other iWARP would talk to us, or damaged frames would be taken for good.
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        let data: Vec<u8> = (0..20_000_u32).map(|value| (value.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for bytes in (0..2100).chain([4096, 8192, 16_384 + 17, 20_000]) {
            let expected = crc32c::crc32c(&data[..bytes]);
            assert_eq!(checksum(&data[..bytes]), expected, "{bytes} bytes");
            let (first, rest) = data[..bytes].split_at(bytes / 3);
            assert_eq!(append(checksum(first), rest), expected, "{bytes} bytes in two parts");
        }
    }

    #[test]
    fn a_copy_copies_and_sums() {
        // If this failed, what is sent and what is summed would differ, and each large read would kill its connection.
        let data: Vec<u8> = (0..9000_u32).map(|value| ((value * 7) >> 3) as u8).collect();
        for bytes in [0, 1, 255, 256, 511, 512, 513, 4096, 9000] {
            let mut out = vec![0xee; bytes];
            // SAFETY: two separate buffers of that length.
            let (done, crc) = unsafe { copy_steps(77, data.as_ptr(), out.as_mut_ptr(), bytes) };
            assert!(done <= bytes);
            assert_eq!(crc, append(77, &data[..done]));
            assert_eq!(out[..done], data[..done]);
            assert!(out[done..].iter().all(|byte| *byte == 0xee));
        }
    }
}
