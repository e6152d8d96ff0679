//! Order of transmission: answers and local work alternate.

use super::context::Context;
use super::response::Source;
use super::{Connection, Stage};

/// Upper bound of "few" messages: what one remote get needs.
const FEW_MESSAGES_MAX: usize = 3;

impl Connection {
    /// Removes bytes that the socket has accepted, and completes their operations.
    pub(crate) fn sent(&mut self, count: usize, cx: &mut Context<'_>) {
        self.send_queue.sent(count, cx.memory);
        self.acknowledge(cx);
    }

    /// Returns true if the next step certainly encodes something, once there is room.
    pub(crate) fn has_more(&self) -> bool {
        self.stage == Stage::Open && (self.answers.stream.is_some() || !self.answers.queue.is_empty())
    }

    /// Returns true if at most one large and few small messages remain. Then it pays to send the start of the large
    /// one before its end is encoded.
    pub(crate) fn has_few_messages(&self) -> bool {
        let (waiting, streaming) = (self.pending_count(), usize::from(self.answers.stream.is_some()));
        waiting + streaming <= 1 || waiting <= FEW_MESSAGES_MAX && self.large_count() + streaming <= 1
    }

    /// Returns true if something remains to be encoded, and all of it is small.
    pub(crate) fn has_only_small_messages(&self) -> bool {
        self.answers.stream.is_none()
            && (1..=FEW_MESSAGES_MAX).contains(&self.pending_count())
            && self.large_count() == 0
    }

    fn pending_count(&self) -> usize {
        self.answers.queue.len() + self.work.backlog.queue.len()
    }

    fn large_count(&self) -> usize {
        let answers = self.answers.queue.iter().filter(|response| response.is_large());
        answers.count() + self.work.backlog.queue.iter().filter(|queued| queued.is_large()).count()
    }

    /// Encodes while less than `limit` bytes wait. Answers and local work alternate, message by message. Unsent
    /// payload has to be [copied](Self::copy_in_place_payload) before memory changes.
    pub(crate) fn encode_pending(&mut self, limit: usize, cx: &mut Context<'_>) {
        if self.has_unreported_connect {
            self.report_connected(cx);
        }
        if self.stage != Stage::Open {
            return;
        }
        while self.send_queue.has_room(limit) {
            if self.answers.stream.is_some() {
                self.encode_stream(Some(limit), Source::InPlace, cx.memory);
                continue;
            }
            self.answers.is_next = !self.answers.is_next;
            let answered = self.answers.is_next && self.respond(cx);
            let moved = answered || self.request(cx) || self.respond(cx);
            if !moved {
                break;
            }
        }
    }

    /// Returns true if there is nothing to send and nothing to report.
    pub(crate) fn is_idle(&self) -> bool {
        self.send_queue.is_empty() && !self.has_more() && !self.has_unreported_connect && !self.can_encode_next()
    }
}
