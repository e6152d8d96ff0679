//! Messages from other engines to this one, which is mostly the home of the segment in question.

use crate::action::{Action, CommitSource};
use crate::config::Now;
use crate::engine::Engine;
use crate::fault_injection::planted;
use crate::ids::StepId;
use crate::remote::served_get::ServedReply;
use crate::requester::{Caller, ReplyFields, Requester};
use crate::state::memory::uploads::UploadOwner;
use crate::uploads::at_home::Uploader;
use ddss_core::limits::{ANSWER_MARGIN_MAX_US, TIMEOUT_DEFAULT_US};
use ddss_core::{LockToken, Message, NodeId, Outcome, Request, RequestId, Timestamp};

impl Engine {
    /// Handles a peer's message, with that peer's clock and the bytes behind the fields. Every later timestamp of this
    /// node is greater than `clock`.
    pub fn message(&mut self, now: Now, node: NodeId, clock: Timestamp, message: &Message, tail: &[u8]) {
        if self.peers.reachable(node).is_none() {
            return;
        }
        if !planted!(self.segments, DeafClock) {
            self.clock.hear(clock, now.wall_us);
        }
        let deadline = |timeout_us: u32| now.steady_us.saturating_add(timeout_us.into());
        // A change that waited in vain is answered before its requester's own deadline, at which nobody could say whether
        // it took effect.
        let deadline_of_change = |timeout_us: u32| deadline(timeout_us - (timeout_us / 4).min(ANSWER_MARGIN_MAX_US));
        let asked = match *message {
            Message::Welcome { .. } => {
                self.output.push(Action::Disconnect { node });
                return;
            }
            Message::Describe { step, principal, segment } => {
                self.home().describe_segment(node, step, principal, segment).map_err(|failure| (step, failure))
            }
            Message::Call { principal, lock, ref request } => {
                let Request { id: RequestId(step), timeout_us, ref operation, .. } = *request;
                let deadline_us =
                    if operation.is_harmless() { deadline(timeout_us) } else { deadline_of_change(timeout_us) };
                let (requester, lock) = (Requester::Peer(node, step), (lock != LockToken(0)).then_some(lock));
                let caller = Caller { requester, principal, deadline_us, lock, text: tail };
                self.home().execute(now, &caller, operation).map_err(|failure| (step, failure))
            }
            Message::UploadPart { step, principal, segment, client, part, length, staged } => {
                let (requester, deadline_us) = (Requester::Peer(node, step), deadline(TIMEOUT_DEFAULT_US));
                let uploader = Uploader { requester, principal, client, deadline_us };
                let source = self.home().source_of(node, staged, tail);
                let stored = self.home().store_part(now, &uploader, segment, part, (source, length));
                let stored = stored.inspect_err(|_| {
                    if let CommitSource::Buffer(buffer) = source {
                        self.output.drop_buffer(&buffer);
                    }
                });
                stored.map_err(|failure| (step, failure))
            }
            Message::CommitUpload { step, principal, segment, client, offset, upload, conditions, timeout_us } => {
                let (requester, deadline_us) = (Requester::Peer(node, step), deadline_of_change(timeout_us));
                let uploader = Uploader { requester, principal, client, deadline_us };
                let asked = self.home().commit_upload(now, &uploader, segment, (offset, upload), conditions);
                asked.map_err(|failure| (step, failure))
            }
            Message::DropUpload { client, upload } => {
                self.upload_memory().drop_upload(UploadOwner { node, client }, upload);
                Ok(())
            }
            Message::Got { step, version, timestamp, length, staged, number } => {
                self.clock.hear(timestamp, now.wall_us);
                let got = ServedReply { version, timestamp, length, staged, number };
                self.remote().handle_got(node, StepId::from_bits(step), got, tail);
                Ok(())
            }
            Message::Taken { number } => {
                self.outgoing_bytes().free_place(node, number);
                Ok(())
            }
            Message::Listed { step, more } => {
                self.remote().handle_page(node, StepId::from_bits(step), more, tail);
                Ok(())
            }
            Message::Changed { info } => {
                self.remote().handle_info_change(node, info);
                Ok(())
            }
            Message::Found { step, info, window } => {
                self.remote().handle_found(now, node, StepId::from_bits(step), info, window);
                Ok(())
            }
            Message::Ended { step, outcome, version, timestamp, word } => {
                let fields = ReplyFields { version, timestamp, word };
                let new = self.remote().handle_ended(now, node, StepId::from_bits(step), outcome, fields);
                self.create(now, new);
                Ok(())
            }
            Message::Offer { .. }
            | Message::OfferAnswer { .. }
            | Message::Piece { .. }
            | Message::Whole { .. }
            | Message::Forward { .. }
            | Message::ForwardPart { .. }
            | Message::Replicated { .. } => {
                self.home().replica_message(now, node, message, tail);
                Ok(())
            }
            Message::Forget { segment } => {
                self.remote().invalidate_cached(segment);
                self.home().drop_replica_of(now, node, segment);
                self.remote().handle_forget(node, segment);
                Ok(())
            }
            Message::Forgotten { segment } => {
                self.segments.forgotten(node, Some(segment));
                self.home().reclaim();
                Ok(())
            }
        };
        if let Err((step, failure)) = asked {
            let failure = self.replicas.explain_failure(message.segment(), failure);
            self.output.answer(Requester::Peer(node, step), Outcome::Failed(failure), ReplyFields::default());
        }
    }
}
