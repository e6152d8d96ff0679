//! A copy of the page, checked. Whatever the bytes are: what comes out is bounded, and says nothing that the copy does not.

use super::counters::{Counter, Gauge, Kind, Road, Step, Tally};
use super::histogram::Histogram;
use super::layout::{IdentityWord, Layout, Section};
use super::rows::{ClientRow, PeerRow, Row, SampleRow, SegmentRow};
use crate::{Failure, NodeId, Shard};
use thiserror::Error;

const WORD: usize = size_of::<u64>();

/// Why bytes are no page that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StatusError {
    /// It is something else, or was not written to its end.
    #[error("this is no status page of ddssd")]
    NotOne,
    /// An older or newer daemon wrote it.
    #[error(
        "the status page was written by another release of ddssd (layout {found}, this one reads {})",
        Layout::VERSION
    )]
    OtherRelease {
        /// The layout that it names.
        found: u64,
    },
    /// It contradicts itself.
    #[error("the status page makes no sense: {0}")]
    Broken(&'static str),
}

/// How far a daemon has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DaemonState {
    /// It takes in what is there.
    Starting,
    /// It serves.
    Serving,
    /// It was told to stop: it takes nothing new, and what is under way ends.
    Stopping,
    /// It was told to stop, and has.
    Stopped,
    /// It says something that this release does not know.
    Unknown,
}

impl DaemonState {
    /// As a word of the page.
    pub const fn code(self) -> u64 {
        match self {
            DaemonState::Unknown => 0,
            DaemonState::Starting => 1,
            DaemonState::Serving => 2,
            DaemonState::Stopped => 3,
            DaemonState::Stopping => 4,
        }
    }

    fn of(code: u64) -> Self {
        [DaemonState::Starting, DaemonState::Serving, DaemonState::Stopping, DaemonState::Stopped]
            .into_iter()
            .find(|state| state.code() == code)
            .unwrap_or(DaemonState::Unknown)
    }
}

/// Whose page it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DaemonIdentity {
    /// The node.
    pub node: NodeId,
    /// Its process.
    pub pid: u32,
    /// When that process began, in the kernel's ticks since the boot: what `/proc/PID/stat` says in its 22nd field.
    pub process_began: u64,
    /// Which run of the node: no two have the same.
    pub run: u64,
    /// When it began, in microseconds since 1970.
    pub started_us: u64,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Layout of the rings that it speaks.
    pub layout: u32,
    /// Its release.
    pub release: String,
    /// How far it has come.
    pub state: DaemonState,
    /// Its last sign of life, by the clock of this boot that never goes back (`CLOCK_MONOTONIC`), in nanoseconds.
    pub heartbeat_ns: u64,
    /// The same by the wall's clock, in microseconds since 1970.
    pub heartbeat_us: u64,
    /// The core of its progress thread, if it is pinned.
    pub core: Option<u32>,
    /// Which of its planes the page is of.
    pub plane: Shard,
}

/// How requests of one kind ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationCount {
    /// It happened.
    pub done: u64,
    /// It certainly did nothing.
    pub failed: u64,
    /// It may have happened.
    pub indeterminate: u64,
    /// Bytes that those which happened moved.
    pub bytes: u64,
    /// Those that were not answered at once.
    pub waited: u64,
}

impl OperationCount {
    /// All that ended.
    pub fn ended(&self) -> u64 {
        self.done.saturating_add(self.failed).saturating_add(self.indeterminate)
    }
}

/// Everything that a page says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Whose it is.
    pub daemon: DaemonIdentity,
    /// The clients that are attached, by their slot.
    pub clients: Vec<ClientRow>,
    /// The busiest segments, the busiest first.
    pub segments: Vec<SegmentRow>,
    /// The other nodes, by their number.
    pub peers: Vec<PeerRow>,
    /// Requests that were followed, the oldest first.
    pub samples: Vec<SampleRow>,
    /// Rows that were being written while the copy was made; they are left out.
    pub torn: usize,
    pub(super) counters: Vec<u64>,
    pub(super) gauges: Vec<u64>,
    pub(super) operations: Vec<OperationCount>,
    pub(super) failures: Vec<u64>,
    pub(super) histograms: Vec<Histogram>,
}

