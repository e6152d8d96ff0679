//! Tags of reads and swaps.

use crate::model::Rank;

/// Identifies a read or a swap until it is complete.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tag {
    /// Swap of a home word, for the page in flight in this slot.
    Claim(u16),
    /// Read of a version line.
    Line(u16),
    /// Read of a page.
    Page(u16),
    /// Read behind writes to a rank, which are placed when it is complete.
    Fence(u32, Rank),
    /// Read of a log.
    Log,
}

impl Tag {
    /// Returns the tag as a number, for the fabric.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        match self {
            Self::Claim(slot) => 1 << 40 | slot as u64,
            Self::Line(slot) => 2 << 40 | slot as u64,
            Self::Page(slot) => 3 << 40 | slot as u64,
            Self::Fence(number, home) => 4 << 40 | (home.index() as u64) << 32 | number as u64,
            Self::Log => 5 << 40,
        }
    }

    /// Returns the tag of a number: `None` if no tag has this number.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        let slot = bits as u16;
        let tag = match bits >> 40 {
            1 => Self::Claim(slot),
            2 => Self::Line(slot),
            3 => Self::Page(slot),
            4 => Self::Fence(bits as u32, Rank::new((bits >> 32) as usize & 0xff)?),
            5 => Self::Log,
            _ => return None,
        };
        if tag.to_bits() == bits { Some(tag) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a completion would be taken for that of another operation.
    #[test]
    fn tags_survive_their_way_through_the_fabric() {
        for tag in [Tag::Claim(7), Tag::Line(u16::MAX), Tag::Page(0), Tag::Fence(u32::MAX, Rank::ZERO), Tag::Log] {
            assert_eq!(Tag::from_bits(tag.to_bits()), Some(tag));
        }
        for bits in [0, 6 << 40, 1 << 40 | 1 << 16, 5 << 40 | 1, 4 << 40 | 99 << 32] {
            assert_eq!(Tag::from_bits(bits), None);
        }
    }
}
