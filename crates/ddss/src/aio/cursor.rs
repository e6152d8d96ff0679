//! Cursors over a segment for tasks. With the feature `futures-io` they implement the traits of that crate; tokio's
//! traits follow from these by `tokio_util::compat`.

use super::Segment;
use crate::error::Error;
use crate::options::{GetOptions, PutOptions};
use crate::plan::read_window::ReadWindow;
use crate::plan::write_buffer::WriteBuffer;
use crate::value::{Stamp, Value};
use ddss_core::{BadArgument, Failure};
use std::future::{Future, poll_fn};
use std::io::{self, SeekFrom};
use std::ops::RangeBounds;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

type Boxed<'p, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'p>>;

/// Reads a range of a segment as a stream of one version: [`Reader`](crate::Reader)
/// for tasks.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let notes = client.aio()?.segment("notes").allocate(64).await?;
/// notes.put(0, b"first line").await?;
/// let mut reader = notes.reader(6.., ddss::GetOptions::new())?;
/// let mut word = [0; 4];
/// assert_eq!(reader.read(&mut word).await?, 4);
/// assert_eq!(&word, b"line");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader<'p> {
    segment: Segment,
    window: ReadWindow,
    options: GetOptions<'p>,
    /// The read in flight, and its place.
    loading: Option<(u64, Boxed<'static, Value>)>,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("aio::Reader");
        out.field("segment", &self.segment).field("at", &self.window.at()).finish_non_exhaustive()
    }
}

impl Reader<'_> {
    /// Returns version and timestamp of the bytes; `None` before the first read.
    pub fn stamp(&self) -> Option<Stamp> {
        self.window.stamp()
    }

    /// Reads some bytes; 0 at the end. Dropping the future loses no byte.
    pub async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_bytes(context, into)).await
    }

    /// Moves the cursor in the range. A seek itself reads nothing, as with [`Reader`](crate::Reader).
    pub fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.window.seek(to)
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_load(context, into.len()))?;
        Poll::Ready(Ok(self.window.take(into)))
    }

    /// Reads bytes from the cursor on, unless there are some.
    fn poll_load(&mut self, context: &mut Context<'_>, asked: usize) -> Poll<io::Result<()>> {
        if !self.window.needs_bytes() {
            return Poll::Ready(Ok(()));
        }
        // A read of another place, which a seek has left, is dropped.
        let begun = self.loading.take().filter(|&(at, _)| at == self.window.at());
        let (at, mut begun) = begun.unwrap_or_else(|| (self.window.at(), self.begin_load(asked)));
        let Poll::Ready(loaded) = begun.as_mut().poll(context) else {
            self.loading = Some((at, begun));
            return Poll::Pending;
        };
        let value = loaded.map_err(|error| self.window.error(error))?;
        self.window.load(at, value, self.options.progress.as_deref_mut());
        Poll::Ready(Ok(()))
    }

    fn begin_load(&self, asked: usize) -> Boxed<'static, Value> {
        let (segment, range) = (self.segment.clone(), self.window.next_range(asked));
        let options = self.options.of_next_read(self.window.stamp().map(|stamp| stamp.version));
        Box::pin(async move { segment.get_with(range, options).await })
    }
}

/// Collects a value in the memory of this process and puts it with one version: [`Writer`](crate::Writer)
/// for tasks.
///
/// Nothing is written before [`finish`](Self::finish), or before the writer is closed by way of the trait.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let notes = client.aio()?.segment("notes").allocate(64).await?;
/// let mut writer: ddss::aio::Writer<'_> = notes.writer(0, ddss::PutOptions::new());
/// writer.write(b"first line\n")?;
/// assert_eq!(writer.finish().await?.version.0, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is written before `finish`"]
pub struct Writer<'p> {
    segment: Segment,
    buffer: WriteBuffer,
    options: PutOptions<'p>,
    /// The put in flight.
    putting: Option<Boxed<'p, Stamp>>,
    /// The value was given to a put.
    is_closed: bool,
    /// Result of the put.
    stamp: Option<Stamp>,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("aio::Writer");
        out.field("segment", &self.segment).field("at", &self.buffer.at()).finish_non_exhaustive()
    }
}

