//! Large puts into segments whose home is another node: parts go through the home's staging memory like puts.

use crate::action::{Action, MessageBody, PeerAction};
use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::requester::LocalCaller;
use crate::state::pending::WaitState;
use crate::state::segments::check_range;
use ddss_core::{
    Access, ArenaRange, ClientId, Failure, Limit, Message, Part, Payload, PutConditions, SegmentId, UploadId,
};

impl Remote<'_> {
    /// Sends a part of a large put to the home.
    pub(crate) fn upload_part(
        &mut self,
        caller: &LocalCaller,
        segment: SegmentId,
        part: Part,
        from: ArenaRange,
    ) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        if let Some(info) = self.known_segment(segment).filter(|info| info.copies == 1) {
            info.permissions.allow(caller.principal, Access::Write)?;
            check_range(info.bytes, 0, part.total)?;
        }
        let (client, principal, length) = (caller.channel.client, caller.principal, from.bytes);
        self.remote_uploaders.insert(client);
        let message = |step: StepId, staged| {
            let step = step.to_bits();
            Message::UploadPart { step, principal, segment, client, part, length, staged }
        };
        if length as usize <= Message::PUT_BYTES_MAX {
            let step = self.begin(caller, WaitState::Part { segment, ticket: None })?;
            let tail = MessageBody::Client(client, Payload::Arena(from));
            self.output.push(Action::Peer(PeerAction::Send {
                node: home,
                message: message(step, Message::NOT_STAGED),
                tail,
            }));
            return Ok(());
        }
        let peer = self.peers.reachable(home).ok_or(Failure::NodeDown)?;
        let ticket = peer.staging.take(length).ok_or(Failure::Busy(Limit::Staging))?;
        let begun = self.begin(caller, WaitState::Part { segment, ticket: Some(ticket) });
        let step = begun.inspect_err(|_| self.free_staging(home, Some(ticket)))?;
        let message = message(step, ticket.at);
        self.output.push(Action::Peer(PeerAction::Stage {
            node: home,
            step,
            at: ticket.at,
            client,
            from,
            message,
            table: None,
        }));
        Ok(())
    }

    /// Asks the home to commit an upload.
    pub(crate) fn commit_upload(
        &mut self,
        caller: &LocalCaller,
        segment: SegmentId,
        (offset, upload): (u64, UploadId),
        conditions: PutConditions,
    ) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        if let Some(info) = self.known_segment(segment) {
            let depends_on_lock =
                conditions.token.is_none() && info.model.put_waits_for_lock(conditions.requested_model);
            self.check_own_lock(caller, segment, depends_on_lock, offset)?;
        }
        let LocalCaller { principal, timeout_us, .. } = *caller;
        let client = caller.channel.client;
        let step = self.begin(caller, WaitState::Put { segment, ticket: None })?.to_bits();
        self.output.send(
            home,
            Message::CommitUpload { step, principal, segment, client, offset, upload, conditions, timeout_us },
        );
        Ok(())
    }

    /// Tells the home that an upload will not be committed.
    pub(crate) fn drop_upload(&mut self, client: ClientId, segment: SegmentId, upload: UploadId) {
        if let Ok(home) = self.reachable_home(segment) {
            self.output.send(home, Message::DropUpload { client, upload });
        }
    }

    /// Tells every node that a client with large puts is gone.
    pub(crate) fn drop_uploads_of(&mut self, client: ClientId) {
        if !self.remote_uploaders.remove(&client) {
            return;
        }
        let up: Vec<_> = self.peers.iter().filter(|&(_, up)| up).map(|(node, _)| node).collect();
        for node in up {
            self.output.send(node, Message::DropUpload { client, upload: UploadId(0) });
        }
    }
}
