//! Frames between filters: the beginning of a query, its units of work, its end.

use std::io::{self, BufReader, Read, Write};

/// Maximum bytes of the body of a frame.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// Bytes before the body: kind, three zeros, and the bytes of the body (little-endian).
const HEADER_BYTES: usize = 8;
/// Bytes that a reader takes from its stream in one read.
const READ_BYTES: usize = 64 << 10;

const BEGIN: u8 = 1;
const UNIT: u8 = 2;
const END: u8 = 3;
const CLOSE: u8 = 4;

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// A query begins; its parameters.
    Begin(&'a [u8]),
    /// A unit of work of the query that began last.
    Unit(&'a [u8]),
    /// All units of the query were sent.
    End,
    /// No query follows.
    Close,
}

/// Writer of frames: each frame is one write.
#[derive(Debug)]
pub struct FrameWriter<W> {
    out: W,
    frame: Vec<u8>,
    units: u64,
    bytes: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Writes to a stream.
    pub fn new(out: W) -> Self {
        Self { out, frame: Vec::with_capacity(HEADER_BYTES + FRAME_BYTES_MAX), units: 0, bytes: 0 }
    }

    /// Writes a frame.
    pub fn write(&mut self, frame: Frame<'_>) -> io::Result<()> {
        let (kind, body) = match frame {
            Frame::Begin(body) => (BEGIN, body),
            Frame::Unit(body) => (UNIT, body),
            Frame::End => (END, &[][..]),
            Frame::Close => (CLOSE, &[][..]),
        };
        if body.len() > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {} bytes; at most {FRAME_BYTES_MAX}", body.len())));
        }
        self.frame.clear();
        self.frame.extend_from_slice(&[kind, 0, 0, 0]);
        self.frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.frame.extend_from_slice(body);
        self.out.write_all(&self.frame)?;
        self.bytes += self.frame.len() as u64;
        self.units += u64::from(kind == UNIT);
        Ok(())
    }

    /// Sends the bytes in the buffer of this process.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the number of units and of bytes that were written.
    pub fn written(&self) -> (u64, u64) {
        (self.units, self.bytes)
    }
}

/// Reader of frames.
#[derive(Debug)]
pub struct FrameReader<R> {
    from: BufReader<R>,
    body: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Reads from a stream.
    pub fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(READ_BYTES, from), body: Vec::new() }
    }

    /// Returns true if the next frame may have to be waited for.
    pub fn may_wait(&self) -> bool {
        self.from.buffer().is_empty()
    }

    /// Reads the next frame. The end of the stream before a `Close` is an error.
    pub fn read(&mut self) -> io::Result<Frame<'_>> {
        let mut header = [0; HEADER_BYTES];
        self.from.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "the filter before this one ended in the middle of its work")
            }
            _ => error,
        })?;
        let [kind, zeros @ .., b0, b1, b2, b3] = header;
        let bytes = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        if zeros != [0; 3] || bytes > FRAME_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a frame: {header:02x?}")));
        }
        self.body.resize(bytes, 0);
        self.from.read_exact(&mut self.body)?;
        match (kind, bytes) {
            (BEGIN, _) => Ok(Frame::Begin(&self.body)),
            (UNIT, _) => Ok(Frame::Unit(&self.body)),
            (END, 0) => Ok(Frame::End),
            (CLOSE, 0) => Ok(Frame::Close),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a frame: {header:02x?}"))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
mod tests {
    use super::*;

    // If this failed, a filter would compute with the bytes of another unit.
    #[test]
    fn frames_arrive_as_they_were_written() {
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes);
        let unit = vec![7; FRAME_BYTES_MAX];
        let frames = [Frame::Begin(b"query"), Frame::Unit(&[]), Frame::Unit(&unit), Frame::End, Frame::Close];
        frames.iter().for_each(|&frame| writer.write(frame).unwrap());
        assert_eq!(writer.written(), (2, (5 * HEADER_BYTES + 5 + FRAME_BYTES_MAX) as u64));
        let mut reader = FrameReader::new(&bytes[..]);
        for frame in frames {
            assert_eq!(reader.read().unwrap(), frame);
        }
        assert_eq!(reader.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    // If this failed, bytes of an unauthenticated peer would make a filter allocate without bound.
    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        let refused = [
            [9, 0, 0, 0, 0, 0, 0, 0],
            [UNIT, 1, 0, 0, 0, 0, 0, 0],
            [UNIT, 0, 0, 0, 255, 255, 255, 255],
            [END, 0, 0, 0, 1, 0, 0, 0],
        ];
        for bytes in refused {
            let more = [&bytes[..], &[0; 8]].concat();
            assert_eq!(FrameReader::new(&more[..]).read().unwrap_err().kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        assert!(FrameWriter::new(Vec::new()).write(Frame::Unit(&vec![0; FRAME_BYTES_MAX + 1])).is_err());
    }
}
