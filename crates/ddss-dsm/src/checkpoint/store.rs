//! Segments of the checkpoints of a space.

use super::format::{CompleteCheckpoint, Head, Root, pages_at};
use crate::transport::HomeFrames;
use ddss::{Client, Error, ErrorKind, Segment, Spec};
use ddss_group::{GroupState, JoinError};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Pages of one put.
const PAGES_EACH: usize = 256;
/// Pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// Reason why a part was not written or read.
pub(crate) type Reason = Box<dyn std::error::Error + Send + Sync>;

/// The segments of one rank.
#[derive(Debug)]
pub(crate) struct Store {
    client: Client,
    /// Name of the space.
    space: String,
    rank: u16,
    /// Time in which a daemon that is down may come back.
    patience: Duration,
}

/// A part that was checked.
#[derive(Debug)]
pub(crate) struct Part {
    segment: Segment,
    /// Numbers of its pages, in order.
    pub(crate) pages: Vec<u32>,
    page_bytes: usize,
}

impl Part {
    /// Reads pages, by their places in the part.
    pub(crate) fn read(&self, first: usize, into: &mut [u8], end: Instant) -> Result<(), Reason> {
        let at = pages_at(self.pages.len() as u32) + (first * self.page_bytes) as u64;
        repeat(end, || self.segment.get_into(at, into))?;
        Ok(())
    }
}

impl Store {
    pub(crate) fn new(client: Client, space: &str, rank: u16, patience: Duration) -> Self {
        Self { client, space: space.to_owned(), rank, patience }
    }

    fn root_name(&self) -> String {
        format!("dsm-checkpoint/{}", self.space)
    }

    /// Name of the part of a rank. Two of each rank alternate.
    fn part_name(&self, rank: u16, slot: u64) -> String {
        format!("dsm-pages/{}/{rank}.{slot}", self.space)
    }

