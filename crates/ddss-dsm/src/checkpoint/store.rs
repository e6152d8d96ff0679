//! Segments of the checkpoints of a space.

use super::format::{Entry, Head, Root, pages_at};
use crate::transport::HomeFrames;
use ddss::{Client, Error, ErrorKind, Segment, Spec};
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
    pub(crate) fn read(&self, first: usize, into: &mut [u8]) -> Result<(), Reason> {
        let at = pages_at(self.pages.len() as u32) + (first * self.page_bytes) as u64;
        self.segment.get_into(at, into)?;
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

    /// Repeats a call while the segment's home or the daemon is down.
    fn repeat<T>(&self, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let end = Instant::now() + self.patience;
        loop {
            match call() {
                Err(error) if is_passing(error.kind()) && Instant::now() < end => std::thread::sleep(PAUSE),
                ended => return ended,
            }
        }
    }

    fn open(&self, name: &str) -> Result<Option<Segment>, Error> {
        self.repeat(|| match self.client.segment(name).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        })
    }

    /// Opens a segment of at least so many bytes, or makes it: with two copies if there is a cluster.
    fn make(&self, name: &str, bytes: u64) -> Result<Segment, Error> {
        if let Some(found) = self.open(name)? {
            if found.len() >= bytes {
                return Ok(found);
            }
            self.repeat(|| found.release())?;
        }
        let allocate = |copies| self.repeat(|| self.client.segment(name).allocate(Spec::new(bytes).copies(copies)));
        match allocate(2) {
            Err(error) if error.kind() == ErrorKind::Unsupported => allocate(1),
            ended => ended,
        }
    }

    /// Reads the root: `None` if no checkpoint was written.
    pub(crate) fn read_root(&self) -> Result<Option<Root>, Reason> {
        let Some(segment) = self.open(&self.root_name())? else { return Ok(None) };
        let mut bytes = [0; Root::BYTES];
        self.repeat(|| segment.get_into(0, &mut bytes))?;
        Ok(Root::decode(&bytes))
    }

    /// Writes the root: from then on its first entry is what a restart reads.
    pub(crate) fn write_root(&self, root: &Root) -> Result<(), Reason> {
        let segment = self.make(&self.root_name(), Root::BYTES as u64)?;
        self.repeat(|| segment.put(0, root.as_bytes()))?;
        Ok(())
    }

    /// Writes the home pages of this rank.
    pub(crate) fn write_part(&self, entry: &Entry, frames: &HomeFrames) -> Result<(), Reason> {
        let name = self.part_name(self.rank, entry.slot());
        let written = self.put_part(&name, entry, frames);
        if written.is_err() {
            // Its memory is of more use elsewhere. It may not exist.
            let _ = self.release(&name);
        }
        written
    }

    fn put_part(&self, name: &str, entry: &Entry, frames: &HomeFrames) -> Result<(), Reason> {
        let (pages, page_bytes) = (frames.written()?, frames.page_bytes());
        let start = pages_at(pages.len() as u32);
        let segment = self.make(name, start + (pages.len() * page_bytes) as u64)?;
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
            self.repeat(|| segment.put(at, bytes))?;
            at += bytes.len() as u64;
        }
        let head = Head::new(entry.attempt(), self.rank, pages.len() as u32, body);
        self.repeat(|| segment.put(0, &[head.as_bytes(), &numbers].concat()))?;
        Ok(())
    }

    /// Opens the part of this rank in a checkpoint: `None` if it is of another attempt, or damaged.
    pub(crate) fn open_part(&self, entry: &Entry, frames: &HomeFrames) -> Result<Option<Part>, Reason> {
        let Some(segment) = self.open(&self.part_name(self.rank, entry.slot()))? else { return Ok(None) };
        let page_bytes = frames.page_bytes();
        let mut head = [0; Head::BYTES];
        if segment.len() < head.len() as u64 {
            return Ok(None);
        }
        self.repeat(|| segment.get_into(0, &mut head))?;
        let Some((pages, body)) = Head::decode(&head, entry.attempt(), self.rank) else { return Ok(None) };
        let start = pages_at(pages);
        if pages > frames.pages() || start + u64::from(pages) * page_bytes as u64 > segment.len() {
            return Ok(None);
        }
        let mut numbers = vec![0; start as usize - Head::BYTES];
        self.repeat(|| segment.get_into(Head::BYTES as u64, &mut numbers))?;
        let found = numbers.as_chunks::<4>().0.iter().map(|page| u32::from_le_bytes(*page));
        let part = Part { segment, pages: found.take(pages as usize).collect(), page_bytes };
        let mut checksum = crc32c::crc32c(&numbers);
        let mut buffer = vec![0; PAGES_EACH * page_bytes];
        for first in (0..part.pages.len()).step_by(PAGES_EACH) {
            let count = PAGES_EACH.min(part.pages.len() - first);
            let bytes = &mut buffer[..count * page_bytes];
            part.read(first, bytes)?;
            checksum = crc32c::crc32c_append(checksum, bytes);
        }
        let are_in_order = part.pages.is_sorted_by(|page, next| page < next);
        let are_inside = part.pages.last().is_none_or(|last| *last < frames.pages());
        Ok((checksum == body && are_in_order && are_inside).then_some(part))
    }

    fn release(&self, name: &str) -> Result<(), Error> {
        match self.open(name)? {
            Some(segment) => self.repeat(|| segment.release()),
            None => Ok(()),
        }
    }

    /// Releases all segments, the root first: behind it nothing is a checkpoint.
    pub(crate) fn release_all(&self, ranks: u16) -> Result<(), Reason> {
        self.release(&self.root_name())?;
        for rank in 0..ranks {
            for slot in [0, 1] {
                self.release(&self.part_name(rank, slot))?;
            }
        }
        Ok(())
    }
}

/// Returns true if a call that failed so may succeed when it is repeated: its home, the cluster or the daemon is down for now.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NodeDown
            | ErrorKind::NoMajority
            | ErrorKind::NoDaemon
            | ErrorKind::DaemonGone
            | ErrorKind::InProgress
            | ErrorKind::TimedOut
    )
}
