//! Buffer of a reader: what it holds of its range, and what to read next.

use crate::error::{Error, ErrorKind};
use crate::plan::transfer::Progress;
use crate::value::{Stamp, Value};
use ddss_core::limits::TRANSFER_BYTES_MAX;
use std::io::{self, SeekFrom};

/// Bytes that a reader reads ahead first. Each further part in order is twice as long, up to one request.
const AHEAD_BYTES_MIN: u64 = 4096;

/// Cursor in a range, and the bytes of one version that were read around it.
#[derive(Clone, Debug)]
pub(crate) struct ReadWindow {
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

impl ReadWindow {
    pub(crate) const fn new(begin: u64, bytes: u64) -> Self {
        Self { begin, bytes, at: 0, stamp: None, loaded: Vec::new(), loaded_at: 0 }
    }

    pub(crate) const fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// Returns true if bytes have to be read before the cursor can move on.
    pub(crate) fn needs_bytes(&self) -> bool {
        self.at < self.bytes && self.unread().is_empty()
    }

    /// Returns the bytes from the cursor on that are here.
    pub(crate) fn unread(&self) -> &[u8] {
        let from = self.at.checked_sub(self.loaded_at).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.loaded.get(from..)).unwrap_or_default()
    }

    /// Returns the range of the segment to read, for a caller that asks for `asked` bytes: no more after a seek, and
    /// bytes ahead while the cursor goes on in order.
    pub(crate) fn next_range(&self, asked: usize) -> std::ops::Range<u64> {
        let last = self.loaded.len() as u64;
        let is_in_order = last > 0 && self.at == self.loaded_at + last;
        let ahead = if is_in_order { (2 * last).max(AHEAD_BYTES_MIN) } else { 1 };
        let length = (asked as u64).max(ahead).min(TRANSFER_BYTES_MAX as u64).min(self.bytes - self.at);
        self.begin + self.at..self.begin + self.at + length
    }

    /// Takes the bytes that were read at that place of the range.
    pub(crate) fn load(&mut self, at: u64, value: Value, progress: Option<&mut Progress<'_>>) {
        self.stamp = Some(value.stamp);
        (self.loaded_at, self.loaded) = (at, value.value);
        if let Some(progress) = progress {
            progress(at + self.loaded.len() as u64, self.bytes);
        }
    }

    /// Returns the error of a read whose version may be gone.
    pub(crate) fn error(&self, error: Error) -> io::Error {
        match self.stamp {
            Some(Stamp { version, .. }) if error.kind() == ErrorKind::VersionGone => io::Error::new(
                io::ErrorKind::StaleNetworkFileHandle,
                format!("the segment has changed since {version} was read from the start: begin with a new reader"),
            ),
            _ => io::Error::other(error),
        }
    }

    /// Moves bytes that are here to the caller.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> usize {
        let from = self.unread();
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        self.at += length as u64;
        length
    }

    /// Moves the cursor over bytes that [`unread`](Self::unread) has returned.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.at += bytes.min(self.unread().len()) as u64;
    }

    pub(crate) fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = target(to, self.at, self.bytes)?;
        Ok(self.at)
    }

    /// Returns how many bytes a caller asks for who takes what is there.
    pub(crate) const fn any() -> usize {
        AHEAD_BYTES_MIN as usize
    }
}

/// Returns the place that a seek leads to.
pub(crate) fn target(to: SeekFrom, at: u64, end: u64) -> io::Result<u64> {
    let place = match to {
        SeekFrom::Start(place) => Some(place),
        SeekFrom::Current(distance) => at.checked_add_signed(distance),
        SeekFrom::End(distance) => end.checked_add_signed(distance),
    };
    place.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a seek leads before the first byte"))
}
