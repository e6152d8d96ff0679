//! Actions that the driver executes, and the buffer that collects them.

use super::call::{CallId, Failure};
use super::tag::Tag;
use crate::model::{PageId, Rank};
use std::ops::Range;

/// Memory of a rank that its peers access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    /// Home frames, one for each page of the space. Peers read and write.
    HomeFrames,
    /// Home words of the pages x with x mod n = rank, by x / n. Peers compare and swap.
    HomeWords,
    /// Version lines, one for each page of the space. Peers read.
    Lines,
    /// The log ring. Peers read.
    Log,
    /// Landing slots of pages, one for each page in flight. Peers write.
    Landing,
}

/// Memory of this rank that reads write into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalPlace {
    /// The cache frame of a page.
    Cache(PageId),
    /// The landing line of a page in flight.
    Line(u16),
    /// The image of a peer's log ring.
    Log {
        /// Peer.
        rank: Rank,
        /// Offset in the ring.
        offset: u64,
    },
    /// Eight bytes that no one reads.
    Discard,
}

/// Bytes in an [`Output`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload(Range<usize>);

/// A step that the driver executes. Actions for one peer are posted in their order; the crate's front page says what
/// the fabric promises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Sends a message.
    Send {
        /// Receiver.
        to: Rank,
        /// Message.
        message: Payload,
    },
    /// Writes bytes into a home frame of a peer.
    Write {
        /// Peer.
        to: Rank,
        /// Offset in [`Area::HomeFrames`].
        offset: u64,
        /// Bytes.
        bytes: Payload,
    },
    /// Writes a home frame of this rank into a landing slot of a peer.
    WritePage {
        /// Peer.
        to: Rank,
        /// Page.
        page: PageId,
        /// Landing slot.
        slot: u16,
    },
    /// Reads memory of a peer. Reports [`Event::Done`](super::Event::Done).
    Read {
        /// Peer.
        from: Rank,
        /// Tag.
        tag: Tag,
        /// Area of the peer.
        area: Area,
        /// Offset in the area.
        offset: u64,
        /// Bytes.
        bytes: u32,
        /// Place of the bytes here.
        into: LocalPlace,
    },
    /// Replaces a home word of a peer if it is 0. Reports [`Event::Done`](super::Event::Done) with the value that it found.
    Swap {
        /// Peer.
        at: Rank,
        /// Tag.
        tag: Tag,
        /// Offset in [`Area::HomeWords`].
        offset: u64,
        /// New value.
        word: u64,
    },
    /// Completes a call.
    Complete {
        /// Call.
        call: CallId,
        /// Value of the call, or the reason why it failed.
        result: Result<u64, Failure>,
    },
}

/// Collects actions and the bytes that belong to them. The driver reuses one.
#[derive(Clone, Debug, Default)]
pub struct Output {
    actions: Vec<Action>,
    payload: Vec<u8>,
}

impl Output {
    /// Returns the actions in order.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Returns the bytes of an action.
    #[must_use]
    pub fn payload(&self, payload: &Payload) -> &[u8] {
        &self.payload[payload.0.clone()]
    }

    /// Forgets all actions; keeps the memory.
    pub fn clear(&mut self) {
        self.actions.clear();
        self.payload.clear();
    }

    pub(super) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Appends bytes.
    pub(super) fn add_payload(&mut self, bytes: &[u8]) -> Payload {
        let start = self.payload.len();
        self.payload.extend_from_slice(bytes);
        Payload(start..self.payload.len())
    }

    /// Moves the messages behind the action `start` in front of the writes: a planted bug.
    #[cfg(feature = "planted")]
    pub(super) fn reorder_sends_first(&mut self, start: usize) {
        self.actions[start..].sort_by_key(|action| !matches!(action, Action::Send { .. }));
    }
}