impl Status {
    /// Reads a copy.
    pub fn decode(bytes: &[u8]) -> Result<Self, StatusError> {
        let copy = PageCopy(bytes);
        if copy.word(0) != Some(Layout::MAGIC) {
            return Err(StatusError::NotOne);
        }
        match copy.word(WORD) {
            Some(Layout::VERSION) => {}
            found => return Err(StatusError::OtherRelease { found: found.unwrap_or(0) }),
        }
        let sections = Self::sections(&copy)?;
        let [counters, gauges, operations, failed, histograms, clients, segments, peers, samples] = sections;
        let mut torn = 0;
        let mut status = Self {
            daemon: copy.daemon().ok_or(StatusError::Broken("it is too short"))?,
            clients: copy.rows(clients, &mut torn),
            segments: copy.rows(segments, &mut torn),
            peers: copy.rows(peers, &mut torn),
            samples: copy.rows(samples, &mut torn),
            torn: 0,
            counters: copy.words(counters),
            gauges: copy.words(gauges),
            operations: copy.operations(operations),
            failures: copy.words(failed),
            histograms: copy.histograms(histograms),
        };
        status.torn = torn;
        status.clients.sort_by_key(|row| row.client);
        status.segments.sort_by_key(|row| (std::cmp::Reverse(row.calls()), row.segment));
        status.peers.sort_by_key(|row| row.node);
        status.samples.sort_by_key(|row| row.number);
        Ok(status)
    }

    /// Where the sections are in this page; inside of it, and with rows that are long enough.
    fn sections(copy: &PageCopy<'_>) -> Result<[Section; Layout::SECTIONS.len()], StatusError> {
        let mut sections = Layout::SECTIONS;
        for (index, section) in sections.iter_mut().enumerate() {
            let at = Layout::section_at(index);
            let (Some(start), Some(shape)) = (copy.word(at), copy.word(at + WORD)) else {
                return Err(StatusError::Broken("it is too short"));
            };
            let (rows, row_bytes) = ((shape >> 32) as usize, shape as u32 as usize);
            let end = (rows as u64 * row_bytes as u64).checked_add(start);
            if !start.is_multiple_of(WORD as u64) || end.is_none_or(|end| end > copy.0.len() as u64) {
                return Err(StatusError::Broken("a part of it lies outside"));
            }
            if !row_bytes.is_multiple_of(WORD) || row_bytes < section.row_bytes {
                return Err(StatusError::Broken("its rows are too short"));
            }
            // An older page has fewer; of a newer one the rest is not known here.
            *section = Section { at: start as usize, rows: rows.min(section.rows), row_bytes };
        }
        Ok(sections)
    }

    /// A counter; 0 if the daemon did not know it.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter.index()).copied().unwrap_or(0)
    }

    /// A gauge; 0 if the daemon did not know it.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges.get(gauge.index()).copied().unwrap_or(0)
    }

    /// How requests of a kind ended.
    pub fn operation(&self, kind: Kind) -> OperationCount {
        self.operations.get(kind.index()).copied().unwrap_or_default()
    }

    /// Everything that ended, of all kinds together.
    pub fn operations(&self) -> OperationCount {
        self.operations.iter().fold(OperationCount::default(), |sum, one| sum.plus(one))
    }

    /// How often a failure was told to a client.
    pub fn failure(&self, failure: Failure) -> u64 {
        self.failures.get(usize::from(failure.code())).copied().unwrap_or(0)
    }

    /// How long a step took, of the requests that were followed.
    pub fn histogram(&self, kind: Kind, road: Road, step: Step) -> &Histogram {
        &self.histograms[(kind.index() * Road::COUNT + road.index()) * Step::COUNT + step.index()]
    }

    /// How long a step took for a kind, wherever it was answered.
    pub fn histogram_of(&self, kind: Kind, step: Step) -> Histogram {
        let mut both = self.histogram(kind, Road::Here, step).clone();
        both.add(self.histogram(kind, Road::Away, step));
        both
    }
}

/// Bytes that were copied out of the page, and that anybody may have written.
struct PageCopy<'a>(&'a [u8]);

