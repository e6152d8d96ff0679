//! CRC32c of a few words, such as headers and requests: the CRC instruction alone.

use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

/// Length up to which one chain of instructions is as fast as three chains and their combination.
pub(super) const BYTES_MAX: usize = 256;

/// Returns true if this processor has the instruction.
#[inline]
pub(super) fn is_available() -> bool {
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
