//! The segments with the most calls, in a 4-way set-associative table. A new segment replaces the one with the fewest
//! recent calls of its set, so that many segments that are used once do not displace a busy one.

use ddss_core::SegmentId;
use ddss_core::status::{Layout, SegmentRow};

/// Kind of access to a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessKind {
    Get,
    Put,
    Other,
}

#[derive(Clone, Copy, Debug)]
struct SegmentCounts {
    segment: u64,
    /// Recent calls: halved from time to time.
    heat: u32,
    dirty: bool,
    gets: u64,
    puts: u64,
    others: u64,
    bytes_got: u64,
    bytes_put: u64,
}

impl SegmentCounts {
    const EMPTY: Self =
        Self { segment: 0, heat: 0, dirty: false, gets: 0, puts: 0, others: 0, bytes_got: 0, bytes_put: 0 };
}

/// Table of the busiest segments.
#[derive(Debug)]
pub(super) struct TopSegments {
    places: Box<[SegmentCounts]>,
    /// Index of the counts of the last call: the next one is often of the same segment.
    last: usize,
    dirty: Vec<u32>,
    /// Segments that were displaced by others.
    pub(super) lost: u64,
}

impl TopSegments {
    const WAYS: usize = 4;
    const SETS: usize = Layout::SEGMENTS / Self::WAYS;

    pub(super) fn new() -> Self {
        let places = vec![SegmentCounts::EMPTY; Layout::SEGMENTS].into_boxed_slice();
        Self { places, last: 0, dirty: Vec::with_capacity(Layout::SEGMENTS), lost: 0 }
    }

    /// Counts a call.
    #[inline]
    pub(super) fn count(&mut self, segment: u64, access: AccessKind, bytes: u64) {
        if self.places[self.last].segment != segment {
            self.last = self.find(segment);
        }
        let place = &mut self.places[self.last];
        place.heat = place.heat.saturating_add(1);
        match access {
            AccessKind::Get => {
                place.gets += 1;
                place.bytes_got += bytes;
            }
            AccessKind::Put => {
                place.puts += 1;
                place.bytes_put += bytes;
            }
            AccessKind::Other => place.others += 1,
        }
        if !place.dirty {
            place.dirty = true;
            self.dirty.push(self.last as u32);
        }
    }

    fn find(&mut self, segment: u64) -> usize {
        let hash = (segment.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let first = hash % Self::SETS * Self::WAYS;
        let ways = &self.places[first..first + Self::WAYS];
        if let Some(way) = ways.iter().position(|place| place.segment == segment) {
            return first + way;
        }
        let coldest = (0..Self::WAYS).min_by_key(|&way| ways[way].heat).unwrap_or(0);
        let place = &mut self.places[first + coldest];
        self.lost += u64::from(place.segment != 0);
        *place = SegmentCounts { segment, dirty: place.dirty, ..SegmentCounts::EMPTY };
        first + coldest
    }

    /// Frees the place of a released segment.
    pub(super) fn remove(&mut self, segment: SegmentId) {
        let index = self.places.iter().position(|place| place.segment == segment.to_bits());
        if let Some(index) = index {
            let dirty = std::mem::replace(&mut self.places[index], SegmentCounts::EMPTY).dirty;
            self.places[index].dirty = true;
            if !dirty {
                self.dirty.push(index as u32);
            }
        }
    }

    /// Halves the heat of all segments, so that old calls count less.
    pub(super) fn decay(&mut self) {
        self.places.iter_mut().for_each(|place| place.heat /= 2);
    }

    /// Passes on each row that has changed or is free again.
    pub(super) fn flush(&mut self, mut write: impl FnMut(usize, Option<&SegmentRow>)) {
        for index in self.dirty.drain(..) {
            let place = &mut self.places[index as usize];
            place.dirty = false;
            let SegmentCounts { segment, gets, puts, others, bytes_got, bytes_put, .. } = *place;
            let segment = SegmentId::from_bits(segment);
            let row = SegmentRow { segment, gets, puts, others, bytes_got, bytes_put };
            write(index as usize, (segment.to_bits() != 0).then_some(&row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn busy_segment_survives_many_segments_used_once() {
        // If this broke, the segment that causes the load would be missing in the table.
        let mut table = TopSegments::new();
        let mut seen = HashMap::new();
        for round in 0..200_000u64 {
            table.count(1, AccessKind::Get, 8);
            table.count(2, AccessKind::Put, 9);
            table.count(1000 + round, AccessKind::Other, 0);
            if round % 10_000 == 0 {
                table.decay();
            }
        }
        assert!(table.lost > 100_000);
        let mut last = None;
        table.flush(|index, row| {
            assert!(index < Layout::SEGMENTS);
            last = row.copied();
            seen.extend(row.map(|row| (row.segment.to_bits(), *row)));
        });
        assert!(last.is_some());
        assert_eq!((seen[&1].gets, seen[&1].bytes_got), (200_000, 1_600_000));
        assert_eq!((seen[&2].puts, seen[&2].bytes_put), (200_000, 1_800_000));
        table.flush(|_, _| panic!("nothing has changed"));
        table.remove(SegmentId::from_bits(1));
        let mut gone = 0;
        table.flush(|_, row| gone += usize::from(row.is_none()));
        assert_eq!(gone, 1);
        table.count(1, AccessKind::Get, 1);
        table.flush(|_, row| assert_eq!(row.unwrap().gets, 1));
    }
}
