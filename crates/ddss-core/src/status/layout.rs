//! Layout of the status page. All words are 64 bits in native byte order, and each is written atomically.
//!
//! ```text
//!  offset
//!  0            +-------------------------------------------------------------------+
//!               | identity, 24 words: magic, layout version, bytes of the page,     |
//!               | node, pid, when that process began, run, started at, user,        |
//!               | protocol, release (2), state, heartbeat (2), core, shard, ..      |
//!  192          +-------------------------------------------------------------------+
//!               | sections, 2 words each: offset | rows u32, bytes of a row u32     |
//!  512          +-------------------------------------------------------------------+
//!               | counters: a word each (counters.rs)                               |
//!  1536         +-------------------------------------------------------------------+
//!               | gauges: a word each                                               |
//!  2560         +-------------------------------------------------------------------+
//!               | operations: a line each: done, failed, indeterminate, bytes, waited|
//!               +-------------------------------------------------------------------+
//!               | failures: how often each was told, a word each                    |
//!               +-------------------------------------------------------------------+
//!               | histograms: for each kind, location, step 240 buckets, the sum    |
//!               +-------------------------------------------------------------------+
//!               | clients, segments, peers, samples: rows (rows.rs)                 |
//!               +-------------------------------------------------------------------+
//! ```
//!
//! A page of another *version* is laid out otherwise. In one of the same version rows may have become longer and more,
//! at their end; its table of sections says so.

use super::counters::{Counter, Gauge, Kind, Location, Step, Tally};
use super::histogram::Histogram;
use super::rows::{ClientRow, PeerRow, Row, SampleRow, SegmentRow};
use crate::limits::{CLIENTS_MAX, NODES_MAX};
use std::mem::offset_of;

const WORD: usize = size_of::<u64>();

/// Shape of the first words of the page. It only gives their offsets: they are written and read one by one.
#[repr(C)]
struct IdentityShape {
    magic: u64,
    version: u64,
    bytes: u64,
    node: u64,
    pid: u64,
    process_began: u64,
    run: u64,
    started_us: u64,
    user: u64,
    protocol: u64,
    release: [u64; 2],
    state: u64,
    heartbeat_ns: u64,
    heartbeat_us: u64,
    core: u64,
    shard: u64,
    reserved: [u64; 7],
}

const _: () = assert!(offset_of!(IdentityShape, magic) == 0);
const _: () = assert!(offset_of!(IdentityShape, version) == 8);
const _: () = assert!(offset_of!(IdentityShape, bytes) == 16);
const _: () = assert!(offset_of!(IdentityShape, node) == IdentityWord::Node.at());
const _: () = assert!(offset_of!(IdentityShape, release) == IdentityWord::Release.at());
const _: () = assert!(offset_of!(IdentityShape, state) == IdentityWord::State.at());
const _: () = assert!(offset_of!(IdentityShape, core) == IdentityWord::Core.at());
const _: () = assert!(offset_of!(IdentityShape, shard) == IdentityWord::Shard.at());
const _: () = assert!(size_of::<IdentityShape>() == SECTIONS_AT);

/// Word of the identity section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum IdentityWord {
    /// Node id.
    Node = 3,
    /// Process id of the daemon.
    Pid,
    /// Start of that process, in kernel ticks since the boot: it tells a reused process id apart.
    ProcessBegan,
    /// Run of the node.
    Run,
    /// Start of the run, in microseconds since 1970.
    StartedUs,
    /// User id, and above it the group id.
    User,
    /// Ring layout version, and above it the protocol between nodes.
    Protocol,
    /// Release: sixteen bytes of text.
    Release,
    /// State of the daemon: [`DaemonState`](super::DaemonState).
    State = 12,
    /// Last heartbeat on the monotonic clock.
    HeartbeatNs,
    /// Last heartbeat on the wall clock, in microseconds since 1970.
    HeartbeatUs,
    /// Core of the progress thread plus one, 0 if it has none.
    Core,
    /// Index of the shard, and above it the number of shards; 0 if there is one.
    Shard,
}

impl IdentityWord {
    /// Returns its offset.
    pub const fn at(self) -> usize {
        self as usize * WORD
    }
}

/// Section of the page that consists of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// Offset of the section.
    pub at: usize,
    /// Number of rows.
    pub rows: usize,
    /// Bytes of one row.
    pub row_bytes: usize,
}

const SECTIONS_AT: usize = 192;

const fn after(before: Section, rows: usize, row_bytes: usize) -> Section {
    Section { at: (before.at + before.rows * before.row_bytes).next_multiple_of(64), rows, row_bytes }
}

/// Offsets of all sections.
#[derive(Debug)]
pub struct Layout;

impl Layout {
    /// First word: `DDSSTAT` and a zero.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"DDSSTAT\0");
    /// Version of the layout; it changes when an older reader would misread the page.
    pub const VERSION: u64 = 1;
    /// Offset of the sum in a histogram row.
    pub const SUM_AT: usize = Histogram::BUCKETS * WORD;
    /// Words for failures: their codes are smaller.
    pub const FAILURES: usize = 64;
    /// Rows for segments.
    pub const SEGMENTS: usize = 1024;
    /// Rows for sampled requests.
    pub const SAMPLES: usize = 256;
    /// Bytes of the largest page that is accepted.
    pub const BYTES_MAX: usize = 8 << 20;

