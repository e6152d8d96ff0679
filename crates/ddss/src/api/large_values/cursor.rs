//! Cursors over a segment for code that reads or writes streams.

use crate::error::Error;
use crate::segment::Segment;
use crate::value::Stamp;
use ddss_core::Version;
use ddss_core::limits::{TRANSFER_BYTES_MAX, VALUE_BYTES_MAX};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::RangeBounds;

/// Reads a range of a segment as a stream: all bytes are of the version that the first read found.
///
/// When a later version is committed, a read fails with [`io::ErrorKind::StaleNetworkFileHandle`]; after
/// [`restart`](Self::restart) the reader follows the newest version from its start.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// use std::io::{BufRead, BufReader, Write};
/// let notes = client.allocate("notes", ddss::Spec::new(64))?;
/// let mut writer = notes.writer(0);
/// writeln!(writer, "first line")?;
/// let stamp = writer.finish()?;
/// let reader = notes.reader(..)?;
/// let line = BufReader::new(reader).lines().next().transpose()?;
/// assert_eq!((line.as_deref(), stamp.version.0), (Some("first line"), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SegmentReader {
    segment: Segment,
    /// Offset of the range in the segment, and its length.
    begin: u64,
    bytes: u64,
    /// Place of the cursor in the range.
    at: u64,
    stamp: Option<Stamp>,
    /// Bytes from `loaded_at` in the range on.
    loaded: Vec<u8>,
    loaded_at: u64,
}

impl SegmentReader {
    /// Returns version and timestamp of the bytes; `None` before the first read.
    pub fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Moves to the start of the range and follows the newest version from there.
    pub fn restart(&mut self) {
        (self.at, self.stamp) = (0, None);
        self.loaded.clear();
    }

    /// Loads the bytes from the cursor on.
    fn load(&mut self) -> io::Result<()> {
        let end = self.bytes.min(self.at + TRANSFER_BYTES_MAX as u64);
        let range = self.begin + self.at..self.begin + end;
        let value = match self.stamp {
            None => self.segment.get(range).map_err(io::Error::other)?,
            Some(Stamp { version, .. }) => {
                self.segment.get_at(version, range).map_err(|error| stale(error, version))?
            }
        };
        self.stamp = Some(value.stamp());
        self.loaded_at = self.at;
        self.loaded.clear();
        self.loaded.extend_from_slice(&value);
        Ok(())
    }
}

/// Returns the error of a read whose version may be gone.
pub(super) fn stale(error: Error, version: Version) -> io::Error {
    match error.failure() {
        Some(ddss_core::Failure::VersionGone) => io::Error::new(
            io::ErrorKind::StaleNetworkFileHandle,
            format!("the segment has changed since {version} was read from the start: restart the reader"),
        ),
        _ => io::Error::other(error),
    }
}

impl Read for SegmentReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.bytes || into.is_empty() {
            return Ok(0);
        }
        let is_loaded = self.at >= self.loaded_at && self.at < self.loaded_at + self.loaded.len() as u64;
        if !is_loaded {
            self.load()?;
        }
        let from = &self.loaded[(self.at - self.loaded_at) as usize..];
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        self.at += length as u64;
        Ok(length)
    }
}

impl Seek for SegmentReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = target(to, self.at, self.bytes)?;
        Ok(self.at)
    }
}

/// Collects a value in the memory of this process and puts it with one version.
///
/// Nothing is written before [`finish`](Self::finish); a writer that is dropped has no effect. A gap that a seek leaves
/// is zero.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// use std::io::Write;
///
/// let notes = client.allocate("notes", ddss::Spec::new(64))?;
/// let mut writer: ddss::SegmentWriter = notes.writer(0);
/// writeln!(writer, "first line")?;
/// assert_eq!(writer.finish()?.version.0, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is written before `finish`"]
pub struct SegmentWriter {
    segment: Segment,
    offset: u64,
    value: Vec<u8>,
    /// Place of the cursor in the value.
    at: u64,
}

