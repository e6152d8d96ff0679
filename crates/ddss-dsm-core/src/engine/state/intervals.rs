//! Intervals of this rank, and those of others that it knows.

use crate::limits::{INTERVAL_MAX, INTERVALS_END, UNPLACED_BYTES_MAX};
use crate::model::{ChangedPages, LogShape, Notice, Rank, VectorTime};
use std::collections::VecDeque;

/// The vector time of a rank, and the notices in its log ring.
#[derive(Clone, Debug)]
pub(crate) struct Intervals {
    own: Rank,
    shape: LogShape,
    time: VectorTime,
    /// Last interval whose writes are placed, and those of all earlier ones.
    placed: u32,
    /// Intervals behind it with the bytes that were sent to other homes, and their sum.
    unplaced: VecDeque<(u32, u64)>,
    unplaced_bytes: u64,
    /// Notices whose records are in the ring.
    records: VecDeque<Notice>,
}

impl Intervals {
    pub(crate) fn new(own: Rank, shape: LogShape) -> Self {
        let (time, unplaced, records) = (VectorTime::default(), VecDeque::new(), VecDeque::new());
        Self { own, shape, time, placed: 0, unplaced, unplaced_bytes: 0, records }
    }

    /// Returns the vector time.
    pub(crate) fn time(&self) -> VectorTime {
        self.time
    }

    /// Returns the number of the interval that is open.
    pub(crate) fn open(&self) -> u32 {
        self.time.get(self.own) + 1
    }

    /// Returns true if the record of the open interval overwrites none whose writes may not be placed, and the bytes on their way
    /// are not too many.
    pub(crate) fn has_room(&self) -> bool {
        self.open().saturating_sub(self.shape.slots) <= self.placed && self.unplaced_bytes < UNPLACED_BYTES_MAX
    }

    /// Returns true if calls that close the open interval can begin.
    pub(crate) fn have_numbers(&self) -> bool {
        self.open() < INTERVALS_END
    }

    /// Closes the open interval, of which so many bytes were sent to other homes.
    pub(crate) fn close(&mut self, pages: ChangedPages, sent: u64) {
        let interval = self.open();
        if sent > 0 {
            self.unplaced.push_back((interval, sent));
            self.unplaced_bytes += sent;
        }
        assert!(interval <= INTERVAL_MAX, "no call closes an interval behind the last number");
        if self.records.len() == self.shape.slots as usize {
            self.records.pop_front();
        }
        self.records.push_back(Notice { interval, pages });
        self.time.raise(self.own, interval);
    }

    /// Records that the writes of an interval and of all before it are placed.
    pub(crate) fn set_placed(&mut self, interval: u32) {
        self.placed = interval.max(self.placed);
        while let Some((_, sent)) = self.unplaced.front().copied().filter(|(interval, _)| *interval <= self.placed) {
            self.unplaced.pop_front();
            self.unplaced_bytes -= sent;
        }
    }

    /// Adds intervals of other ranks.
    pub(crate) fn join(&mut self, time: &VectorTime) {
        self.time.join(time);
    }

    /// Returns this rank's notices behind `known` up to `last`; `None` if one has left the ring.
    pub(crate) fn notices(&self, known: u32, last: u32) -> Option<Vec<Notice>> {
        let is_asked = |notice: &&Notice| notice.interval > known && notice.interval <= last;
        let notices: Vec<Notice> = self.records.iter().filter(is_asked).cloned().collect();
        (notices.len() == last.saturating_sub(known) as usize).then_some(notices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_on_their_way_are_bounded() {
        // If this broke, a rank that releases faster than its homes take diffs would fill the memory of its node.
        let mut intervals = Intervals::new(Rank::ZERO, LogShape::default());
        for sent in [UNPLACED_BYTES_MAX - 1, 0, 1] {
            assert!(intervals.has_room());
            intervals.close(ChangedPages::Coarse, sent);
        }
        assert!(!intervals.has_room());
        intervals.set_placed(2);
        assert!(intervals.has_room());
        intervals.close(ChangedPages::Coarse, UNPLACED_BYTES_MAX - 1);
        assert!(!intervals.has_room(), "the third one is on its way, too");
        intervals.set_placed(4);
        assert!(intervals.has_room());
    }
}
