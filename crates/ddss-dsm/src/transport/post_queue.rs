//! Actions for one peer, in their order.
//!
//! Messages have to arrive behind the writes that the engine decided before them. So nothing overtakes an action that the
//! fabric has no room for.

use ddss_dsm_core::{Area, LocalPlace, PageId, Tag};
use std::collections::VecDeque;

/// Work for a peer that is not posted yet.
#[derive(Debug)]
pub(super) enum Post {
    Send(Vec<u8>),
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    WritePage {
        page: PageId,
        slot: u16,
    },
    Read {
        tag: Tag,
        area: Area,
        offset: u64,
        bytes: u32,
        into: LocalPlace,
    },
    Swap {
        tag: Tag,
        offset: u64,
        word: u64,
    },
    /// The word that this rank leaves.
    Leave,
}

/// Work for a peer that waits. The engine bounds it: it awaits answers, and the placement of diffs when they have too many bytes.
#[derive(Debug, Default)]
pub(super) struct PostQueue(pub(super) VecDeque<Post>);

/// Places of the staging memory from which writes are sent.
#[derive(Debug)]
pub(super) struct StagingSlots(Vec<u16>);

impl StagingSlots {
    pub(super) fn new(slots: u16) -> Self {
        Self((0..slots).collect())
    }

    pub(super) fn take(&mut self) -> Option<u16> {
        self.0.pop()
    }

    pub(super) fn put_back(&mut self, slot: u16) {
        self.0.push(slot);
    }
}
