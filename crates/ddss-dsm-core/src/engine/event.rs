//! Events that the driver reports.

use super::call::{CallId, Request};
use super::tag::Tag;
use crate::model::Rank;

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The application calls.
    Call {
        /// Number of the call.
        call: CallId,
        /// Request.
        request: Request,
    },
    /// A read or a swap is complete.
    Done {
        /// Tag of the action.
        tag: Tag,
        /// Value that a swap found.
        value: u64,
    },
    /// A message arrived.
    Message {
        /// Sender.
        from: Rank,
        /// Message.
        bytes: &'a [u8],
    },
    /// The time of [`Engine::next_deadline`](super::Engine::next_deadline) has come.
    Tick,
    /// A rank is lost: its connection closed, or it died.
    Lost(Rank),
}
