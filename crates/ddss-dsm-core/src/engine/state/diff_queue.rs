//! Diff messages: those that wait for the window, and those without an acknowledgement.

use crate::model::{PageId, Rank};
use std::collections::{BTreeMap, VecDeque};

/// A diff message that waits for its turn.
#[derive(Clone, Debug)]
pub(crate) struct QueuedDiff {
    pub(crate) to: Rank,
    pub(crate) sequence: u64,
    /// The encoded message.
    pub(crate) message: Vec<u8>,
}

/// A diff message without an acknowledgement.
#[derive(Clone, Copy, Debug)]
struct OpenDiff {
    to: Rank,
    page: PageId,
    /// The last flush when it was sent; `None` while it waits.
    sent: Option<u64>,
}

/// Diff messages of this rank. A message is *open* from its creation to its acknowledgement.
#[derive(Clone, Debug)]
pub(crate) struct DiffQueue {
    window: u32,
    in_flight: u32,
    next: u64,
    waiting: VecDeque<QueuedDiff>,
    open: BTreeMap<u64, OpenDiff>,
}

impl DiffQueue {
    pub(crate) fn new(window: u32) -> Self {
        Self { window, in_flight: 0, next: 1, waiting: VecDeque::new(), open: BTreeMap::new() }
    }

    /// Returns the number of the next diff.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns the lowest number without an acknowledgement; that of the next diff if there is none.
    pub(crate) fn first_open(&self) -> u64 {
        self.open.first_key_value().map_or(self.next, |(sequence, _)| *sequence)
    }

    /// Adds the diff with the next number.
    pub(crate) fn push(&mut self, page: PageId, diff: QueuedDiff) {
        assert_eq!(diff.sequence, self.next, "diffs are numbered in order");
        self.next += 1;
        self.open.insert(diff.sequence, OpenDiff { to: diff.to, page, sent: None });
        self.waiting.push_back(diff);
    }

    /// Takes the next diff if the window has room.
    pub(crate) fn pop(&mut self, last_flush: u64) -> Option<QueuedDiff> {
        if self.in_flight >= self.window {
            return None;
        }
        let diff = self.waiting.pop_front()?;
        self.in_flight += 1;
        if let Some(open) = self.open.get_mut(&diff.sequence) {
            open.sent = Some(last_flush);
        }
        Some(diff)
    }

    /// Counts an acknowledgement. Returns the page, and the last flush in front of the diff. `None` if this rank has not sent
    /// that diff to the peer.
    pub(crate) fn acknowledge(&mut self, from: Rank, sequence: u64) -> Option<(PageId, u64)> {
        let OpenDiff { to, page, sent } = *self.open.get(&sequence)?;
        let flush = sent.filter(|_| to == from)?;
        self.open.remove(&sequence);
        self.in_flight -= 1;
        Some((page, flush))
    }
}