    /// Returns the time until which the calls of one step are repeated.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    fn open(&self, name: &str, end: Instant) -> Result<Option<Segment>, Error> {
        repeat(end, || match self.client.segment(name).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        })
    }

    /// Opens a segment of at least so many bytes, or makes it: with two copies if there is a cluster.
    fn make(&self, name: &str, bytes: u64, end: Instant) -> Result<Segment, Error> {
        if let Some(found) = self.open(name, end)? {
            if found.len() >= bytes {
                return Ok(found);
            }
            repeat(end, || found.release())?;
        }
        let allocate = |copies| repeat(end, || self.client.segment(name).allocate(Spec::new(bytes).copies(copies)));
        match allocate(2) {
            Err(error) if error.kind() == ErrorKind::Unsupported => allocate(1),
            ended => ended,
        }
    }

    /// Reads the root: `None` if no checkpoint was written.
    pub(crate) fn read_root(&self) -> Result<Option<Root>, Reason> {
        let end = self.deadline();
        let Some(segment) = self.open(&self.root_name(), end)? else { return Ok(None) };
        let mut bytes = [0; Root::BYTES];
        repeat(end, || segment.get_into(0, &mut bytes))?;
        Ok(Root::decode(&bytes)?)
    }

    /// Writes the root: from then on its first entry is what a restart reads. A process that was stopped, and that has lost its
    /// place in the directory since, writes none over that of its successor.
    pub(crate) fn write_root(&self, root: &Root, directory: &GroupState) -> Result<(), Reason> {
        let end = self.deadline();
        let segment = self.make(&self.root_name(), Root::BYTES as u64, end)?;
        let mut found = [0; Root::BYTES];
        loop {
            let version = repeat(end, || segment.get_into(0, &mut found))?.version;
            // An earlier round may have written it, and not have learned so.
            if found == root.as_bytes() {
                return Ok(());
            }
            // Behind the read: who takes the place from now on, writes the root from now on, and the version differs.
            let put = match directory.has_place() {
                Ok(true) => segment.put_if(version, 0, root.as_bytes()),
                Ok(false) => return Err("the others have lost this rank, and another process has its place".into()),
                Err(JoinError::Client(error)) => Err(error),
                Err(error) => return Err(error.into()),
            };
            match put {
                Ok(_) => return Ok(()),
                // The root has changed since, or the put is in doubt.
                Err(error)
                    if Instant::now() < end
                        && (error.kind() == ErrorKind::VersionMismatch || is_passing(error.kind())) =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes the home pages of this rank.
    pub(crate) fn write_part(&self, entry: &CompleteCheckpoint, frames: &HomeFrames) -> Result<(), Reason> {
        let (end, pages) = (self.deadline(), frames.written()?);
        let bytes = pages_at(pages.len() as u32) + (pages.len() * frames.page_bytes()) as u64;
        let segment = self.make(&self.part_name(self.rank, entry.slot()), bytes, end)?;
        let written = self.put_part(&segment, entry, frames, &pages, end);
        if written.is_err() {
            // Its memory is of more use elsewhere. One attempt: the other ranks wait.
            let _ = segment.release();
        }
        written
    }

    fn put_part(
        &self,
        segment: &Segment,
        entry: &CompleteCheckpoint,
        frames: &HomeFrames,
        pages: &[u32],
        end: Instant,
    ) -> Result<(), Reason> {
        let (page_bytes, start) = (frames.page_bytes(), pages_at(pages.len() as u32));
        let mut numbers: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        numbers.resize(start as usize - Head::BYTES, 0);
        let mut body = crc32c::crc32c(&numbers);
        let mut buffer = vec![0; PAGES_EACH * page_bytes];
        let mut at = start;
        for chunk in pages.chunks(PAGES_EACH) {
            for (page, frame) in chunk.iter().zip(buffer.chunks_exact_mut(page_bytes)) {
                frames.read(*page, frame)?;
            }
            let bytes = &buffer[..chunk.len() * page_bytes];
            body = crc32c::crc32c_append(body, bytes);
            repeat(end, || segment.put(at, bytes))?;
            at += bytes.len() as u64;
        }
        let head = Head::new(entry.attempt(), self.rank, pages.len() as u32, body);
        repeat(end, || segment.put(0, &[head.as_bytes(), &numbers].concat()))?;
        Ok(())
    }

    /// Opens the part of this rank in a checkpoint: `None` if it is of another attempt, or damaged.
    pub(crate) fn open_part(&self, entry: &CompleteCheckpoint, frames: &HomeFrames) -> Result<Option<Part>, Reason> {
        let end = self.deadline();
        let Some(segment) = self.open(&self.part_name(self.rank, entry.slot()), end)? else { return Ok(None) };
        let page_bytes = frames.page_bytes();
        let mut head = [0; Head::BYTES];
        if segment.len() < head.len() as u64 {
            return Ok(None);
        }
        repeat(end, || segment.get_into(0, &mut head))?;
        let Some((pages, body)) = Head::decode(&head, entry.attempt(), self.rank) else { return Ok(None) };
        let start = pages_at(pages);
        if pages > frames.pages() || start + u64::from(pages) * page_bytes as u64 > segment.len() {
            return Ok(None);
        }
        let mut numbers = vec![0; start as usize - Head::BYTES];
        repeat(end, || segment.get_into(Head::BYTES as u64, &mut numbers))?;
        let found = numbers.as_chunks::<4>().0.iter().map(|page| u32::from_le_bytes(*page));
        let part = Part { segment, pages: found.take(pages as usize).collect(), page_bytes };
        let mut checksum = crc32c::crc32c(&numbers);
        let mut buffer = vec![0; PAGES_EACH * page_bytes];
        for first in (0..part.pages.len()).step_by(PAGES_EACH) {
            let count = PAGES_EACH.min(part.pages.len() - first);
            let bytes = &mut buffer[..count * page_bytes];
            part.read(first, bytes, end)?;
            checksum = crc32c::crc32c_append(checksum, bytes);
        }
        let are_in_order = part.pages.is_sorted_by(|page, next| page < next);
        let are_inside = part.pages.last().is_none_or(|last| *last < frames.pages());
        Ok((checksum == body && are_in_order && are_inside).then_some(part))
    }

    /// Releases all segments, the root first: behind it nothing is a checkpoint.
    pub(crate) fn release_all(&self, ranks: u16) -> Result<(), Reason> {
        // The other ranks wait for this one, and only for as long as their calls have.
        let end = Instant::now() + self.patience / 2;
        let parts = (0..ranks).flat_map(|rank| [0, 1].map(|slot| self.part_name(rank, slot)));
        for name in std::iter::once(self.root_name()).chain(parts) {
            if let Some(segment) = self.open(&name, end)? {
                repeat(end, || segment.release())?;
            }
        }
        Ok(())
    }
}

/// Repeats a call until a time, while the segment's home or the daemon is down.
fn repeat<T>(end: Instant, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match call() {
            Err(error) if is_passing(error.kind()) && Instant::now() < end => std::thread::sleep(PAUSE),
            ended => return ended,
        }
    }
}

/// Returns true if a call that failed so may succeed when it is repeated: its home, the cluster or the daemon is down or busy for
/// now.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NodeDown
            | ErrorKind::NoMajority
            | ErrorKind::NoDaemon
            | ErrorKind::DaemonGone
            | ErrorKind::InProgress
            | ErrorKind::TimedOut
            | ErrorKind::Contended
            | ErrorKind::LimitReached
    )
}
