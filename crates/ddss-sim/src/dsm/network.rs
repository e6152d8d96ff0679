//! Connections between simulated ranks. They promise what a fabric promises, and nothing else.
//!
//! Reads and swaps of a connection happen in order and behind all writes before them; messages arrive in order and behind
//! all writes before them. Writes are placed in pieces, in any order, also before earlier reads and messages. Reads take
//! their bytes in pieces.

use crate::random::Random;
use ddss_dsm_core::{Area, LocalPlace, PageId, Tag};
use std::collections::VecDeque;

/// An operation in flight from one rank to another.
#[derive(Clone, Debug)]
pub(crate) enum Transfer {
    Message(Vec<u8>),
    /// Bytes, and the pieces of them that are not placed: offset and length.
    Write {
        offset: u64,
        bytes: Vec<u8>,
        pieces: Vec<(usize, usize)>,
    },
    /// A home frame of the sender for a landing slot of the receiver. The sender's adapter reads it when it sends.
    Page {
        page: PageId,
        slot: u16,
        pieces: Vec<(usize, usize)>,
    },
    Read {
        tag: Tag,
        area: Area,
        offset: u64,
        bytes: usize,
        into: LocalPlace,
        data: Vec<u8>,
    },
    Swap {
        tag: Tag,
        offset: u64,
        word: u64,
    },
}

impl Transfer {
    fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Page { .. })
    }

    fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Swap { .. })
    }
}

/// The answer to a read or a swap on its way back.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) tag: Tag,
    pub(crate) value: u64,
    pub(crate) landing: Option<(LocalPlace, Vec<u8>)>,
}

/// Kind of the next event on a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Write,
    Read,
    Message,
    Response,
}

/// Operations in flight from one rank to another, and responses to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    transfers: VecDeque<Transfer>,
    responses: VecDeque<Response>,
}

impl Connection {
    pub(crate) fn push(&mut self, transfer: Transfer) {
        self.transfers.push_back(transfer);
    }

    pub(crate) fn respond(&mut self, response: Response) {
        self.responses.push_back(response);
    }

    pub(crate) fn clear(&mut self) {
        self.transfers.clear();
        self.responses.clear();
    }

    /// Returns the place of the first transfer of a kind that no write is in front of.
    fn first_unblocked(&self, is_kind: impl Fn(&Transfer) -> bool) -> Option<usize> {
        let first = self.transfers.iter().position(is_kind)?;
        (!self.transfers.iter().take(first).any(Transfer::is_write)).then_some(first)
    }

    /// Returns the kinds that can happen now.
    pub(crate) fn possible(&self) -> impl Iterator<Item = Kind> + '_ {
        let has = |kind| match kind {
            Kind::Write => self.transfers.iter().any(Transfer::is_write),
            Kind::Read => self.first_unblocked(Transfer::is_read).is_some(),
            Kind::Message => self.first_unblocked(|transfer| matches!(transfer, Transfer::Message(_))).is_some(),
            Kind::Response => !self.responses.is_empty(),
        };
        [Kind::Write, Kind::Read, Kind::Message, Kind::Response].into_iter().filter(move |kind| has(*kind))
    }

    /// Returns the number of writes in flight.
    #[cfg(test)]
    pub(crate) fn writes(&self) -> usize {
        self.transfers.iter().filter(|transfer| transfer.is_write()).count()
    }

    /// Takes the next message.
    pub(crate) fn take_message(&mut self) -> Option<Vec<u8>> {
        let at = self.first_unblocked(|transfer| matches!(transfer, Transfer::Message(_)))?;
        match self.transfers.remove(at) {
            Some(Transfer::Message(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Takes the next read or swap.
    pub(crate) fn take_read(&mut self) -> Option<Transfer> {
        let at = self.first_unblocked(Transfer::is_read)?;
        self.transfers.remove(at)
    }

    /// Puts back a read of which pieces are missing.
    pub(crate) fn continue_read(&mut self, read: Transfer) {
        let at = self.transfers.iter().position(Transfer::is_read).unwrap_or(self.transfers.len());
        self.transfers.insert(at, read);
    }

    pub(crate) fn take_response(&mut self) -> Option<Response> {
        self.responses.pop_front()
    }

    /// Takes a piece of any write: the area and offset for it at the receiver, and its bytes or the page that has them.
    pub(crate) fn take_piece(&mut self, random: &mut Random, page_bytes: usize) -> Option<Piece> {
        let writes: Vec<usize> = (0..self.transfers.len()).filter(|at| self.transfers[*at].is_write()).collect();
        let at = *writes.get(random.below(writes.len() as u64) as usize)?;
        let (piece, is_last) = match &mut self.transfers[at] {
            Transfer::Write { offset, bytes, pieces } => {
                let (start, length) = pieces.swap_remove(random.below(pieces.len() as u64) as usize);
                let data = PieceData::Bytes(bytes[start..start + length].to_vec());
                (Piece { area: Area::HomeFrames, offset: *offset + start as u64, data }, pieces.is_empty())
            }
            Transfer::Page { page, slot, pieces } => {
                let (start, length) = pieces.swap_remove(random.below(pieces.len() as u64) as usize);
                let source = u64::from(page.0) * page_bytes as u64 + start as u64;
                let offset = u64::from(*slot) * page_bytes as u64 + start as u64;
                let data = PieceData::HomeFrame(source, length);
                (Piece { area: Area::Landing, offset, data }, pieces.is_empty())
            }
            _ => return None,
        };
        if is_last {
            self.transfers.remove(at);
        }
        Some(piece)
    }
}

/// Piece of a write.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) area: Area,
    pub(crate) offset: u64,
    pub(crate) data: PieceData,
}

/// Bytes of a piece, or the place from which the sender's adapter takes them.
#[derive(Debug)]
pub(crate) enum PieceData {
    Bytes(Vec<u8>),
    HomeFrame(u64, usize),
}

/// Cuts a transfer into one to three pieces.
pub(crate) fn cut(bytes: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let mut pieces = vec![(0, bytes)];
    for _ in 0..random.below(3) {
        if let Some((start, length)) = pieces.pop_if(|(_, length)| *length > 1) {
            let first = 1 + random.below(length as u64 - 1) as usize;
            pieces.extend([(start, first), (start + first, length - first)]);
        }
    }
    pieces
}