    /// Counters.
    pub const COUNTERS: Section = Section { at: 512, rows: Counter::COUNT, row_bytes: WORD };
    /// Gauges.
    pub const GAUGES: Section = Section { at: 1536, rows: Gauge::COUNT, row_bytes: WORD };
    /// Outcomes of requests by kind.
    pub const OPERATIONS: Section = Section { at: 2560, rows: Kind::COUNT, row_bytes: 64 };
    /// Reports of each failure.
    pub const FAILED: Section = after(Self::OPERATIONS, Self::FAILURES, WORD);
    /// Durations of steps.
    pub const HISTOGRAMS: Section =
        after(Self::FAILED, Kind::COUNT * Location::COUNT * Step::COUNT, (Histogram::BUCKETS + 8) * WORD);
    /// Attached clients; the row is the client's slot.
    pub const CLIENTS: Section = after(Self::HISTOGRAMS, CLIENTS_MAX, ClientRow::BYTES);
    /// The busiest segments.
    pub const SEGMENT_ROWS: Section = after(Self::CLIENTS, Self::SEGMENTS, SegmentRow::BYTES);
    /// The other nodes.
    pub const PEERS: Section = after(Self::SEGMENT_ROWS, NODES_MAX, PeerRow::BYTES);
    /// Last sampled requests.
    pub const SAMPLE_ROWS: Section = after(Self::PEERS, Self::SAMPLES, SampleRow::BYTES);
    /// Bytes of the page.
    pub const BYTES: usize = after(Self::SAMPLE_ROWS, 0, WORD).at.next_multiple_of(4096);

    /// All sections, in the order of their table.
    pub const SECTIONS: [Section; 9] = [
        Self::COUNTERS,
        Self::GAUGES,
        Self::OPERATIONS,
        Self::FAILED,
        Self::HISTOGRAMS,
        Self::CLIENTS,
        Self::SEGMENT_ROWS,
        Self::PEERS,
        Self::SAMPLE_ROWS,
    ];

    /// Returns the offset of a counter.
    pub const fn counter_at(counter: Counter) -> usize {
        Self::COUNTERS.at + counter.index() * WORD
    }

    /// Returns the offset of a gauge.
    pub const fn gauge_at(gauge: Gauge) -> usize {
        Self::GAUGES.at + gauge.index() * WORD
    }

    /// Returns the offset of a tally of one kind of request.
    pub const fn operation_at(kind: Kind, tally: Tally) -> usize {
        Self::OPERATIONS.at + kind.index() * Self::OPERATIONS.row_bytes + tally.index() * WORD
    }

    /// Returns the offset of a failure's count.
    pub const fn failure_at(code: u8) -> usize {
        Self::FAILED.at + (code as usize % Self::FAILURES) * WORD
    }

    /// Returns the offset of a histogram.
    pub const fn histogram_at(kind: Kind, location: Location, step: Step) -> usize {
        let row = (kind.index() * Location::COUNT + location.index()) * Step::COUNT + step.index();
        Self::HISTOGRAMS.at + row * Self::HISTOGRAMS.row_bytes
    }

    /// Returns the offset of a section's descriptor.
    pub(super) const fn section_at(index: usize) -> usize {
        SECTIONS_AT + index * 2 * WORD
    }

    /// Writes the words that are the same in each page of this release, the magic last.
    pub fn begin(mut write: impl FnMut(usize, u64)) {
        for (index, section) in Self::SECTIONS.iter().enumerate() {
            write(Self::section_at(index), section.at as u64);
            write(Self::section_at(index) + WORD, (section.rows as u64) << 32 | section.row_bytes as u64);
        }
        write(16, Self::BYTES as u64);
        write(8, Self::VERSION);
        write(0, Self::MAGIC);
    }
}

const _: () = assert!(Layout::section_at(Layout::SECTIONS.len()) <= Layout::COUNTERS.at);
const _: () = assert!(Layout::COUNTERS.at + Layout::COUNTERS.rows * WORD <= Layout::GAUGES.at);
const _: () = assert!(Layout::GAUGES.at + Layout::GAUGES.rows * WORD <= Layout::OPERATIONS.at);
const _: () = assert!(Tally::COUNT * WORD <= Layout::OPERATIONS.row_bytes);
const _: () = assert!(Layout::SUM_AT + WORD <= Layout::HISTOGRAMS.row_bytes);
const _: () = assert!(Layout::BYTES <= Layout::BYTES_MAX);
const _: () = assert!(ClientRow::BYTES == 128 && SegmentRow::BYTES == 64);
const _: () = assert!(PeerRow::BYTES == 64 && SampleRow::BYTES == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sections_do_not_overlap() {
        // If this broke, a counter would overlap a bucket of a histogram.
        let mut end = SECTIONS_AT + Layout::SECTIONS.len() * 2 * WORD;
        for section in Layout::SECTIONS {
            assert!(section.at >= end && section.at.is_multiple_of(64), "{section:?} begins before {end}");
            end = section.at + section.rows * section.row_bytes;
        }
        assert!(end <= Layout::BYTES);
        let last = Layout::histogram_at(Kind::Permit, Location::Away, Step::Total);
        assert_eq!(
            last + Layout::HISTOGRAMS.row_bytes,
            Layout::HISTOGRAMS.at + Layout::HISTOGRAMS.rows * Layout::HISTOGRAMS.row_bytes
        );
    }
}
