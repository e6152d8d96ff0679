//! Bytes that a writer collects before it puts them as one value.

use crate::plan::read_window::target;
use ddss_core::limits::VALUE_BYTES_MAX;
use std::io::{self, SeekFrom};

/// A value from an offset of a segment on, and a cursor in it. A gap that a seek leaves is zero.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    pub(crate) offset: u64,
    pub(crate) value: Vec<u8>,
    at: u64,
}

impl WriteBuffer {
    pub(crate) fn new(offset: u64) -> Self {
        Self { offset, value: Vec::new(), at: 0 }
    }

    /// Returns the place of the cursor in the value.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Takes as many bytes as a segment of that length has room for.
    pub(crate) fn write(&mut self, bytes: &[u8], segment: u64, name: &str) -> io::Result<usize> {
        if bytes.is_empty() {
            // A cursor far behind the value has no gap to fill yet.
            return Ok(0);
        }
        let room = segment.saturating_sub(self.offset).min(VALUE_BYTES_MAX as u64);
        let length = usize::try_from(room.saturating_sub(self.at)).unwrap_or(usize::MAX).min(bytes.len());
        if length == 0 {
            let what = format!("{name} has no more than {room} bytes from {} on", self.offset);
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

    /// Moves the cursor.
    pub(crate) fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = target(to, self.at, self.value.len() as u64)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_of_no_bytes_behind_a_far_seek_allocates_nothing() {
        // If this broke, an empty slice would end the process, or the value would be too long for its segment.
        let mut buffer = WriteBuffer::new(0);
        buffer.seek(SeekFrom::Start(1 << 50)).unwrap();
        assert_eq!(buffer.write(&[], 64, "far").unwrap(), 0);
        assert!(buffer.value.is_empty());
        assert_eq!(buffer.write(b"x", 64, "far").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
