//! Checked copy of the status page. For any input bytes, the result is bounded and consistent with the copy.

use super::counters::{Counter, Gauge, Kind, Location, Step, Tally};
use super::histogram::Histogram;
use super::layout::{IdentityWord, Layout, Section};
use super::rows::{ClientRow, PeerRow, Row, SampleRow, SegmentRow};
use crate::{Failure, NodeId, Shard};
use thiserror::Error;

const WORD: usize = size_of::<u64>();

/// Reason why bytes are not a readable status page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The bytes are no status page, or an incomplete one.
    #[error("not a status page of ddssd")]
    NotOne,
    /// The page has another layout version.
    #[error(
        "the status page was written by another release of ddssd (layout {found}, this one reads {})",
        Layout::VERSION
    )]
    OtherRelease {
        /// Layout version of the page.
        found: u64,
    },
    /// The page contradicts itself.
    #[error("the status page is invalid: {0}")]
    Broken(&'static str),
}

/// State of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DaemonState {
    /// The daemon restores its segments.
    Starting,
    /// The daemon serves.
    Serving,
    /// The daemon finishes what is in progress and takes no new requests.
    Stopping,
    /// The daemon has stopped on request.
    Stopped,
    /// The state is unknown to this release.
    Unknown,
}

impl DaemonState {
    /// Returns the word of the page.
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

/// Identity of a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DaemonIdentity {
    /// Node id.
    pub node: NodeId,
    /// Process id.
    pub pid: u32,
    /// Start of that process, in kernel ticks since the boot: field 22 of `/proc/PID/stat`.
    pub process_began: u64,
    /// Run of the node: unique for each run.
    pub run: u64,
    /// Start of the run, in microseconds since 1970.
    pub started_us: u64,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Ring layout version.
    pub layout: u32,
    /// Release of the daemon.
    pub release: String,
    /// State of the daemon.
    pub state: DaemonState,
    /// Last heartbeat on the monotonic clock (`CLOCK_MONOTONIC`), in nanoseconds.
    pub heartbeat_ns: u64,
    /// Last heartbeat on the wall clock, in microseconds since 1970.
    pub heartbeat_us: u64,
    /// The core of its progress thread, if it is pinned.
    pub core: Option<u32>,
    /// Shard of the page.
    pub shard: Shard,
}

/// Outcomes of one kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationCount {
    /// Requests that succeeded.
    pub done: u64,
    /// Requests that certainly did nothing.
    pub failed: u64,
    /// Requests whose outcome is unknown.
    pub indeterminate: u64,
    /// Bytes that the successful requests moved.
    pub bytes: u64,
    /// Requests that were not answered at once.
    pub waited: u64,
}

impl OperationCount {
    /// Returns the number of all ended requests.
    pub fn ended(&self) -> u64 {
        self.done.saturating_add(self.failed).saturating_add(self.indeterminate)
    }
}

/// Content of a status page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Identity of the daemon.
    pub daemon: DaemonIdentity,
    /// Attached clients, by slot.
    pub clients: Vec<ClientRow>,
    /// Busiest segments, the busiest first.
    pub segments: Vec<SegmentRow>,
    /// Other nodes, by id.
    pub peers: Vec<PeerRow>,
    /// Sampled requests, the oldest first.
    pub samples: Vec<SampleRow>,
    /// Rows that were being written during the copy; they are omitted.
    pub torn: usize,
    pub(super) counters: Vec<u64>,
    pub(super) gauges: Vec<u64>,
    pub(super) operations: Vec<OperationCount>,
    pub(super) failures: Vec<u64>,
    pub(super) histograms: Vec<Histogram>,
}

impl Status {
    /// Decodes a copy of the page.
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

