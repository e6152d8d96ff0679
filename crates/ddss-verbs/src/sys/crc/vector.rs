//! CRC32c with 512-bit vectors and the CRC instruction side by side.
//!
//! Carry-less multiplication and the CRC instruction use separate units, and each alone is slower than cached memory.
//! A block is therefore cut in four, and a loop takes some words of three chains for each four vectors:
//!
//! ```text
//! | chain 0 | chain 1 | chain 2 | vectors . . . . . . . . . . . . . . |
//! ```
//!
//! The sum of a part is then moved behind the bytes that follow it: multiplied by a power of x. Powers are modulo the
//! polynomial, in the bit-reflected form of the CRC (Gopal et al., *Fast CRC Computation Using PCLMULQDQ*): folding
//! over `t` bits multiplies by `x^(t±32)`, and moving a 32-bit CRC over `t` bits multiplies by `x^(t-33)`; the CRC
//! instruction does the rest.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_set_epi64x, _mm_xor_si128, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_set4_epi64, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
};

/// Bytes of one vector: the summed length is a multiple of it.
pub(super) const VECTOR: usize = 64;
/// Bytes of the vectors that are folded side by side.
const STEP: usize = 4 * VECTOR;
/// Bytes of each chain for one step of the vectors.
const LINK: usize = 32;
const CHAINS: usize = 3;
/// Rounds come in pairs, so that each chain is a whole number of vectors.
const ROUNDS: usize = 2;
/// Maximum bytes of one block.
const BLOCK: usize = 64 << 10;

const POLYNOMIAL: u32 = 0x1edc_6f41;
/// Three-way exclusive or.
const XOR3: i32 = 0x96;

const _: () = assert!((ROUNDS * LINK).is_multiple_of(VECTOR) && BLOCK.is_multiple_of(VECTOR));

/// Returns the product of two polynomials, modulo the polynomial of the CRC.
const fn times(left: u32, right: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        let carry = product >> 31 != 0;
        product <<= 1;
        if carry {
            product ^= POLYNOMIAL;
        }
        if left >> bit & 1 != 0 {
            product ^= right;
        }
    }
    product
}

/// Returns `x^exponent`.
const fn power(exponent: u32) -> u32 {
    let mut value = 1;
    let mut remaining = exponent;
    while remaining > 0 {
        value = times(value, 2);
        remaining -= 1;
    }
    value
}

/// Returns `x^exponent`, reflected, as a 33-bit factor.
const fn factor(exponent: u32) -> i64 {
    (power(exponent).reverse_bits() as i64) << 1
}

const BY_STEP: (i64, i64) = (factor(2048 + 32), factor(2048 - 32));
const BY_VECTOR: (i64, i64) = (factor(512 + 32), factor(512 - 32));
const BY_LANE: (i64, i64) = (factor(128 + 32), factor(128 - 32));

/// Factors that move a CRC behind a number of vectors.
static SHIFT_FACTORS: [u32; BLOCK / VECTOR + 1] = {
    let mut table = [0; BLOCK / VECTOR + 1];
    let (mut value, one) = (power(512 - 33), power(512));
    let mut vectors = 1;
    while vectors < table.len() {
        table[vectors] = value.reverse_bits();
        value = times(value, one);
        vectors += 1;
    }
    table
};

#[inline]
pub(super) fn is_available() -> bool {
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

/// Returns the contribution of a CRC to the last word of the CRC instruction, if `vectors` vectors follow the summed
/// bytes.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.2")]
fn shifted(crc: u64, vectors: usize) -> u64 {
    let by = _mm_cvtsi64_si128(i64::from(SHIFT_FACTORS[vectors]));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(crc as i64), by)) as u64
}

/// Reads a vector, and writes it to the target if there is one.
///
/// # Safety
/// 64 bytes are valid at `from`, and at `to` if `COPY`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn take<const COPY: bool>(from: *const u8, to: *mut u8) -> __m512i {
    // SAFETY: the caller guarantees the source; an unaligned load has no further requirements.
    let vector = unsafe { _mm512_loadu_si512(from.cast()) };
    if COPY {
        // SAFETY: the caller guarantees the target; an unaligned store has no further requirements.
        unsafe { _mm512_storeu_si512(to.cast(), vector) };
    }
    vector
}

/// Reads four consecutive vectors, as [`take`].
///
/// # Safety
/// As [`take`], for 256 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn take_step<const COPY: bool>(from: *const u8, to: *mut u8) -> [__m512i; 4] {
    [0, 64, 128, 192].map(|at| {
        // SAFETY: the caller guarantees 256 bytes at both.
        unsafe { take::<COPY>(from.wrapping_add(at), to.wrapping_add(at)) }
    })
}

/// Copies one link of a chain, if there is a target, and continues `crc` over it. Its words are read from `words`.
///
/// # Safety
/// 32 bytes are valid at `from`, and at `to` if `COPY`; `words` is one of these two.
#[inline]
#[target_feature(enable = "avx512f,sse4.2")]
unsafe fn take_link<const COPY: bool>(crc: u64, from: *const u8, to: *mut u8, words: *const u8) -> u64 {
    if COPY {
        // SAFETY: the caller guarantees the source; an unaligned load has no further requirements.
        let half = unsafe { _mm256_loadu_si256(from.cast()) };
        // SAFETY: the caller guarantees the target; an unaligned store has no further requirements.
        unsafe { _mm256_storeu_si256(to.cast(), half) };
    }
    [0, 8, 16, 24].into_iter().fold(crc, |crc, at| {
        // SAFETY: `words` is a valid range of 32 bytes, and written if it is the target.
        _mm_crc32_u64(crc, unsafe { words.wrapping_add(at).cast::<u64>().read_unaligned() })
    })
}

