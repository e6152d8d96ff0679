//! Trace of a rank in one space: a file with a line for each region and each interval.
//!
//! ```text
//! space RANKS NAME
//! region OFFSET ELEMENTS BYTES NAME
//! interval NUMBER BARRIERS TIME,TIME,... READS WRITES
//! end
//! ```
//!
//! `READS` and `WRITES` are ranges such as `0-8,64-72`, or `-`. A line is written at once: a rank that is killed loses the last.

use ddss_dsm_core::limits::RANKS_MAX;
use ddss_dsm_core::{Accesses, Rank, VectorTime};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Ends of the names of traces, behind `RANK.NUMBER`.
const SUFFIX: &str = ".trace";
/// Spaces that a rank of one run joins at most while races are looked for.
const TRACES_MAX: u32 = 1024;

/// A region, as a trace names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TracedRegion {
    pub(crate) offset: u64,
    pub(crate) elements: u64,
    /// Bytes of an element.
    pub(crate) bytes: u64,
    pub(crate) name: String,
}

/// File to which a rank writes.
#[derive(Debug)]
pub(crate) struct Trace(File);

impl Trace {
    /// Creates the next trace of a rank, which may join several spaces, and one space again.
    pub(crate) fn create(folder: &Path, rank: u16, (space, ranks): (&str, u16)) -> io::Result<Self> {
        for number in 0..TRACES_MAX {
            match File::create_new(folder.join(format!("{rank}.{number}{SUFFIX}"))) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => {
                    let trace = Self(created?);
                    trace.write_line(format!("space {ranks} {}", space.escape_default()))?;
                    return Ok(trace);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn write_region(&self, region: &TracedRegion) -> io::Result<()> {
        let TracedRegion { offset, elements, bytes, name } = region;
        self.write_line(format!("region {offset} {elements} {bytes} {}", name.escape_default()))
    }

    pub(crate) fn write_accesses(&self, accesses: &Accesses) -> io::Result<()> {
        let Accesses { interval, time, barriers, reads, writes } = accesses;
        let time: Vec<_> = time.intervals().iter().map(u32::to_string).collect();
        self.write_line(format!("interval {interval} {barriers} {} {} {}", time.join(","), join(reads), join(writes)))
    }

    /// Records that nothing follows.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.write_line("end".to_owned())
    }

    fn write_line(&self, mut line: String) -> io::Result<()> {
        line.push('\n');
        (&self.0).write_all(line.as_bytes())
    }
}

fn join(ranges: &[Range<u64>]) -> String {
    let mut text = String::new();
    for Range { start, end } in ranges {
        let comma = if text.is_empty() { "" } else { "," };
        // A string takes all that is written.
        let _ = write!(text, "{comma}{start}-{end}");
    }
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Content of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TraceContent {
    /// Name and ranks of the space; empty and 0 in a trace whose first line is torn.
    pub(crate) space: String,
    pub(crate) ranks: u16,
    pub(crate) regions: Vec<TracedRegion>,
    pub(crate) intervals: Vec<Accesses>,
    /// True if the rank has left the space.
    pub(crate) is_complete: bool,
}

impl TraceContent {
    /// Reads the traces of all ranks in a folder, with the numbers of the ranks. Those of one rank come in their order.
    pub(crate) fn read_all(folder: &Path) -> io::Result<Vec<(u16, Self)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path: PathBuf = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let numbers = name.strip_suffix(SUFFIX).and_then(|numbers| numbers.split_once('.'));
            let Some((rank, number)) = numbers else { continue };
            if let (Ok(rank), Ok(number)) = (rank.parse::<u16>(), number.parse::<u32>()) {
                found.push(((rank, number), Self::parse(&std::fs::read_to_string(&path)?)));
            }
        }
        found.sort_unstable_by_key(|(numbers, _)| *numbers);
        Ok(found.into_iter().map(|((rank, _), trace)| (rank, trace)).collect())
    }

    /// Parses the lines up to the first that is incomplete.
    fn parse(text: &str) -> Self {
        let mut content = Self::default();
        for line in text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n')) {
            content.is_complete = line == "end";
            let known = match line.split_once(' ') {
                Some(("space", rest)) => parse_space(rest).map(|(ranks, name)| {
                    (content.ranks, content.space) = (ranks, name);
                }),
                Some(("region", rest)) => parse_region(rest).map(|region| content.regions.push(region)),
                Some(("interval", rest)) => parse_accesses(rest).map(|accesses| content.intervals.push(accesses)),
                _ => None,
            };
            if known.is_none() {
                break;
            }
        }
        content
    }
}

fn parse_space(text: &str) -> Option<(u16, String)> {
    let (ranks, name) = text.split_once(' ')?;
    Some((ranks.parse().ok()?, name.to_owned()))
}

fn parse_region(text: &str) -> Option<TracedRegion> {
    let mut words = text.splitn(4, ' ');
    let mut number = || words.next()?.parse().ok();
    let (offset, elements, bytes) = (number()?, number()?, number()?);
    Some(TracedRegion { offset, elements, bytes, name: words.next()?.to_owned() })
}

fn parse_accesses(text: &str) -> Option<Accesses> {
    let mut words = text.split(' ');
    let (interval, barriers) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut time = VectorTime::default();
    let intervals = words.next()?.split(',').map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>()?;
    if intervals.len() != RANKS_MAX {
        return None;
    }
    (0..RANKS_MAX).filter_map(Rank::new).zip(intervals).for_each(|(rank, interval)| time.raise(rank, interval));
    let (reads, writes) = (parse_ranges(words.next()?)?, parse_ranges(words.next()?)?);
    Some(Accesses { interval, time, barriers, reads, writes })
}

fn parse_ranges(text: &str) -> Option<Vec<Range<u64>>> {
    let range = |word: &str| {
        let (start, end) = word.split_once('-')?;
        Some(start.parse().ok()?..end.parse().ok()?)
    };
    if text == "-" { Some(Vec::new()) } else { text.split(',').map(range).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_is_read_as_it_was_written_and_a_torn_line_is_left_out() {
        // If this broke, a race would be reported for other elements, or the trace of a killed rank would be of no use.
        let text = "space 2 heat/a b\nregion 8192 512 8 two words\ninterval 7 3 0,6,0,0,0,0,0,0,0,0,0,0,0,0,0,9 0-8,64-72 -\nend\n";
        let content = TraceContent::parse(text);
        let [accesses] = &content.intervals[..] else { panic!("{content:?}") };
        assert_eq!((accesses.interval, accesses.barriers, accesses.time.intervals()[15]), (7, 3, 9));
        assert_eq!(accesses.reads, [0..8, 64..72]);
        assert!(accesses.writes.is_empty() && content.is_complete);
        assert_eq!(
            (content.regions[0].name.as_str(), content.ranks, content.space.as_str()),
            ("two words", 2, "heat/a b")
        );
        let fields = format!("{} {} {}", accesses.interval, accesses.barriers, join(&accesses.reads));
        assert_eq!((fields.as_str(), join(&[]).as_str()), ("7 3 0-8,64-72", "-"));
        for end in 0..text.len() {
            let torn = TraceContent::parse(&text[..end]);
            assert!(!torn.is_complete && torn.intervals.iter().all(|found| found == accesses));
        }
    }
}
