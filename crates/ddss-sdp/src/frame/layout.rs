//! Positions in a stream of frames.

use crate::codec::HEADER_BYTES;
use crate::error::SdpError;
use crate::limits::{FRAME_PAYLOAD_MAX, RING_BYTES_MAX};

/// Bytes between the starts of two markers.
pub(crate) const SPACING: usize = 512;
/// Bytes of a marker.
pub(crate) const MARKER_BYTES: usize = 4;
/// Bytes between two markers.
const RUN_BYTES: usize = SPACING - MARKER_BYTES;
/// Bytes of the length field.
pub(crate) const LENGTH_BYTES: usize = 2;
/// Bytes of the headers of DDP and RDMAP of an untagged message.
pub(crate) const SEND_HEADER_BYTES: usize = 18;
/// Bytes of the headers of DDP and RDMAP of a tagged message.
pub(crate) const TAGGED_HEADER_BYTES: usize = 14;
/// Bytes of the frame of a tagged message before the payload.
pub(crate) const HEAD_BYTES: usize = LENGTH_BYTES + TAGGED_HEADER_BYTES;
/// Bytes of a frame before the payload.
pub(crate) const PREFIX_BYTES: usize = LENGTH_BYTES + SEND_HEADER_BYTES + HEADER_BYTES;
/// Bytes of the checksum field.
pub(crate) const CHECKSUM_BYTES: usize = 4;
/// Bytes of the largest frame without markers.
pub(crate) const FRAME_BYTES_MAX: usize = frame_bytes(PREFIX_BYTES + FRAME_PAYLOAD_MAX);

const _: () = assert!(SPACING.is_multiple_of(4) && PREFIX_BYTES.is_multiple_of(4));
const _: () = assert!(
    FRAME_BYTES_MAX + MARKER_BYTES * (FRAME_BYTES_MAX / RUN_BYTES + 2) <= u16::MAX as usize,
    "the distance in a marker has 16 bits"
);

/// Function that continues a CRC32c over more bytes; it starts with zero.
pub type Checksum = fn(u32, &[u8]) -> u32;

/// Options of a stream of frames in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framing {
    /// True if the stream has markers.
    pub markers: bool,
    /// Checksum of each frame; `None` if both sides agreed to go without.
    pub checksum: Option<Checksum>,
}

impl Framing {
    /// Returns the number of bytes before `position` that are not part of a marker.
    pub(crate) const fn content_before(&self, position: u64) -> u64 {
        if !self.markers {
            return position;
        }
        let (blocks, rest) = (position / SPACING as u64, position % SPACING as u64);
        blocks * RUN_BYTES as u64 + rest.saturating_sub(MARKER_BYTES as u64)
    }

    /// Returns the position of the byte before which there are `content` bytes that are not part of a marker.
    const fn position_of(&self, content: u64) -> u64 {
        if !self.markers {
            return content;
        }
        content / RUN_BYTES as u64 * SPACING as u64 + MARKER_BYTES as u64 + content % RUN_BYTES as u64
    }

    /// Returns the position of byte `at` of the frame that starts at `start`, markers not counted.
    pub(crate) const fn within(&self, start: u64, at: usize) -> u64 {
        self.position_of(self.content_before(start) + at as u64)
    }

    /// Returns the position behind a frame with `bytes` bytes, markers not counted.
    pub(crate) const fn end(&self, start: u64, bytes: usize) -> u64 {
        self.within(start, bytes - 1) + 1
    }

    /// Returns the number of bytes from `position` that lie side by side in a ring of `ring` bytes.
    pub(crate) const fn run(&self, position: u64, ring: usize) -> usize {
        let unit = if self.markers { SPACING } else { ring };
        unit - (position % unit as u64) as usize
    }

    /// Returns the positions of the markers between two positions.
    pub(crate) fn markers_between(&self, start: u64, end: u64) -> impl Iterator<Item = u64> + use<> {
        let first = start.next_multiple_of(SPACING as u64);
        let end = if self.markers { end } else { first };
        (first..end).step_by(SPACING)
    }
}

/// Returns the bytes of a frame with `content` bytes before its padding, markers not counted.
pub(crate) const fn frame_bytes(content: usize) -> usize {
    content.next_multiple_of(4) + CHECKSUM_BYTES
}

/// Returns the headers of DDP and RDMAP of send `number`: last segment, queue 0, offset 0.
pub(crate) fn send_header(number: u32) -> [u8; SEND_HEADER_BYTES] {
    let mut out = [0; SEND_HEADER_BYTES];
    out[0] = 0x41;
    out[1] = 0x43;
    out[10..14].copy_from_slice(&number.to_be_bytes());
    out
}

/// Returns the headers of DDP and RDMAP of read request `number`: last segment, queue 1, offset 0.
pub(crate) fn request_header(number: u32) -> [u8; SEND_HEADER_BYTES] {
    let mut out = send_header(number);
    out[1] = 0x41;
    out[9] = 1;
    out
}

/// Returns the marker at `position` in a frame that starts at `start`.
pub(crate) fn marker(start: u64, position: u64) -> [u8; MARKER_BYTES] {
    let [high, low] = ((position - start) as u16).to_be_bytes();
    [0, 0, high, low]
}

/// Checks the size of a ring: room for two of the largest frames, so that one can be filled while one leaves.
pub(crate) fn check_ring(bytes: usize) -> Result<(), SdpError> {
    let least = 2 * (u16::MAX as usize + 1);
    if bytes < least || bytes > RING_BYTES_MAX || !bytes.is_multiple_of(SPACING) {
        return Err(SdpError::Config("ring_bytes", bytes));
    }
    Ok(())
}

/// Returns one or two slices of a ring: `bytes` bytes from `position`.
pub(crate) fn slices(ring: &[u8], position: u64, bytes: usize) -> [&[u8]; 2] {
    let at = (position % ring.len() as u64) as usize;
    let first = bytes.min(ring.len() - at);
    [&ring[at..at + first], &ring[..bytes - first]]
}

/// Sums `bytes` bytes of a ring from `position`.
pub(crate) fn sum(checksum: Checksum, ring: &[u8], position: u64, bytes: usize) -> [u8; CHECKSUM_BYTES] {
    let [first, second] = slices(ring, position, bytes);
    checksum(checksum(0, first), second).to_le_bytes()
}