/// Copies `bytes` bytes, a multiple of [`VECTOR`].
///
/// # Safety
/// The processor has the feature; `bytes` bytes are valid at both, without overlap.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(VECTOR) {
        // SAFETY: a whole vector remains, which the caller guarantees.
        unsafe { take::<true>(from.wrapping_add(at), to.wrapping_add(at)) };
    }
}

/// Continues the CRC over `bytes` bytes at `from`, a multiple of [`VECTOR`]; copies them if `COPY`. Repeated reads use
/// `words`: `from` or, if it was copied there, `to`, whichever no other process can change.
///
/// # Safety
/// The processor has the features; `bytes` bytes are valid at `from`, and at `to` if `COPY`, without overlap.
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) unsafe fn fold<const COPY: bool>(
    mut crc: u32,
    from: *const u8,
    to: *mut u8,
    words: *const u8,
    bytes: usize,
) -> u32 {
    debug_assert!(bytes.is_multiple_of(VECTOR));
    // Blocks have equal length: a short one at the end would take as long as a longer one.
    let blocks = bytes.div_ceil(BLOCK).max(1);
    let block = bytes.div_ceil(blocks).next_multiple_of(VECTOR);
    let mut at = 0;
    while at < bytes {
        let here = block.min(bytes - at);
        // SAFETY: the range is inside the one that the caller guarantees.
        crc = unsafe {
            fold_block::<COPY>(crc, from.wrapping_add(at), to.wrapping_add(at), words.wrapping_add(at), here)
        };
        at += here;
    }
    crc
}

/// Sums one block of at most [`BLOCK`] bytes, as [`fold`].
///
/// # Safety
/// As [`fold`].
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn fold_block<const COPY: bool>(crc: u32, from: *const u8, to: *mut u8, words: *const u8, bytes: usize) -> u32 {
    let rounds = bytes.saturating_sub(STEP) / (STEP + CHAINS * LINK) / ROUNDS * ROUNDS;
    let chain = rounds * LINK;
    let mut at = CHAINS * chain;
    let vectors = (bytes - at) / VECTOR;
    let mut chains = [u64::from(!crc), 0, 0];
    let by_vector = _mm512_set4_epi64(BY_VECTOR.1, BY_VECTOR.0, BY_VECTOR.1, BY_VECTOR.0);
    let mut folded = if bytes - at >= STEP {
        let by_step = _mm512_set4_epi64(BY_STEP.1, BY_STEP.0, BY_STEP.1, BY_STEP.0);
        // SAFETY: for all reads: `at` goes from the first vector behind the chains to the end, and each chain has a
        // link for each round.
        let [mut a, mut b, mut c, mut d] = unsafe { take_step::<COPY>(from.wrapping_add(at), to.wrapping_add(at)) };
        at += STEP;
        let mut link = 0;
        while bytes - at >= STEP {
            // SAFETY: as above.
            let next = unsafe { take_step::<COPY>(from.wrapping_add(at), to.wrapping_add(at)) };
            a = fold_vector(a, by_step, next[0]);
            b = fold_vector(b, by_step, next[1]);
            c = fold_vector(c, by_step, next[2]);
            d = fold_vector(d, by_step, next[3]);
            at += STEP;
            if link < chain {
                for (index, crc) in chains.iter_mut().enumerate() {
                    let here = index * chain + link;
                    let (from, to) = (from.wrapping_add(here), to.wrapping_add(here));
                    // SAFETY: as above.
                    *crc = unsafe { take_link::<COPY>(*crc, from, to, words.wrapping_add(here)) };
                }
                link += LINK;
            }
        }
        b = fold_vector(a, by_vector, b);
        c = fold_vector(b, by_vector, c);
        fold_vector(c, by_vector, d)
    } else {
        at += VECTOR;
        // SAFETY: as above.
        unsafe { take::<COPY>(from.wrapping_add(at - VECTOR), to.wrapping_add(at - VECTOR)) }
    };
    while at < bytes {
        // SAFETY: as above.
        let next = unsafe { take::<COPY>(from.wrapping_add(at), to.wrapping_add(at)) };
        folded = fold_vector(folded, by_vector, next);
        at += VECTOR;
    }
    let by_lane = _mm_set_epi64x(BY_LANE.1, BY_LANE.0);
    let mut lane = _mm512_extracti32x4_epi32::<0>(folded);
    lane = fold_lane(lane, by_lane, _mm512_extracti32x4_epi32::<1>(folded));
    lane = fold_lane(lane, by_lane, _mm512_extracti32x4_epi32::<2>(folded));
    lane = fold_lane(lane, by_lane, _mm512_extracti32x4_epi32::<3>(folded));
    let of_chains = shifted(chains[0], vectors + 2 * chain / VECTOR)
        ^ shifted(chains[1], vectors + chain / VECTOR)
        ^ shifted(chains[2], vectors);
    // The rest is congruent to everything that was folded, so its CRC is the CRC.
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane) as u64);
    !(_mm_crc32_u64(crc, _mm_extract_epi64::<1>(lane) as u64 ^ of_chains) as u32)
}