    /// Reads and checks the section table: inside the page, and with rows of sufficient length.
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
                return Err(StatusError::Broken("a section lies outside"));
            }
            if !row_bytes.is_multiple_of(WORD) || row_bytes < section.row_bytes {
                return Err(StatusError::Broken("its rows are too short"));
            }
            // An older page has fewer rows; further rows of a newer one are unknown here.
            *section = Section { at: start as usize, rows: rows.min(section.rows), row_bytes };
        }
        Ok(sections)
    }

    /// Returns a counter; 0 if the daemon did not have it.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter.index()).copied().unwrap_or(0)
    }

    /// Returns a gauge; 0 if the daemon did not have it.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges.get(gauge.index()).copied().unwrap_or(0)
    }

    /// Returns the outcomes of one kind of request.
    pub fn operation(&self, kind: Kind) -> OperationCount {
        self.operations.get(kind.index()).copied().unwrap_or_default()
    }

    /// Returns the outcomes of all kinds together.
    pub fn operations(&self) -> OperationCount {
        self.operations.iter().fold(OperationCount::default(), |sum, one| sum.plus(one))
    }

    /// Returns the number of reports of a failure to clients.
    pub fn failure(&self, failure: Failure) -> u64 {
        self.failures.get(usize::from(failure.code())).copied().unwrap_or(0)
    }

    /// Returns the durations of a step in the sampled requests.
    pub fn histogram(&self, kind: Kind, location: Location, step: Step) -> &Histogram {
        &self.histograms[(kind.index() * Location::COUNT + location.index()) * Step::COUNT + step.index()]
    }

    /// Returns the durations of a step for one kind, over all paths.
    pub fn histogram_of(&self, kind: Kind, step: Step) -> Histogram {
        let mut both = self.histogram(kind, Location::Here, step).clone();
        both.add(self.histogram(kind, Location::Away, step));
        both
    }
}

/// Untrusted copy of the page.
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
        let (core, shard) = (word(IdentityWord::Core)?, word(IdentityWord::Shard)?);
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
            shard: Shard::new(shard as u8, (shard >> 32) as u8).unwrap_or(Shard::ONLY),
        })
    }

    /// Returns the words of a section with one-word rows.
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

    /// Returns the histograms that this release knows.
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
            segment: SegmentId::new(NodeId(1), gets as u32, 1),
            gets,
            puts: 0,
            others: 0,
            bytes_got: 0,
            bytes_put: 0,
        }
    }

    #[test]
    fn status_page_round_trips() {
        // If this broke, tools would show numbers under wrong names.
        let mut page = page();
        set(&mut page, IdentityWord::Node.at(), 7);
        set(&mut page, IdentityWord::State.at(), DaemonState::Serving.code());
        set(&mut page, IdentityWord::Release.at(), u64::from_ne_bytes(*b"0.1.0\0\0\0"));
        set(&mut page, IdentityWord::Core.at(), 4);
        set(&mut page, Layout::counter_at(Counter::Commits), 11);
        set(&mut page, Layout::gauge_at(Gauge::Names), 12);
        set(&mut page, Layout::operation_at(Kind::Get, Tally::Done), 13);
        set(&mut page, Layout::operation_at(Kind::Put, Tally::Bytes), 14);
        set(&mut page, Layout::failure_at(Failure::InProgress.code()), 15);
        set(&mut page, Layout::histogram_at(Kind::Get, Location::Away, Step::Total) + 5 * WORD, 16);
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
        assert_eq!((status.failure(Failure::InProgress), status.failure(Failure::PermissionDenied)), (15, 0));
        assert_eq!(status.histogram(Kind::Get, Location::Away, Step::Total).counts()[5], 16);
        assert_eq!(status.histogram_of(Kind::Get, Step::Total).count(), 16);
        assert_eq!(status.segments, [row(9), row(5), row(1)]);
        assert_eq!((status.clients.len(), status.torn), (0, 0));
    }

    #[test]
    fn torn_row_is_omitted() {
        // If this broke, half of one client's row would be mixed with half of another's.
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
    fn other_layout_version_is_reported() {
        // If this broke, an operator would read an old daemon's counters under new names.
        let mut old = page();
        set(&mut old, WORD, 0);
        assert_eq!(Status::decode(&old), Err(StatusError::OtherRelease { found: 0 }));
        assert_eq!(Status::decode(b"short"), Err(StatusError::NotOne));
        assert_eq!(Status::decode(&page()[..16]), Err(StatusError::Broken("it is too short")));
        assert_eq!(Status::decode(&page()[..4096]), Err(StatusError::Broken("a section lies outside")));
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
        fn status_decoder_never_panics(words in prop::collection::vec((0..Layout::BYTES / 8, any::<u64>()), 0..200), keep in 0..Layout::BYTES) {
            // If this broke, a damaged page would end the tool that is meant to diagnose it.
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
