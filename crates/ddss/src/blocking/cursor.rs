//! Cursors over a segment for code that reads or writes streams.

use super::Segment;
use crate::error::Error;
use crate::options::{GetOptions, PutOptions};
use crate::plan::read_window::ReadWindow;
use crate::plan::write_buffer::WriteBuffer;
use crate::value::Stamp;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::ops::RangeBounds;

/// Reads a range of a segment as a stream: all bytes are of the version that the first read found.
///
/// While the reader goes on in order, it reads ahead: at first 4 KiB, then twice as much each time, up to 1 MiB. After a
/// seek it reads what it is asked for.
///
/// When a later version is committed, a read fails with [`io::ErrorKind::StaleNetworkFileHandle`]; a new reader follows the
/// newest version.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{GetOptions, PutOptions};
/// use std::io::{BufRead, Write};
/// let notes = client.segment("notes").allocate(64)?;
/// let mut writer = notes.writer(0, PutOptions::new());
/// writeln!(writer, "first line")?;
/// let stamp = writer.finish()?;
/// let line = notes.reader(.., GetOptions::new())?.lines().next().transpose()?;
/// assert_eq!((line.as_deref(), stamp.version.0), (Some("first line"), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<'p> {
    segment: Segment,
    window: ReadWindow,
    options: GetOptions<'p>,
}

impl Reader<'_> {
    /// Returns version and timestamp of the bytes; `None` before the first read.
    pub fn stamp(&self) -> Option<Stamp> {
        self.window.stamp()
    }

    /// Reads bytes from the cursor on, unless there are some.
    fn load(&mut self, asked: usize) -> io::Result<()> {
        if !self.window.needs_bytes() {
            return Ok(());
        }
        let range = self.window.next_range(asked);
        let value =
            self.segment.get_with(range, self.options.of_next_read(self.window.stamp().map(|stamp| stamp.version)));
        let value = value.map_err(|error| self.window.error(error))?;
        self.window.load(self.window.at(), value, self.options.progress.as_deref_mut());
        Ok(())
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        self.load(into.len())?;
        Ok(self.window.take(into))
    }
}

impl BufRead for Reader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.load(ReadWindow::any())?;
        Ok(self.window.unread())
    }

    fn consume(&mut self, bytes: usize) {
        self.window.consume(bytes);
    }
}

/// A seek itself reads nothing. To bytes that are here it costs nothing; elsewhere the next read gets what it asks for.
impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.window.seek(to)
    }
}

/// Collects a value in the memory of this process and puts it with one version.
///
/// Nothing is written before [`finish`](Self::finish); a writer that is dropped has no effect. A gap that a seek leaves
/// is zero.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use std::io::Write;
///
/// let notes = client.segment("notes").allocate(64)?;
/// let mut writer: ddss::Writer<'_> = notes.writer(0, ddss::PutOptions::new());
/// writeln!(writer, "first line")?;
/// assert_eq!(writer.finish()?.version.0, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is written before `finish`"]
pub struct Writer<'p> {
    segment: Segment,
    buffer: WriteBuffer,
    options: PutOptions<'p>,
}

impl Writer<'_> {
    /// Puts all bytes that were written.
    pub fn finish(self) -> Result<Stamp, Error> {
        self.segment.put_with(&[(self.buffer.offset, &self.buffer.value)], self.options)
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.write(bytes, self.segment.len(), self.segment.name())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Writer<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.buffer.seek(to)
    }
}

