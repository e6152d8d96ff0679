//! Where each word of the page is. All are 64 bits in the machine's own order, and each is written whole.
//!
//! ```text
//!  offset
//!  0            +-------------------------------------------------------------------+
//!               | identity, 24 words: magic, layout version, bytes of the page,     |
//!               | node, pid, when that process began, run, started at, user,        |
//!               | protocol, release (2), state, heartbeat (2), core, plane, ..      |
//!  192          +-------------------------------------------------------------------+
//!               | sections, 2 words each: offset | rows u32, bytes of a row u32     |
//!  512          +-------------------------------------------------------------------+
//!               | counters: a word each (names.rs)                                  |
//!  1536         +-------------------------------------------------------------------+
//!               | gauges: a word each                                               |
//!  2560         +-------------------------------------------------------------------+
//!               | operations: a line each: done, failed, indeterminate, bytes, waited|
//!               +-------------------------------------------------------------------+
//!               | failures: how often each was told, a word each                    |
//!               +-------------------------------------------------------------------+
//!               | histograms: for each kind, road and step 240 buckets, the sum     |
//!               +-------------------------------------------------------------------+
//!               | clients, segments, peers, samples: rows (rows.rs)                 |
//!               +-------------------------------------------------------------------+
//! ```
//!
//! A page of another *version* is laid out otherwise. In one of the same version rows may have become longer and more,
//! at their end; its table of sections says so.

use super::counters::{Counter, Gauge, Kind, Road, Step, Tally};
use super::histogram::Histogram;
use super::rows::{ClientRow, PeerRow, Row, SampleRow, SegmentRow};
use crate::limits::{CLIENTS_MAX, NODES_MAX};
use std::mem::offset_of;

const WORD: usize = size_of::<u64>();

/// The first words of the page. Only a drawing: they are written and read one by one.
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
    plane: u64,
    reserved: [u64; 7],
}

const _: () = assert!(offset_of!(IdentityShape, magic) == 0);
const _: () = assert!(offset_of!(IdentityShape, version) == 8);
const _: () = assert!(offset_of!(IdentityShape, bytes) == 16);
const _: () = assert!(offset_of!(IdentityShape, node) == IdentityWord::Node.at());
const _: () = assert!(offset_of!(IdentityShape, release) == IdentityWord::Release.at());
const _: () = assert!(offset_of!(IdentityShape, state) == IdentityWord::State.at());
const _: () = assert!(offset_of!(IdentityShape, core) == IdentityWord::Core.at());
const _: () = assert!(offset_of!(IdentityShape, plane) == IdentityWord::Plane.at());
const _: () = assert!(size_of::<IdentityShape>() == SECTIONS_AT);

/// A word that says whose page it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum IdentityWord {
    /// The node.
    Node = 3,
    /// The daemon's process.
    Pid,
    /// When that process began, in the kernel's ticks since the boot: a number that is used again begins later.
    ProcessBegan,
    /// Which run of the node.
    Run,
    /// When it began, in microseconds since 1970.
    StartedUs,
    /// Its user, and above it the group.
    User,
    /// The layout of rings, and above it the protocol between nodes.
    Protocol,
    /// Sixteen bytes of text.
    Release,
    /// See [`State`](super::DaemonState).
    State = 12,
    /// The last sign of life, by the clock that never goes back.
    HeartbeatNs,
    /// The same by the wall's clock, in microseconds since 1970.
    HeartbeatUs,
    /// The progress thread's core and one, 0 if it has none.
    Core,
    /// Which of the daemon's planes, and above it how many there are; 0 if there is one.
    Plane,
}

impl IdentityWord {
    /// Where it is.
    pub const fn at(self) -> usize {
        self as usize * WORD
    }
}

/// A part of the page that is made of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// Where it begins.
    pub at: usize,
    /// Rows.
    pub rows: usize,
    /// Bytes of one row.
    pub row_bytes: usize,
}

const SECTIONS_AT: usize = 192;

const fn after(before: Section, rows: usize, row_bytes: usize) -> Section {
    Section { at: (before.at + before.rows * before.row_bytes).next_multiple_of(64), rows, row_bytes }
}

