//! Division of a reader into parts.

use super::catalogue::PARTS_MAX;
use super::wire::PART_BYTES_MAX;
use crate::error::QueueError;
use std::io::{self, Read};

/// Limits of the parts of a collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLimits {
    parts: u32,
    /// Bytes of each part but the last one.
    part_bytes: u64,
    /// Bytes of the part with the last number, at most.
    last_bytes: u64,
}

impl PartLimits {
    pub(super) const COLLECTION: Self = Self { parts: PARTS_MAX, part_bytes: 64 << 20, last_bytes: PART_BYTES_MAX };

    /// Returns the bytes of all parts, at most.
    pub(super) const fn bytes_max(self) -> u64 {
        (self.parts as u64 - 1) * self.part_bytes + self.last_bytes
    }
}

/// Loads the parts of a reader, one after the other. `load` takes a number, the reader and the bytes at most, and returns the
/// bytes of the part: fewer at the end of the reader. Returns false if the reader goes on behind the last part.
pub(super) fn split<R: Read>(
    from: &mut R,
    limits: PartLimits,
    mut load: impl FnMut(u32, &mut R, u64) -> Result<u64, QueueError>,
) -> Result<bool, QueueError> {
    for number in 0..limits.parts {
        let bytes_max = if number + 1 == limits.parts { limits.last_bytes } else { limits.part_bytes };
        if load(number, from, bytes_max)? < bytes_max {
            return Ok(true);
        }
    }
    Ok(fill(from, &mut [0])? == 0)
}

/// Reads until the buffer is full or the reader has ended. Returns the bytes.
pub(super) fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match from.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of the parts, and whether they are the whole reader.
    fn parts_of(bytes: u64) -> (Vec<u64>, bool) {
        let (limits, mut parts) = (PartLimits { parts: 3, part_bytes: 10, last_bytes: 25 }, Vec::new());
        let end = split(&mut io::repeat(7).take(bytes), limits, |number, from, bytes_max| {
            assert_eq!(number as usize, parts.len());
            let loaded = io::copy(&mut from.by_ref().take(bytes_max), &mut io::sink())?;
            parts.push(loaded);
            Ok(loaded)
        });
        assert_eq!(limits.bytes_max(), 45);
        (parts, end.unwrap())
    }

    // If this failed, the end of a large collection would be missing, without an error.
    #[test]
    fn reader_behind_the_last_part_is_noticed() {
        assert_eq!(parts_of(0), (vec![0], true));
        assert_eq!(parts_of(9), (vec![9], true));
        assert_eq!(parts_of(20), (vec![10, 10, 0], true));
        assert_eq!(parts_of(45), (vec![10, 10, 25], true));
        assert_eq!(parts_of(46), (vec![10, 10, 25], false));
    }
}
