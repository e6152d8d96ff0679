//! Bytes that a rank uses, by interval: from them races are found.

use crate::model::{Rank, VectorTime};
use std::ops::Range;

/// Bytes that a rank used in one interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accesses {
    /// Number of the interval.
    pub interval: u32,
    /// Intervals that the rank knew. It knows an interval of another rank if a lock, a barrier or a semaphore orders the two.
    pub time: VectorTime,
    /// Barriers that the rank had passed.
    pub barriers: u64,
    /// Bytes of the space that it read, as the driver named them, sorted.
    pub reads: Vec<Range<u64>>,
    /// Bytes that it changed, sorted.
    pub writes: Vec<Range<u64>>,
}

/// Accesses of a rank that the driver has not taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessLog {
    /// Reads of the open interval.
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) closed: Vec<Accesses>,
}

/// Returns the intervals of two ranks that are concurrent: neither rank knew the other's. Each list has its intervals in order.
pub fn concurrent<'a>(
    ranks: [Rank; 2],
    first: &'a [Accesses],
    second: &'a [Accesses],
) -> impl Iterator<Item = (&'a Accesses, &'a Accesses)> {
    second.iter().flat_map(move |theirs| {
        // Both times only grow: the concurrent ones are neighbours.
        let begin = first.partition_point(|ours| ours.interval <= theirs.time.get(ranks[0]));
        let is_unknown = move |ours: &&Accesses| ours.time.get(ranks[1]) < theirs.interval;
        first[begin..].iter().take_while(is_unknown).map(move |ours| (ours, theirs))
    })
}

/// Sorts ranges, and joins those that meet.
pub fn merge_ranges(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let meets = next.start <= range.end;
        if meets {
            range.end = range.end.max(next.end);
        }
        meets
    });
}

/// Returns the bytes that two sorted lists have in common, without neighbours.
#[must_use]
pub fn common_ranges(first: &[Range<u64>], second: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut first, mut second) = (first.iter().peekable(), second.iter().peekable());
    let mut common: Vec<Range<u64>> = Vec::new();
    while let (Some(one), Some(other)) = (first.peek(), second.peek()) {
        let (start, end) = (one.start.max(other.start), one.end.min(other.end));
        if start < end {
            match common.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => common.push(start..end),
            }
        }
        let done = if one.end <= other.end { &mut first } else { &mut second };
        done.next();
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, ranges that end within each other would be missed, and races with them.
    #[test]
    fn common_bytes_are_those_of_both() {
        let all: Vec<Range<u64>> = (0..6).flat_map(|start| (start + 1..=6).map(move |end| start..end)).collect();
        for one in &all {
            for (first, second) in all.iter().flat_map(|first| all.iter().map(move |second| (first, second))) {
                let mut list = vec![second.clone(), first.clone()];
                merge_ranges(&mut list);
                assert!(list.windows(2).all(|pair| pair[0].end < pair[1].start), "{list:?}");
                let holds = |byte: &u64| (first.contains(byte) || second.contains(byte)) && one.contains(byte);
                let expected: Vec<u64> = (0..6).filter(holds).collect();
                for found in
                    [common_ranges(std::slice::from_ref(one), &list), common_ranges(&list, std::slice::from_ref(one))]
                {
                    assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}