impl Writer<'_> {
    /// Takes some bytes at the cursor. It never waits.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the writer is closed: its value is put"));
        }
        self.buffer.write(bytes, self.segment.len(), self.segment.name())
    }

    /// Moves the cursor in the value.
    pub fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.buffer.seek(to)
    }

    /// Returns version and timestamp of the value, once it is put.
    pub fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Puts all bytes that were written.
    pub async fn finish(mut self) -> Result<Stamp, Error> {
        poll_fn(|context| self.poll_put(context)).await
    }

    /// Puts the value once.
    fn poll_put(&mut self, context: &mut Context<'_>) -> Poll<Result<Stamp, Error>> {
        if let Some(stamp) = self.stamp {
            return Poll::Ready(Ok(stamp));
        }
        if self.is_closed && self.putting.is_none() {
            let refused = BadArgument::new("writer", "closed", "one that has not failed", Failure::Unsupported);
            return Poll::Ready(Err(Error::bad_argument("put", self.segment.name(), refused)));
        }
        self.is_closed = true;
        let Self { segment, buffer, options, .. } = self;
        let put = || {
            let (segment, offset) = (segment.clone(), buffer.offset);
            let (value, options) = (std::mem::take(&mut buffer.value), std::mem::take(options));
            Box::pin(async move { segment.put_with(&[(offset, &value[..])], options).await }) as Boxed<'_, Stamp>
        };
        let put = ready!(self.putting.get_or_insert_with(put).as_mut().poll(context));
        self.putting = None;
        self.stamp = put.as_ref().ok().copied();
        Poll::Ready(put)
    }
}

impl Segment {
    /// Returns a reader of a range for tasks: [`Segment::reader`](crate::Segment::reader).
    pub fn reader<'p>(&self, range: impl RangeBounds<u64>, options: GetOptions<'p>) -> Result<Reader<'p>, Error> {
        let (begin, bytes) = self.location().place_of_stream(range)?;
        Ok(Reader { segment: self.clone(), window: ReadWindow::new(begin, bytes), options, loading: None })
    }

    /// Returns a writer of a value that begins at `offset` for tasks: [`Segment::writer`](crate::Segment::writer).
    pub fn writer<'p>(&self, offset: u64, options: PutOptions<'p>) -> Writer<'p> {
        let segment = self.clone();
        let buffer = WriteBuffer::new(offset);
        Writer { segment, buffer, options, putting: None, is_closed: false, stamp: None }
    }
}

