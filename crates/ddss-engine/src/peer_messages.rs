//! Messages from other engines to this one, which is mostly the home of the segment in question.

use crate::action::{Action, CommitSource, PeerAction};
use crate::config::Now;
use crate::engine::Engine;
use crate::fault_injection::planted;
use crate::home::upload_calls::Uploader;
use crate::ids::StepId;
use crate::remote::served_get::ServedReply;
use crate::requester::{Caller, ReplyFields, Requester};
use crate::state::memory::uploads::UploadOwner;
use ddss_core::limits::{ANSWER_MARGIN_MAX_US, TIMEOUT_DEFAULT_US};
use ddss_core::{Failure, LockToken, Message, NodeId, Outcome, Principal, Request, RequestId, Timestamp};

impl Engine {
    /// Handles a peer's message, with that peer's clock and the bytes behind the fields. Every later timestamp of this
    /// node is greater than `clock`.
    pub fn on_message(&mut self, now: Now, node: NodeId, clock: Timestamp, message: &Message, tail: &[u8]) {
        let Some(peer) = self.peers.reachable(node) else { return };
        peer.note_clock(now, clock);
        if !planted!(self.segments, DeafClock) {
            self.clock.hear(clock, now.wall_us);
        }
        match *message {
            Message::Welcome { .. } => self.output.push(Action::Peer(PeerAction::Disconnect { node })),
            Message::Describe { step, principal, segment } => {
                let described = self.home().lifecycle().describe_segment(node, step, principal, segment);
                self.answer_refused(node, step, message, described);
            }
            Message::Call { principal, lock, ref request } => {
                let executed = self.execute_call(now, node, (principal, lock), request, tail);
                self.answer_refused(node, request.id.0, message, executed);
            }
            Message::UploadPart { step, principal, segment, client, part, length, staged } => {
                let (requester, deadline_us) = (Requester::Peer(node, step), deadline(now, TIMEOUT_DEFAULT_US));
                let uploader = Uploader { requester, principal, client, deadline_us };
                let source = self.output.source_of(node, staged, tail);
                let stored = self.home().store_part(now, &uploader, segment, part, (source, length));
                if let (Err(_), CommitSource::Buffer(buffer)) = (&stored, source) {
                    self.output.drop_buffer(&buffer);
                }
                self.answer_refused(node, step, message, stored);
            }
            Message::CommitUpload { step, principal, segment, client, offset, upload, conditions, timeout_us } => {
                let (requester, deadline_us) = (Requester::Peer(node, step), deadline_of_change(now, timeout_us));
                let uploader = Uploader { requester, principal, client, deadline_us };
                let submitted = self.home().commit_upload(now, &uploader, segment, (offset, upload), conditions);
                self.answer_refused(node, step, message, submitted);
            }
            Message::DropUpload { client, upload } => {
                self.upload_memory().drop_upload(UploadOwner { node, client }, upload);
            }
            Message::Got { step, version, timestamp, length, staged, number } => {
                self.clock.hear(timestamp, now.wall_us);
                let got = ServedReply { version, timestamp, length, staged, number };
                self.remote().handle_got(node, StepId::from_bits(step), got, tail);
            }
            Message::Taken { number } => self.outgoing_bytes().free_place(node, number),
            Message::Listed { step, more } => self.remote().handle_page(node, StepId::from_bits(step), more, tail),
            Message::Changed { info } => self.remote().handle_info_change(node, info),
            Message::Found { step, info, window } => {
                self.remote().handle_found(now, node, StepId::from_bits(step), info, window);
            }
            Message::Ended { step, outcome, version, timestamp, word } => {
                let fields = ReplyFields { version, timestamp, word };
                let new = self.remote().handle_ended(now, node, StepId::from_bits(step), outcome, fields);
                self.create(now, new);
            }
            Message::Offer { .. }
            | Message::OfferAnswer { .. }
            | Message::Piece { .. }
            | Message::Whole { .. }
            | Message::Forward { .. }
            | Message::ForwardPart { .. }
            | Message::Replicated { .. } => self.home().replica_message(now, node, message, tail),
            Message::Forget { segment } => {
                self.remote().invalidate_cached(segment);
                self.home().lifecycle().drop_replica_of(now, node, segment);
                self.remote().handle_forget(node, segment);
            }
            Message::Forgotten { segment } => {
                self.segments.forgotten(node, Some(segment));
                self.home().lifecycle().reclaim();
            }
        }
    }

    fn execute_call(
        &mut self,
        now: Now,
        node: NodeId,
        (principal, lock): (Principal, LockToken),
        request: &Request,
        text: &[u8],
    ) -> Result<(), Failure> {
        let Request { id: RequestId(step), timeout_us, ref operation, .. } = *request;
        let deadline_us =
            if operation.is_harmless() { deadline(now, timeout_us) } else { deadline_of_change(now, timeout_us) };
        let (requester, lock) = (Requester::Peer(node, step), (lock != LockToken(0)).then_some(lock));
        let caller = Caller { requester, principal, deadline_us, lock, text };
        self.home().execute(now, &caller, operation)
    }

    /// Answers a request that failed at once.
    fn answer_refused(&mut self, node: NodeId, step: u64, message: &Message, result: Result<(), Failure>) {
        if let Err(failure) = result {
            let failure = self.replicas.explain_failure(message.segment(), failure);
            self.output.answer(Requester::Peer(node, step), Outcome::Failed(failure), ReplyFields::default());
        }
    }
}

fn deadline(now: Now, timeout_us: u32) -> u64 {
    now.steady_us.saturating_add(timeout_us.into())
}

/// Returns the deadline of a change. One that waited in vain is answered before its requester's own deadline, at which no node
/// could say whether it took effect.
fn deadline_of_change(now: Now, timeout_us: u32) -> u64 {
    deadline(now, timeout_us - (timeout_us / 4).min(ANSWER_MARGIN_MAX_US))
}