impl Segment {
    /// Returns a reader of a range, for code that takes [`Read`], [`BufRead`] and [`Seek`]. The first read obeys the
    /// options, and progress is called after each part that is read ahead, with its end in the range.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let mut file = std::io::sink();
    /// use ddss::GetOptions;
    /// let image = client.segment("image").allocate(3 << 20)?;
    /// let mut last = (0, 0);
    /// let mut bar = |done, total| last = (done, total);
    /// std::io::copy(&mut image.reader(.., GetOptions::new().progress(&mut bar))?, &mut file)?;
    /// assert_eq!(last, (3 << 20, 3 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reader<'p>(&self, range: impl RangeBounds<u64>, options: GetOptions<'p>) -> Result<Reader<'p>, Error> {
        let (begin, bytes) = self.location().place_of_stream(range)?;
        Ok(Reader { segment: self.clone(), window: ReadWindow::new(begin, bytes), options })
    }

    /// Returns a writer of a value that begins at `offset`, for code that takes [`Write`] and [`Seek`]. Its end obeys the
    /// options.
    pub fn writer<'p>(&self, offset: u64, options: PutOptions<'p>) -> Writer<'p> {
        Writer { segment: self.clone(), buffer: WriteBuffer::new(offset), options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::TestNode;
    use ddss_core::limits::TRANSFER_BYTES_MAX;

    #[test]
    fn reader_returns_one_version_and_reports_the_next() {
        // If this broke, code that streams a segment would mix two values without an error.
        let node = TestNode::start_with(|config| config.pool_bytes = 64 << 20);
        let bytes = 2 * TRANSFER_BYTES_MAX + 5;
        let segment = node.client().segment("stream").allocate(Spec::new(bytes as u64)).unwrap();
        let mut writer = segment.writer(1, PutOptions::new());
        writer.write_all(&vec![7; bytes - 1]).unwrap();
        let full = writer.write(&[1]).unwrap_err();
        assert_eq!((full.kind(), segment.get(0..8).unwrap().version().0), (io::ErrorKind::StorageFull, 0));
        writer.seek(SeekFrom::Start(3)).unwrap();
        writer.write_all(&[8]).unwrap();
        let stamp = writer.finish().unwrap();
        let mut reader = segment.reader(1.., GetOptions::new()).unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all.len() == bytes - 1 && all[3] == 8 && all.iter().filter(|&&byte| byte == 7).count() == bytes - 2);
        assert_eq!((reader.stamp(), reader.seek(SeekFrom::End(-2)).unwrap()), (Some(stamp), bytes as u64 - 3));
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 2);
        segment.put(0, &[1]).unwrap();
        reader.rewind().unwrap();
        let stale = reader.read(&mut [0; 8]).unwrap_err();
        assert_eq!(stale.kind(), io::ErrorKind::StaleNetworkFileHandle);
        let mut reader = segment.reader(1.., GetOptions::new()).unwrap();
        assert_eq!((reader.read(&mut [0; 8]).unwrap(), reader.stamp().unwrap().version.0), (8, 2));
        let beyond = segment.reader(..bytes as u64 + 1, GetOptions::new());
        assert!(beyond.is_err() && reader.seek(SeekFrom::Current(-9)).is_err());
    }

    #[test]
    fn cursors_obey_their_options() {
        // If this broke, a stream would replace a version that its writer has not seen, or be of another one than asked for.
        let node = TestNode::start();
        let segment = node.client().segment("stream").allocate(Spec::new(20_000).history(1)).unwrap();
        let first = segment.put(0, &[1; 20_000]).unwrap();
        let second = segment.put(0, &[2; 20_000]).unwrap();
        let mut calls = Vec::new();
        let mut note = |done, total| calls.push((done, total));
        let options = GetOptions::new().at_version(first.version).progress(&mut note);
        let (mut reader, mut all) = (segment.reader(2000.., options).unwrap(), Vec::new());
        reader.read_to_end(&mut all).unwrap();
        assert_eq!((reader.stamp(), all == [1; 18_000]), (Some(first), true));
        drop(reader);
        assert!(calls.is_sorted() && calls.len() > 1 && calls.last() == Some(&(18_000, 18_000)), "{calls:?}");
        let hasty = segment.with_timeout(std::time::Duration::from_millis(20));
        let mut later = hasty.reader(.., GetOptions::new().newer_than(second.version)).unwrap();
        let late = later.read(&mut [0; 8]).unwrap_err().downcast::<Error>().unwrap();
        assert_eq!(late.kind(), crate::ErrorKind::TimedOut);
        let mut calls = Vec::new();
        let mut note = |done, total| calls.push((done, total));
        let mut stale = segment.writer(0, PutOptions::new().if_version(first.version));
        stale.write_all(b"stale").unwrap();
        assert!(stale.finish().unwrap_err().is_conflict());
        let mut fresh = segment.writer(0, PutOptions::new().if_version(second.version).progress(&mut note));
        fresh.write_all(b"fresh").unwrap();
        assert_eq!((fresh.finish().unwrap().version.0, calls), (3, vec![(5, 5)]));
    }

    #[test]
    fn seek_inside_the_buffer_costs_nothing_and_elsewhere_what_is_asked() {
        // If this broke, a program that seeks would move a mebibyte for each of its small reads.
        let node = TestNode::start_with(|config| config.pool_bytes = 64 << 20);
        let bytes: Vec<u8> = (0..8u32 << 18).flat_map(|word| word.to_le_bytes()).collect();
        let segment = node.client().segment("index").allocate(Spec::new(bytes.len() as u64)).unwrap();
        segment.put(0, &bytes).unwrap();
        let mut reader = segment.reader(.., GetOptions::new()).unwrap();
        let (mut gets, mut moved) = node.gets(0);
        let mut costs = |of: u64| {
            let now = node.gets(gets + of);
            let cost = (now.0 - gets, now.1 - moved);
            (gets, moved) = now;
            cost
        };
        let word = |reader: &mut Reader<'_>, at: u64| {
            let mut word = [0; 4];
            reader.seek(SeekFrom::Start(at)).unwrap();
            reader.read_exact(&mut word).unwrap();
            assert_eq!(u64::from(u32::from_le_bytes(word)) * 4, at);
        };
        // A search in an index of 8 MiB.
        (0..20).for_each(|step| word(&mut reader, (8 << 20 >> step) - 4));
        assert_eq!(costs(20), (20, 80));
        // In order it reads ahead, and back in the buffer there is nothing to read.
        (0..1024).for_each(|at| word(&mut reader, (1 << 20) + 4 * at));
        assert_eq!(costs(2), (2, 4 + 4096));
        (0..1024).rev().step_by(5).for_each(|at| word(&mut reader, (1 << 20) + 4 + 4 * at));
        assert_eq!(costs(0), (0, 0));
        // Lines and other pieces come without a second buffer.
        reader.seek(SeekFrom::Start(4 << 20)).unwrap();
        let piece = reader.fill_buf().unwrap().len();
        reader.consume(4);
        let rest = reader.fill_buf().unwrap();
        assert_eq!((piece, rest.len(), &rest[..4]), (4096, 4092, &((1u32 << 20) + 1).to_le_bytes()[..]));
        assert_eq!(costs(1), (1, 4096));
        reader.consume(usize::MAX);
        assert_eq!(reader.stream_position().unwrap(), (4 << 20) + 4096);
        // All bytes in order take few requests: 8 KiB, 16 KiB and so on, then whole mebibytes.
        let (mut all, mut piece) = (Vec::new(), [0; 8192]);
        reader.rewind().unwrap();
        while let length @ 1.. = reader.read(&mut piece).unwrap() {
            all.extend_from_slice(&piece[..length]);
        }
        assert!(all == bytes);
        assert_eq!(costs(15), (15, 8 << 20));
        assert!(reader.fill_buf().unwrap().is_empty() && reader.read(&mut [0; 8]).unwrap() == 0);
    }
}