#[cfg(feature = "futures-io")]
mod traits {
    use super::*;
    use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};

    impl AsyncRead for Reader<'_> {
        fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
            self.poll_bytes(context, into)
        }
    }

    impl AsyncBufRead for Reader<'_> {
        fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            let reader = self.get_mut();
            ready!(reader.poll_load(context, ReadWindow::any()))?;
            Poll::Ready(Ok(reader.window.unread()))
        }

        fn consume(mut self: Pin<&mut Self>, bytes: usize) {
            self.window.consume(bytes);
        }
    }

    impl AsyncSeek for Reader<'_> {
        fn poll_seek(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
            Poll::Ready(self.seek(to))
        }
    }

    /// Closing the writer puts its value; a writer that is dropped before has no effect.
    impl AsyncWrite for Writer<'_> {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(self.write(bytes))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_put(context).map(|put| put.map(|_| ()).map_err(io::Error::other))
        }
    }

    impl AsyncSeek for Writer<'_> {
        fn poll_seek(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
            Poll::Ready(self.seek(to))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::{TestNode, block_on, poll_once};
    #[cfg(feature = "futures-io")]
    use ddss_core::Version;
    use ddss_core::limits::TRANSFER_BYTES_MAX;

    #[test]
    fn async_reader_returns_one_version_and_reports_the_next() {
        // If this broke, a task that streams a segment would mix two values without an error.
        let node = TestNode::start_with(|config| config.pool_bytes = 64 << 20);
        let bytes = 2 * TRANSFER_BYTES_MAX + 5;
        let client = node.client().aio().unwrap();
        block_on(async {
            let segment = client.segment("stream").allocate(Spec::new(bytes as u64)).await.unwrap();
            let mut writer = segment.writer(1, PutOptions::new());
            assert_eq!(writer.write(&vec![7; bytes - 1]).unwrap(), bytes - 1);
            assert_eq!(writer.write(&[1]).unwrap_err().kind(), io::ErrorKind::StorageFull);
            writer.seek(SeekFrom::Start(3)).unwrap();
            writer.write(&[8]).unwrap();
            assert_eq!(segment.get(0..8).await.unwrap().version().0, 0, "nothing is written before the end");
            let stamp = writer.finish().await.unwrap();
            let mut reader = segment.reader(1.., GetOptions::new()).unwrap();
            let (mut all, mut part) = (Vec::new(), vec![0; 1 << 20]);
            loop {
                match reader.read(&mut part).await.unwrap() {
                    0 => break,
                    length => all.extend_from_slice(&part[..length]),
                }
            }
            assert!(all.len() == bytes - 1 && all[3] == 8);
            assert!(all.iter().filter(|&&byte| byte == 7).count() == bytes - 2);
            assert_eq!((reader.stamp(), reader.seek(SeekFrom::End(-2)).unwrap()), (Some(stamp), bytes as u64 - 3));
            assert_eq!(reader.read(&mut [0; 8]).await.unwrap(), 2);
            segment.put(0, &[1]).await.unwrap();
            reader.seek(SeekFrom::Start(0)).unwrap();
            let stale = reader.read(&mut [0; 8]).await.unwrap_err();
            assert_eq!(stale.kind(), io::ErrorKind::StaleNetworkFileHandle);
            let mut reader = segment.reader(1.., GetOptions::new()).unwrap();
            assert_eq!((reader.read(&mut [0; 8]).await.unwrap(), reader.stamp().unwrap().version.0), (8, 2));
        });
    }

    #[test]
    fn read_that_is_given_up_takes_no_byte_away() {
        // If this broke, a stream whose read is in a `select` would miss bytes, or have those of another place.
        let node = TestNode::start();
        let (client, other) = (node.client().aio().unwrap(), node.client());
        let segment = block_on(client.segment("stream").allocate(64)).unwrap();
        let bytes: Vec<u8> = (0..64).collect();
        block_on(segment.put(0, &bytes)).unwrap();
        for place in [0, 40] {
            let held = other.segment("stream").open().unwrap().lock().unwrap();
            let mut reader = segment.reader(.., GetOptions::new()).unwrap();
            // The get waits for the lock.
            assert!(poll_once(&mut Box::pin(reader.read(&mut [0; 8]))).is_pending());
            assert!(reader.loading.is_some());
            held.unlock().unwrap();
            reader.seek(SeekFrom::Start(place)).unwrap();
            let (mut all, mut part) = (Vec::new(), [0; 24]);
            block_on(async {
                loop {
                    match reader.read(&mut part).await.unwrap() {
                        0 => break,
                        length => all.extend_from_slice(&part[..length]),
                    }
                }
            });
            assert_eq!(all, bytes[place as usize..]);
        }
    }

    #[cfg(feature = "futures-io")]
    #[test]
    fn writer_whose_close_failed_puts_nothing_later() {
        // If this broke, a second close would say that a value is stored which is not, or put zeroes over another one.
        use futures_io::AsyncWrite;
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        block_on(async {
            let segment = client.segment("stream").allocate(Spec::new(64)).await.unwrap();
            let kept = segment.put(0, b"kept").await.unwrap();
            let mut writer = segment.writer(0, PutOptions::new().if_version(Version(99)));
            assert_eq!(writer.write(b"lost").unwrap(), 4);
            for _ in 0..2 {
                poll_fn(|context| Pin::new(&mut writer).poll_close(context)).await.unwrap_err();
                assert_eq!(writer.write(b"more").unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
            let value = segment.get(0..4).await.unwrap();
            assert_eq!((&value[..], value.version()), (&b"kept"[..], kept.version));
        });
    }

    #[cfg(feature = "futures-io")]
    #[test]
    fn writer_that_is_closed_puts_once() {
        // If this broke, a copy of a stream into a segment would be lost, or there twice.
        use futures_io::{AsyncRead, AsyncWrite};
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        block_on(async {
            let segment = client.segment("stream").allocate(Spec::new(64)).await.unwrap();
            let mut writer = segment.writer(0, PutOptions::new());
            let mut write = |bytes: &'static [u8]| {
                poll_once(&mut Box::pin(poll_fn(|context| Pin::new(&mut writer).poll_write(context, bytes))))
            };
            assert!(matches!(write(b"hello"), Poll::Ready(Ok(5))));
            for _ in 0..2 {
                poll_fn(|context| Pin::new(&mut writer).poll_close(context)).await.unwrap();
            }
            assert_eq!(writer.stamp().unwrap().version.0, 1);
            assert_eq!(writer.write(b"more").unwrap_err().kind(), io::ErrorKind::InvalidInput);
            let (mut reader, mut word) = (segment.reader(..5, GetOptions::new()).unwrap(), [0; 8]);
            let read = poll_fn(|context| Pin::new(&mut reader).poll_read(context, &mut word)).await;
            assert_eq!((read.unwrap(), &word[..5]), (5, &b"hello"[..]));
        });
    }
}
