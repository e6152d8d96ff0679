//! A member, as the queue of this process knows it.

use super::slots::SlotMemory;
use ddss_river_core::Header;
use std::collections::VecDeque;

/// Something that has to go to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Post {
    /// A message of a send slot, and its header behind it.
    Message {
        header: Header,
        /// True if the bytes are posted, and only the header is left.
        is_written: bool,
    },
    /// A notice, encoded.
    Notice(Vec<u8>),
}

/// State of a member.
#[derive(Debug, Default)]
pub(super) struct MemberState {
    /// Number under which the engines know the process in this place.
    pub(super) id: Option<u16>,
    /// Ring for the messages of this member.
    pub(super) ring: Option<SlotMemory>,
    /// Number of the process whose messages are in the ring.
    pub(super) ring_owner: Option<u16>,
    /// Everything that has to go to the process, in its order.
    pub(super) posts: VecDeque<Post>,
}
