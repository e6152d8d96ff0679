//! The CRC of a few words, as headers and requests have: the instruction and nothing around it.

use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

/// Up to here one chain of instructions is as quick as three with what it takes to put them together.
pub(super) const BYTES_MAX: usize = 256;

/// Whether this processor has the instruction.
#[inline]
pub(super) fn available() -> bool {
    std::arch::is_x86_feature_detected!("sse4.2")
}

/// Continues `crc` over `bytes`.
#[target_feature(enable = "sse4.2")]
pub(super) fn append(crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(u64::from(!crc), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    let (halves, rest) = rest.as_chunks::<4>();
    let sum = halves.iter().fold(sum as u32, |sum, half| _mm_crc32_u32(sum, u32::from_le_bytes(*half)));
    !rest.iter().fold(sum, |sum, byte| _mm_crc32_u8(sum, *byte))
}