impl SegmentWriter {
    /// Puts all bytes that were written.
    pub fn finish(self) -> Result<Stamp, Error> {
        self.segment.put(self.offset, &self.value)
    }

    /// Puts all bytes that were written if the segment still has that version, like [`Segment::put_if`].
    pub fn finish_if(self, version: Version) -> Result<Stamp, Error> {
        self.segment.put_if(version, self.offset, &self.value)
    }
}

impl Write for SegmentWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.segment.bytes().saturating_sub(self.offset).min(VALUE_BYTES_MAX as u64);
        let length = usize::try_from(room.saturating_sub(self.at)).unwrap_or(usize::MAX).min(bytes.len());
        if length == 0 && !bytes.is_empty() {
            let what = format!("{} has no more than {room} bytes from {} on", self.segment.name(), self.offset);
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        let at = self.at as usize;
        let end = at + length;
        if self.value.len() < end {
            self.value.resize(end, 0);
        }
        self.value[at..end].copy_from_slice(&bytes[..length]);
        self.at += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for SegmentWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = target(to, self.at, self.value.len() as u64)?;
        Ok(self.at)
    }
}

/// Returns the place that a seek leads to.
pub(super) fn target(to: SeekFrom, at: u64, end: u64) -> io::Result<u64> {
    let place = match to {
        SeekFrom::Start(place) => Some(place),
        SeekFrom::Current(distance) => at.checked_add_signed(distance),
        SeekFrom::End(distance) => end.checked_add_signed(distance),
    };
    place.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a seek leads before the first byte"))
}

impl Segment {
    /// Returns a reader of a range, for code that takes [`Read`] and [`Seek`].
    pub fn reader(&self, range: impl RangeBounds<u64>) -> Result<SegmentReader, Error> {
        let (begin, bytes) = self.location().place_of_stream(range)?;
        let (segment, loaded) = (self.clone(), Vec::new());
        Ok(SegmentReader { segment, begin, bytes, at: 0, stamp: None, loaded, loaded_at: 0 })
    }

    /// Returns a writer of a value that begins at `offset`, for code that takes [`Write`] and [`Seek`].
    pub fn writer(&self, offset: u64) -> SegmentWriter {
        SegmentWriter { segment: self.clone(), offset, value: Vec::new(), at: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::TestNode;

    #[test]
    fn reader_returns_one_version_and_reports_the_next() {
        // If this broke, code that streams a segment would mix two values without an error.
        let node = TestNode::start_with(|config| config.pool_bytes = 64 << 20);
        let bytes = 2 * TRANSFER_BYTES_MAX + 5;
        let segment = node.client().allocate("stream", Spec::new(bytes as u64)).unwrap();
        let mut writer = segment.writer(1);
        writer.write_all(&vec![7; bytes - 1]).unwrap();
        let full = writer.write(&[1]).unwrap_err();
        assert_eq!((full.kind(), segment.get(0..8).unwrap().version().0), (io::ErrorKind::StorageFull, 0));
        writer.seek(SeekFrom::Start(3)).unwrap();
        writer.write_all(&[8]).unwrap();
        let stamp = writer.finish().unwrap();
        let mut reader = segment.reader(1..).unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all.len() == bytes - 1 && all[3] == 8 && all.iter().filter(|&&byte| byte == 7).count() == bytes - 2);
        assert_eq!((reader.stamp(), reader.seek(SeekFrom::End(-2)).unwrap()), (Some(stamp), bytes as u64 - 3));
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 2);
        segment.put(0, &[1]).unwrap();
        reader.rewind().unwrap();
        let stale = reader.read(&mut [0; 8]).unwrap_err();
        assert_eq!(stale.kind(), io::ErrorKind::StaleNetworkFileHandle);
        reader.restart();
        assert_eq!((reader.read(&mut [0; 8]).unwrap(), reader.stamp().unwrap().version.0), (8, 2));
        assert!(segment.reader(..bytes as u64 + 1).is_err() && reader.seek(SeekFrom::Current(-9)).is_err());
    }
}
