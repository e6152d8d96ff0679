//! Compares the traces of the ranks.

use super::trace::{TraceContent, TracedRegion};
use crate::error::SpaceError;
use ddss_dsm_core::{Accesses, Rank, common_ranges, concurrent};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// Two accesses to the same elements that nothing orders, one of them a write.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Race {
    /// Region. `None` for bytes outside of all regions.
    pub region: Option<String>,
    /// Begin of the elements; of the bytes of the space if there is no region.
    pub start: u64,
    /// End of the elements.
    pub end: u64,
    /// Rank that writes.
    pub writer: u16,
    /// The other rank.
    pub other: u16,
    /// True if the other rank writes too.
    pub both_write: bool,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, start, end, writer, other, both_write } = self;
        if *both_write {
            write!(f, "ranks {writer} and {other} write")?;
        } else {
            write!(f, "rank {writer} writes and rank {other} reads")?;
        }
        match region {
            Some(region) => write!(f, " {region}[{start}..{end}]"),
            None => write!(f, " bytes {start} to {end} of the space"),
        }
    }
}

/// Races of a run in one of its spaces.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Races {
    /// Name of the space.
    pub space: String,
    /// Each race with the number of barriers before it when it came first, and how often it came.
    pub found: Vec<(Race, u64, u64)>,
    /// Ranks whose trace is missing, or that ended without leaving the space: some of their races are not found.
    pub incomplete: Vec<u16>,
}

impl Races {
    /// Finds the races in the traces that the ranks of a run have written into a folder, for each space that they joined.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn find(folder: &Path) -> Result<Vec<Self>, SpaceError> {
        let mut joined: BTreeMap<(String, u16), usize> = BTreeMap::new();
        // All ranks join one space again, or none: the n-th trace of each is of its n-th life.
        let mut lives: BTreeMap<(String, usize), Vec<(u16, TraceContent)>> = BTreeMap::new();
        for (rank, trace) in TraceContent::read_all(folder).map_err(SpaceError::System)? {
            let life = joined.entry((trace.space.clone(), rank)).or_default();
            lives.entry((trace.space.clone(), *life)).or_default().push((rank, trace));
            *life += 1;
        }
        Ok(lives.into_iter().map(|((space, _), traces)| Self::of(space, &traces)).collect())
    }

    /// Compares the traces of the ranks of one space.
    fn of(space: String, traces: &[(u16, TraceContent)]) -> Self {
        let mut found = BTreeMap::new();
        for (index, (rank, trace)) in traces.iter().enumerate() {
            for (other_rank, other) in &traces[index + 1..] {
                let pair = Pair { ranks: [*rank, *other_rank], regions: &trace.regions };
                pair.compare(&trace.intervals, &other.intervals, &mut found);
            }
        }
        let mut found: Vec<_> = found.into_iter().map(|(race, (barriers, count))| (race, barriers, count)).collect();
        found.sort_by_key(|(_, barriers, _)| *barriers);
        let ranks = traces.iter().map(|(_, trace)| trace.ranks).max().unwrap_or_default();
        let mut incomplete: BTreeSet<u16> = (0..ranks).collect();
        for (rank, trace) in traces {
            if trace.is_complete {
                incomplete.remove(rank)
            } else {
                incomplete.insert(*rank)
            };
        }
        Self { space, found, incomplete: incomplete.into_iter().collect() }
    }
}

/// Races, with the barriers before the first and their number.
type Found = BTreeMap<Race, (u64, u64)>;

/// Two ranks.
struct Pair<'a> {
    ranks: [u16; 2],
    regions: &'a [TracedRegion],
}

