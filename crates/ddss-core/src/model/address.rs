//! Addresses in a node's memory for segments: an area and an offset in it.
//!
//! ```text
//!  place (u64):  63      48 47                                   0
//!               +----------+--------------------------------------+
//!               |   area   |            offset in it              |
//!               +----------+--------------------------------------+
//! ```

use crate::limits::AREA_BYTES_MAX;

const AREA_SHIFT: u32 = AREA_BYTES_MAX.trailing_zeros();

/// Area of memory outside segments: cached copies, and bytes on their way out. No client maps it.
pub const OWN_AREA: usize = 0;

/// Returns the area of a place in a node's memory.
pub const fn area_of(place: u64) -> usize {
    (place >> AREA_SHIFT) as usize
}

/// Returns the offset of a place in its area.
pub const fn offset_of(place: u64) -> u64 {
    place & (AREA_BYTES_MAX - 1)
}

/// Returns the first place of an area.
pub const fn start_of(area: usize) -> u64 {
    (area as u64) << AREA_SHIFT
}
