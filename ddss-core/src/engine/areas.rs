//! Where segments lie. Memory is split by *audience*: those who may read one segment of an area may read every other
//! one in it, so that the whole area can be mapped by a process that may read one.
//!
//! ```text
//!  place (u64):  63      48 47                                   0
//!               +----------+--------------------------------------+
//!               |   area   |            offset in it              |
//!               +----------+--------------------------------------+
//! ```

use super::blocks::Blocks;
use crate::limits::{AREA_BYTES_MAX, AREAS_MAX, BLOCK_BYTES};
use crate::segment::Audience;

/// The area of a place in this node's memory.
pub const fn area_of(place: u64) -> usize {
    (place >> AREA_SHIFT) as usize
}

/// The offset of a place in its area.
pub const fn offset_of(place: u64) -> u64 {
    place & (AREA_BYTES_MAX - 1)
}

const AREA_SHIFT: u32 = AREA_BYTES_MAX.trailing_zeros();

/// The area of what is no segment: copies, and bytes on their way out. Nobody maps it.
pub const OWN_AREA: usize = 0;

/// The area's first place.
const fn start_of(area: usize) -> u64 {
    (area as u64) << AREA_SHIFT
}

#[derive(Debug)]
struct Area {
    audience: Audience,
    blocks: Blocks,
}

/// All memory for segments, one bound over all areas.
#[derive(Debug)]
pub(super) struct Areas {
    areas: Vec<Area>,
    bytes_max: u64,
    free: u64,
}

impl Areas {
    pub(super) fn new(bytes_max: u64) -> Self {
        let bytes_max = bytes_max / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let own = Area { audience: Audience::NOBODY, blocks: Blocks::new(bytes_max.min(AREA_BYTES_MAX)) };
        Self { areas: vec![own], bytes_max, free: bytes_max }
    }

    fn rounded(bytes: u64) -> u64 {
        bytes.next_multiple_of(BLOCK_BYTES as u64)
    }

    fn area(&mut self, audience: Audience) -> Option<usize> {
        if let Some(index) = self.areas.iter().position(|area| area.audience == audience) {
            return Some(index);
        }
        if self.areas.len() == AREAS_MAX {
            return None;
        }
        let blocks = Blocks::new(self.bytes_max.min(AREA_BYTES_MAX));
        self.areas.push(Area { audience, blocks });
        Some(self.areas.len() - 1)
    }

    /// Takes a run of `bytes` in the memory of an audience.
    pub(super) fn take(&mut self, audience: Audience, bytes: u64) -> Option<u64> {
        let wanted = Self::rounded(bytes);
        if wanted > self.free {
            return None;
        }
        let index = self.area(audience)?;
        let offset = self.areas[index].blocks.take(bytes)?;
        self.free -= wanted;
        Some(start_of(index) | offset)
    }

    /// Takes a run that was somebody's before the daemon ended.
    pub(super) fn retake(&mut self, place: u64, audience: Audience, bytes: u64) -> bool {
        let (index, wanted) = (area_of(place), Self::rounded(bytes));
        if index == OWN_AREA || index >= AREAS_MAX || wanted > self.free {
            return false;
        }
        while self.areas.len() <= index {
            // Filled in by the first segment that is found in it.
            let blocks = Blocks::new(self.bytes_max.min(AREA_BYTES_MAX));
            self.areas.push(Area { audience: Audience::NOBODY, blocks });
        }
        let area = &mut self.areas[index];
        if area.audience == Audience::NOBODY {
            area.audience = audience;
        }
        let taken = area.audience == audience && area.blocks.take_at(offset_of(place), bytes);
        self.free -= if taken { wanted } else { 0 };
        taken
    }

    /// Gives back what `take` gave for the same `bytes`.
    pub(super) fn give(&mut self, place: u64, bytes: u64) {
        self.areas[area_of(place)].blocks.give(offset_of(place), bytes);
        self.free += Self::rounded(bytes);
    }

    /// Bytes that are free, in runs of any length.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Identity, Permissions};

    fn audience(uid: u32, mode: u16) -> Audience {
        Permissions { owner: Identity { uid, gid: uid }, mode }.audience()
    }

    #[test]
    fn those_who_may_not_read_the_same_never_share_an_area() {
        // If this broke, a process that maps what it may read would map what it may not.
        let mut areas = Areas::new(1 << 20);
        let mine = areas.take(audience(1, 0o600), 100).unwrap();
        let open = areas.take(audience(1, 0o644), 100).unwrap();
        let theirs = areas.take(audience(2, 0o600), 100).unwrap();
        let again = areas.take(audience(1, 0o620), 100).unwrap();
        assert_ne!(area_of(mine), area_of(open));
        assert_ne!(area_of(mine), area_of(theirs));
        assert_eq!(area_of(mine), area_of(again), "who may write does not matter to who may map");
    }

    #[test]
    fn one_bound_holds_over_all_areas() {
        // If this broke, a node would take more memory than it was told.
        let mut areas = Areas::new(8 * BLOCK_BYTES as u64);
        let first = areas.take(audience(1, 0o600), 5 * BLOCK_BYTES as u64).unwrap();
        assert_eq!(areas.take(audience(2, 0o600), 4 * BLOCK_BYTES as u64), None);
        areas.give(first, 5 * BLOCK_BYTES as u64);
        assert!(areas.take(audience(2, 0o600), 8 * BLOCK_BYTES as u64).is_some());
        assert_eq!(areas.free_bytes(), 0);
    }

    #[test]
    fn what_a_dead_daemon_left_is_taken_once() {
        // If this broke, two segments of a record that was forged or torn would lie over each other.
        let mut areas = Areas::new(1 << 20);
        let place = start_of(2) | 4096;
        assert!(areas.retake(place, audience(1, 0o600), 5000));
        assert!(!areas.retake(place + 4096, audience(1, 0o600), 100), "taken already");
        assert!(!areas.retake(start_of(2) | 65536, audience(2, 0o600), 100), "another audience");
        assert!(!areas.retake(place + 1, audience(1, 0o600), 100), "no block begins there");
        assert!(!areas.retake(start_of(AREAS_MAX), audience(1, 0o600), 100));
        areas.give(place, 5000);
        assert_eq!(areas.free_bytes(), 1 << 20);
    }
}