impl Pair<'_> {
    /// Compares the intervals of the two ranks, which come in their order.
    fn compare(&self, first: &[Accesses], second: &[Accesses], found: &mut Found) {
        let [a, b] = self.ranks;
        let ranks = self.ranks.map(|rank| Rank::new(rank.into()).unwrap_or(Rank::ZERO));
        for (ours, theirs) in concurrent(ranks, first, second) {
            self.add(found, ours.barriers, (a, b, true), common_ranges(&ours.writes, &theirs.writes));
            self.add(found, ours.barriers, (a, b, false), common_ranges(&ours.writes, &theirs.reads));
            self.add(found, ours.barriers, (b, a, false), common_ranges(&theirs.writes, &ours.reads));
        }
    }

    fn add(&self, found: &mut Found, barriers: u64, kind: (u16, u16, bool), bytes: Vec<Range<u64>>) {
        let (writer, other, both_write) = kind;
        for bytes in bytes {
            let (region, Range { start, end }) = self.place(&bytes);
            let race = Race { region, start, end, writer, other, both_write };
            found.entry(race).or_insert((barriers, 0)).1 += 1;
        }
    }

    /// Returns the region and the elements with these bytes.
    fn place(&self, bytes: &Range<u64>) -> (Option<String>, Range<u64>) {
        let holds = |region: &&TracedRegion| {
            let end = region.offset.saturating_add(region.elements.saturating_mul(region.bytes));
            region.bytes > 0 && (region.offset..end).contains(&bytes.start)
        };
        self.regions.iter().find(holds).map_or_else(
            || (None, bytes.clone()),
            |region| {
                let (start, end) = (bytes.start - region.offset, bytes.end - region.offset);
                (Some(region.name.clone()), start / region.bytes..end.div_ceil(region.bytes))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_dsm_core::VectorTime;

    fn interval(
        interval: u32,
        known: &[(usize, u32)],
        reads: Option<Range<u64>>,
        writes: Option<Range<u64>>,
    ) -> Accesses {
        let mut time = VectorTime::default();
        known.iter().for_each(|(rank, interval)| time.raise(Rank::new(*rank).unwrap(), *interval));
        let (reads, writes) = (reads.into_iter().collect(), writes.into_iter().collect());
        Accesses { interval, time, barriers: 0, reads, writes }
    }

    fn races(first: Vec<Accesses>, second: Vec<Accesses>) -> Vec<String> {
        let region = TracedRegion { offset: 4096, elements: 100, bytes: 8, name: "cells".to_owned() };
        let trace = |intervals| TraceContent {
            space: "heat".to_owned(),
            ranks: 2,
            regions: vec![region.clone()],
            intervals,
            is_complete: true,
        };
        let found = Races::of("heat".to_owned(), &[(0, trace(first)), (1, trace(second))]).found;
        found.iter().map(|(race, _, count)| format!("{race} x{count}")).collect()
    }

    #[test]
    fn unordered_accesses_to_one_byte_are_races() {
        // If this broke, a race would stay unseen.
        let bytes = 4096 + 24..4096 + 41;
        let writes = |known| interval(1, known, None, Some(bytes.clone()));
        let reads = |known| interval(1, known, Some(bytes.clone()), None);
        assert_eq!(races(vec![writes(&[])], vec![writes(&[])]), ["ranks 0 and 1 write cells[3..6] x1"]);
        assert_eq!(races(vec![writes(&[])], vec![reads(&[])]), ["rank 0 writes and rank 1 reads cells[3..6] x1"]);
        assert_eq!(races(vec![reads(&[])], vec![writes(&[])]), ["rank 1 writes and rank 0 reads cells[3..6] x1"]);
        assert_eq!(races(vec![reads(&[])], vec![reads(&[])]), [""; 0], "two reads");
        let outside = |from: u64| interval(1, &[], None, Some(from..from + 1));
        assert_eq!(races(vec![outside(7)], vec![outside(7)]), ["ranks 0 and 1 write bytes 7 to 8 of the space x1"]);
        assert_eq!(races(vec![outside(7)], vec![outside(8)]), [""; 0], "neighbours");
    }

    #[test]
    fn missing_and_unfinished_traces_are_named() {
        // If this broke, a check would pass with accesses that it has not compared.
        let trace = |ranks, is_complete| TraceContent { ranks, is_complete, ..TraceContent::default() };
        let incomplete = |traces: &[(u16, TraceContent)]| Races::of(String::new(), traces).incomplete;
        assert_eq!(incomplete(&[(0, trace(2, true)), (1, trace(2, true))]), [0; 0]);
        assert_eq!(incomplete(&[(0, trace(3, true)), (1, trace(3, false))]), [1, 2]);
        assert_eq!(incomplete(&[(3, trace(0, false))]), [3], "its first line is torn");
    }

    #[test]
    fn ordered_accesses_are_no_races() {
        // If this broke, a program without races would fail its check.
        let writes = |number, known: &[(usize, u32)]| interval(number, known, None, Some(4096..4104));
        assert_eq!(races(vec![writes(1, &[])], vec![writes(1, &[(0, 1)])]), [""; 0], "the second knows the first");
        assert_eq!(races(vec![writes(1, &[(1, 1)])], vec![writes(1, &[])]), [""; 0], "the first knows the second");
        // A lock goes to and fro, and once more to the first without an order.
        let first = vec![writes(1, &[]), writes(2, &[(1, 1)]), writes(3, &[(1, 1)])];
        let second = vec![writes(1, &[(0, 1)]), writes(2, &[(0, 2)])];
        assert_eq!(races(first, second), ["ranks 0 and 1 write cells[0..1] x1"]);
    }
}