/// Where everything is.
#[derive(Debug)]
pub struct Layout;

impl Layout {
    /// The first word: `DDSSTAT` and a zero.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"DDSSTAT\0");
    /// Changes when an older reader would read something else.
    pub const VERSION: u64 = 1;
    /// Where a row of a histogram has its sum.
    pub const SUM_AT: usize = Histogram::BUCKETS * WORD;
    /// Words of failures: their numbers are smaller.
    pub const FAILURES: usize = 32;
    /// Segments that are counted one by one.
    pub const SEGMENTS: usize = 1024;
    /// Requests whose way is still known.
    pub const SAMPLES: usize = 256;
    /// Bytes of the largest page that is read.
    pub const BYTES_MAX: usize = 8 << 20;

    /// Counters.
    pub const COUNTERS: Section = Section { at: 512, rows: Counter::COUNT, row_bytes: WORD };
    /// Gauges.
    pub const GAUGES: Section = Section { at: 1536, rows: Gauge::COUNT, row_bytes: WORD };
    /// How requests ended.
    pub const OPERATIONS: Section = Section { at: 2560, rows: Kind::COUNT, row_bytes: 64 };
    /// How often each failure was told.
    pub const FAILED: Section = after(Self::OPERATIONS, Self::FAILURES, WORD);
    /// How long things took.
    pub const HISTOGRAMS: Section =
        after(Self::FAILED, Kind::COUNT * Road::COUNT * Step::COUNT, (Histogram::BUCKETS + 8) * WORD);
    /// Who is attached; the row is the client's slot.
    pub const CLIENTS: Section = after(Self::HISTOGRAMS, CLIENTS_MAX, ClientRow::BYTES);
    /// The busiest segments.
    pub const SEGMENT_ROWS: Section = after(Self::CLIENTS, Self::SEGMENTS, SegmentRow::BYTES);
    /// The other nodes.
    pub const PEERS: Section = after(Self::SEGMENT_ROWS, NODES_MAX, PeerRow::BYTES);
    /// The last requests that were followed.
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

    /// Where a counter is.
    pub const fn counter_at(counter: Counter) -> usize {
        Self::COUNTERS.at + counter.index() * WORD
    }

    /// Where a gauge is.
    pub const fn gauge_at(gauge: Gauge) -> usize {
        Self::GAUGES.at + gauge.index() * WORD
    }

    /// Where it is counted how requests of a kind ended.
    pub const fn operation_at(kind: Kind, tally: Tally) -> usize {
        Self::OPERATIONS.at + kind.index() * Self::OPERATIONS.row_bytes + tally.index() * WORD
    }

    /// Where it is counted how often a failure was told.
    pub const fn failure_at(code: u8) -> usize {
        Self::FAILED.at + (code as usize % Self::FAILURES) * WORD
    }

    /// Where a histogram begins.
    pub const fn histogram_at(kind: Kind, road: Road, step: Step) -> usize {
        let row = (kind.index() * Road::COUNT + road.index()) * Step::COUNT + step.index();
        Self::HISTOGRAMS.at + row * Self::HISTOGRAMS.row_bytes
    }

    /// Where a section is described.
    pub(super) const fn section_at(index: usize) -> usize {
        SECTIONS_AT + index * 2 * WORD
    }

    /// Writes what is the same in each page of this release, the magic last.
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
    fn the_parts_of_a_page_lie_behind_each_other() {
        // If this broke, a counter would be a bucket of some histogram as well.
        let mut end = SECTIONS_AT + Layout::SECTIONS.len() * 2 * WORD;
        for section in Layout::SECTIONS {
            assert!(section.at >= end && section.at.is_multiple_of(64), "{section:?} begins before {end}");
            end = section.at + section.rows * section.row_bytes;
        }
        assert!(end <= Layout::BYTES);
        let last = Layout::histogram_at(Kind::Permit, Road::Away, Step::Total);
        assert_eq!(
            last + Layout::HISTOGRAMS.row_bytes,
            Layout::HISTOGRAMS.at + Layout::HISTOGRAMS.rows * Layout::HISTOGRAMS.row_bytes
        );
    }
}
