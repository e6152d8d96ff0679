//! Fields of an outgoing message: little-endian, without gaps.

use crate::model::{ChangedPages, Notice, PageRange, Rank, VectorTime};

/// Number of page ranges that stands for a coarse notice.
pub(super) const COARSE: u16 = u16::MAX;

/// Appends fields to a message.
pub(super) struct Writer<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) ranks: usize,
}

impl Writer<'_> {
    pub(super) fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn half(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn word(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn long(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn rank(&mut self, rank: Rank) {
        self.byte(rank.index() as u8);
    }

    pub(super) fn time(&mut self, time: &VectorTime) {
        for interval in &time.intervals()[..self.ranks] {
            self.word(*interval);
        }
    }

    pub(super) fn ranges(&mut self, ranges: &[PageRange]) {
        self.half(ranges.len() as u16);
        for range in ranges {
            self.word(range.first.0);
            self.word(range.pages);
        }
    }

    pub(super) fn notices(&mut self, notices: Option<&[Notice]>) {
        let Some(notices) = notices else { return self.half(u16::MAX) };
        self.half(notices.len() as u16);
        for notice in notices {
            self.word(notice.interval);
            match &notice.pages {
                ChangedPages::Coarse => self.half(COARSE),
                ChangedPages::Exact(ranges) => self.ranges(ranges),
            }
        }
    }
}
