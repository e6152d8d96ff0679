//! Owners of one direction of a stream each.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::stream::Stream;

/// Owner of the direction towards this end.
#[derive(Debug)]
pub struct ReadHalf {
    stream: Arc<Stream>,
}

/// Owner of the direction towards the peer. Dropping it closes the direction behind everything written.
#[derive(Debug)]
pub struct WriteHalf {
    stream: Arc<Stream>,
}

impl Stream {
    /// Gives each direction an owner. The connection ends when both are dropped.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        let stream = Arc::new(self);
        (ReadHalf { stream: Arc::clone(&stream) }, WriteHalf { stream })
    }
}

impl ReadHalf {
    /// Returns the stream, for its transport and its settings.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl WriteHalf {
    /// Returns the stream, for its transport and its settings.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Read for ReadHalf {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        (&*self.stream).read(room)
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.stream).flush()
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // A peer that is gone is reported to the reader.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
