//! State, memory and output, as a handler of one event borrows them.

use super::action::{Action, Output};
use super::call::{CallId, Failure};
use super::memory::Memory;
use super::state::State;
use crate::message::Message;
use crate::model::{Access, PageId, Rank};

/// Everything that the handling of one event may change.
pub(crate) struct Context<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) memory: &'a mut dyn Memory,
    pub(crate) out: &'a mut Output,
    pub(crate) now_us: u64,
}

impl Context<'_> {
    /// Returns this rank.
    pub(crate) fn rank(&self) -> Rank {
        self.state.config.rank
    }

    /// Sends a message. A message to this rank is handled after this event.
    pub(crate) fn send(&mut self, to: Rank, message: &Message<'_>) {
        let mut bytes = Vec::new();
        self.state.codec.encode(message, &mut bytes);
        self.send_encoded(to, bytes);
    }

    /// Sends an encoded message.
    pub(crate) fn send_encoded(&mut self, to: Rank, bytes: Vec<u8>) {
        assert!(self.state.codec.fits(bytes.len()), "a message of {} bytes is too long", bytes.len());
        if to == self.rank() {
            self.state.loopback.push_back(bytes);
        } else {
            let message = self.out.add_payload(&bytes);
            self.out.push(Action::Send { to, message });
        }
    }

    /// Completes a call, unless it is complete.
    pub(crate) fn complete(&mut self, call: CallId, result: Result<u64, Failure>) {
        if self.state.calls.close(call) {
            self.out.push(Action::Complete { call, result });
        }
    }

    /// Sets the application's permission for a page.
    pub(crate) fn set_access(&mut self, page: PageId, access: Access) {
        self.state.pages.table.set_access(page, access);
        self.memory.set_access(page, access);
    }
}