impl PageCopy<'_> {
    fn word(&self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at..at.checked_add(WORD)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn daemon(&self) -> Option<DaemonIdentity> {
        let word = |which: IdentityWord| self.word(which.at());
        let release = self.0.get(IdentityWord::Release.at()..)?.get(..2 * WORD)?;
        let release = release.iter().take_while(|byte| byte.is_ascii_graphic()).map(|&byte| char::from(byte)).collect();
        let (user, protocol) = (word(IdentityWord::User)?, word(IdentityWord::Protocol)?);
        let (core, plane) = (word(IdentityWord::Core)?, word(IdentityWord::Plane)?);
        Some(DaemonIdentity {
            node: NodeId(word(IdentityWord::Node)? as u16),
            pid: word(IdentityWord::Pid)? as u32,
            process_began: word(IdentityWord::ProcessBegan)?,
            run: word(IdentityWord::Run)?,
            started_us: word(IdentityWord::StartedUs)?,
            uid: user as u32,
            gid: (user >> 32) as u32,
            layout: protocol as u32,
            release,
            state: DaemonState::of(word(IdentityWord::State)?),
            heartbeat_ns: word(IdentityWord::HeartbeatNs)?,
            heartbeat_us: word(IdentityWord::HeartbeatUs)?,
            core: core.checked_sub(1).and_then(|core| core.try_into().ok()),
            plane: Shard::new(plane as u8, (plane >> 32) as u8).unwrap_or(Shard::ONLY),
        })
    }

    /// The words of a section whose rows are words.
    fn words(&self, section: Section) -> Vec<u64> {
        (0..section.rows).filter_map(|row| self.word(section.at + row * section.row_bytes)).collect()
    }

    fn operations(&self, section: Section) -> Vec<OperationCount> {
        let row = |row: usize| {
            let word =
                |tally: Tally| self.word(section.at + row * section.row_bytes + tally.index() * WORD).unwrap_or(0);
            OperationCount {
                done: word(Tally::Done),
                failed: word(Tally::Failed),
                indeterminate: word(Tally::Indeterminate),
                bytes: word(Tally::Bytes),
                waited: word(Tally::Waited),
            }
        };
        (0..section.rows).map(row).collect()
    }

    /// As many as this release knows.
    fn histograms(&self, section: Section) -> Vec<Histogram> {
        let row = |row: usize| {
            let at = section.at + row * section.row_bytes;
            let word = |index: usize| if row < section.rows { self.word(at + index * WORD).unwrap_or(0) } else { 0 };
            Histogram::new(Box::new(std::array::from_fn(word)), word(Layout::SUM_AT / WORD))
        };
        (0..Layout::HISTOGRAMS.rows).map(row).collect()
    }

    fn rows<R: Row>(&self, section: Section, torn: &mut usize) -> Vec<R> {
        let mut found = Vec::new();
        for row in 0..section.rows {
            let at = section.at + row * section.row_bytes;
            let fields: Vec<u64> = (0..R::BYTES / WORD).filter_map(|index| self.word(at + index * WORD)).collect();
            match fields.as_slice() {
                [before, fields @ .., after] if before == after => found.extend(R::from_fields(fields)),
                _ => *torn += 1,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentId;
    use proptest::prelude::*;

    fn page() -> Vec<u8> {
        let mut page = vec![0; Layout::BYTES];
        Layout::begin(|at, word| set(&mut page, at, word));
        page
    }

    fn set(page: &mut [u8], at: usize, word: u64) {
        page[at..at + WORD].copy_from_slice(&word.to_ne_bytes());
    }

    fn row(gets: u64) -> SegmentRow {
        SegmentRow {
            segment: SegmentId::new(NodeId(1), gets as u16, 1),
            gets,
            puts: 0,
            others: 0,
            bytes_got: 0,
            bytes_put: 0,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        // If this broke, people would look at numbers that belong to something else.
        let mut page = page();
        set(&mut page, IdentityWord::Node.at(), 7);
        set(&mut page, IdentityWord::State.at(), DaemonState::Serving.code());
        set(&mut page, IdentityWord::Release.at(), u64::from_ne_bytes(*b"0.1.0\0\0\0"));
        set(&mut page, IdentityWord::Core.at(), 4);
        set(&mut page, Layout::counter_at(Counter::Commits), 11);
        set(&mut page, Layout::gauge_at(Gauge::Names), 12);
        set(&mut page, Layout::operation_at(Kind::Get, Tally::Done), 13);
        set(&mut page, Layout::operation_at(Kind::Put, Tally::Bytes), 14);
        set(&mut page, Layout::failure_at(Failure::Busy.code()), 15);
        set(&mut page, Layout::histogram_at(Kind::Get, Road::Away, Step::Total) + 5 * WORD, 16);
        for gets in [1, 9, 5] {
            let at = Layout::SEGMENT_ROWS.at + gets as usize * SegmentRow::BYTES;
            row(gets).write(|_| 0, |offset, word| set(&mut page, at + offset, word));
        }
        let status = Status::decode(&page).unwrap();
        assert_eq!(
            (status.daemon.node, status.daemon.state, status.daemon.core),
            (NodeId(7), DaemonState::Serving, Some(3))
        );
        assert_eq!(status.daemon.release, "0.1.0");
        assert_eq!((status.counter(Counter::Commits), status.gauge(Gauge::Names)), (11, 12));
        assert_eq!((status.operation(Kind::Get).done, status.operations().bytes), (13, 14));
        assert_eq!((status.failure(Failure::Busy), status.failure(Failure::NotFound)), (15, 0));
        assert_eq!(status.histogram(Kind::Get, Road::Away, Step::Total).counts()[5], 16);
        assert_eq!(status.histogram_of(Kind::Get, Step::Total).count(), 16);
        assert_eq!(status.segments, [row(9), row(5), row(1)]);
        assert_eq!((status.clients.len(), status.torn), (0, 0));
    }

    #[test]
    fn a_row_that_is_being_written_is_left_out() {
        // If this broke, half of one client would be told with half of another.
        let mut page = page();
        let at = Layout::SEGMENT_ROWS.at;
        for stop in 0..SegmentRow::FIELDS + 2 {
            let mut left = stop;
            let before = u64::from_ne_bytes(page[at..at + 8].try_into().unwrap());
            row(stop as u64 + 1).write(
                |_| before,
                |offset, word| {
                    if left > 0 {
                        left -= 1;
                        set(&mut page, at + offset, word);
                    }
                },
            );
            let status = Status::decode(&page).unwrap();
            let torn = usize::from(stop > 0);
            assert_eq!((status.torn, status.segments.len()), (torn, 0), "stopped after {stop} words");
        }
    }

    #[test]
    fn what_another_release_wrote_is_told_as_such() {
        // If this broke, an operator would read an old daemon's counters under new names.
        let mut old = page();
        set(&mut old, WORD, 0);
        assert_eq!(Status::decode(&old), Err(StatusError::OtherRelease { found: 0 }));
        assert_eq!(Status::decode(b"short"), Err(StatusError::NotOne));
        assert_eq!(Status::decode(&page()[..16]), Err(StatusError::Broken("it is too short")));
        assert_eq!(Status::decode(&page()[..4096]), Err(StatusError::Broken("a part of it lies outside")));
        // One of the same layout that counts fewer things, and one that counts more and has longer rows.
        let mut fewer = page();
        set(&mut fewer, Layout::section_at(0) + WORD, 2 << 32 | 8);
        set(&mut fewer, Layout::counter_at(Counter::Commits), 11);
        assert_eq!(Status::decode(&fewer).unwrap().counter(Counter::Commits), 0);
        let mut more = page();
        more.resize(Layout::BYTES + 128 * 100, 0);
        set(&mut more, Layout::section_at(6), Layout::BYTES as u64);
        set(&mut more, Layout::section_at(6) + WORD, 100 << 32 | 128);
        let mut long = [0; 16];
        row(3).write(|_| 0, |offset, word| long[offset / 8] = word);
        (0..8).for_each(|word| set(&mut more, Layout::BYTES + 128 * 99 + word * 8, long[word]));
        assert_eq!(Status::decode(&more).unwrap().segments, [row(3)]);
    }

    proptest! {
        #[test]
        fn no_page_makes_the_reader_panic(words in prop::collection::vec((0..Layout::BYTES / 8, any::<u64>()), 0..200), keep in 0..Layout::BYTES) {
            // If this broke, a broken page would end the tool with which one looks what is broken.
            let mut page = page();
            for (at, word) in words {
                set(&mut page, at * 8, word);
            }
            let _ = Status::decode(&page);
            let _ = Status::decode(&page[..keep]);
            // The table of sections, and nothing else, is nonsense.
            for index in 0..Layout::SECTIONS.len() {
                set(&mut page, Layout::section_at(index) + 8, u64::MAX);
            }
            prop_assert!(Status::decode(&page).is_err());
        }
    }
}
