//! The chunks of a part that a reader has not asked for.

use crate::model::Mirror;

/// Chunks that a mirror is asked for in rising order, before the reader goes further towards the front: a disk that reads
/// backwards would seek for each chunk.
const STRIDE: u32 = 8;

/// Order in which a program wants the chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOrder {
    /// In any order: one mirror is read from the front, the other from the back.
    Any,
    /// In rising order, so that only as many chunks are asked for as there are buffers.
    Rising,
}

/// The chunks of a part that a reader has not asked for.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    order: ReadOrder,
    /// Chunks before this one have been asked for.
    front: u32,
    /// Chunks from this one on have been asked for, apart from the stride.
    back: u32,
    /// The stride that the second mirror is in: next chunk, and end.
    stride: (u32, u32),
    /// Chunks that a mirror could not deliver, each from a buffer: for which mirror, if not for both.
    returned: Vec<(u32, Option<Mirror>)>,
}

impl Chunks {
    pub(super) fn new(total: u32, order: ReadOrder, slots: u16) -> Self {
        let returned = Vec::with_capacity(slots.into());
        Self { order, front: 0, back: total, stride: (total, total), returned }
    }

    /// Returns the number of buffers that are kept for returned chunks: in rising order, the program releases no later chunk
    /// before it has those.
    pub(super) fn kept_buffers(&self) -> usize {
        if self.order == ReadOrder::Rising { self.returned.len() } else { 0 }
    }

    /// Takes a returned chunk that both mirrors can deliver.
    pub(super) fn take_returned(&mut self) -> Option<u32> {
        let position = self.returned.iter().position(|(_, only)| only.is_none())?;
        Some(self.returned.remove(position).0)
    }

    /// Takes the next chunk for a mirror, of those that both can deliver.
    pub(super) fn take(&mut self, mirror: Mirror) -> Option<u32> {
        if let Some(chunk) = self.take_returned() {
            return Some(chunk);
        }
        if mirror == Mirror::First || self.order == ReadOrder::Rising {
            return self.take_front();
        }
        if self.stride.0 == self.stride.1 {
            let start = self.back.saturating_sub(STRIDE).max(self.front);
            self.stride = (start, self.back);
            self.back = start;
        }
        let is_left = self.stride.0 < self.stride.1;
        self.stride.0 += u32::from(is_left);
        is_left.then(|| self.stride.0 - 1)
    }

    fn take_front(&mut self) -> Option<u32> {
        if self.front < self.back {
            self.front += 1;
            return Some(self.front - 1);
        }
        // The other mirror is in the last stride: this one takes it from the end.
        let is_left = self.stride.0 < self.stride.1;
        self.stride.1 -= u32::from(is_left);
        is_left.then_some(self.stride.1)
    }

    /// Returns a chunk: another request has to ask for it, at one mirror only if that is named.
    pub(super) fn give_back(&mut self, chunk: u32, only: Option<Mirror>) {
        self.returned.push((chunk, only));
    }

    /// Returns a chunk that only one mirror can deliver, which was not asked for it yet.
    pub(super) fn awaited(&self) -> Option<(u32, Mirror)> {
        self.returned.iter().find_map(|(chunk, only)| Some((*chunk, (*only)?)))
    }

    /// Takes a chunk that the other mirror could not deliver.
    pub(super) fn take_only_at(&mut self, mirror: Mirror) -> Option<u32> {
        let position = self.returned.iter().position(|(_, only)| *only == Some(mirror))?;
        Some(self.returned.remove(position).0)
    }
}
