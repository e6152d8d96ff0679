//! Calls at other nodes: the home executes the operation, or this node reads the segment one-sidedly.

use crate::action::RangeSet;
use crate::config::Now;
use crate::remote::handler::Remote;
use crate::requester::LocalCaller;
use crate::state::pending::{Transfer, WaitState};
use ddss_core::{Failure, Limit, LockRequest, NodeId, Operation, Outcome, Payload, SegmentId};

impl Remote<'_> {
    /// Asks the home of a segment to execute an operation, or reads the segment one-sidedly.
    pub(crate) fn call(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        segment: SegmentId,
        operation: &Operation,
        text: &[u8],
    ) -> Result<(), Failure> {
        match *operation {
            Operation::Get { offset, into: range, inline, options, .. } => {
                let parts = RangeSet::One { offset, bytes: range.bytes };
                self.get_remote(now, caller, Transfer { segment, parts, range, inline, options })
            }
            Operation::GetMany { list, ranges, options, .. } => {
                let parts = self.output.read_table(list, ranges, text)?;
                let range = list.behind_table(parts.bytes());
                let got = self.get_remote(now, caller, Transfer { segment, parts, range, inline: false, options });
                got.inspect_err(|_| self.output.free_table(&parts))
            }
            Operation::Put { offset, from, conditions, .. } => {
                self.put_remote(caller, segment, RangeSet::One { offset, bytes: from.length() }, from, conditions)
            }
            Operation::PutMany { list, ranges, conditions, .. } => {
                let parts = self.output.read_table(list, ranges, text)?;
                let from = Payload::Arena(list.behind_table(parts.bytes()));
                let put = self.put_remote(caller, segment, parts, from, conditions);
                put.inspect_err(|_| self.output.free_table(&parts))
            }
            Operation::UploadPart { part, from, .. } => self.upload_part(caller, segment, part, from),
            Operation::CommitUpload { offset, upload, conditions, .. } => {
                self.commit_upload(caller, segment, (offset, upload), conditions)
            }
            Operation::DropUpload { upload, .. } => {
                self.drop_upload(caller.channel.client, segment, upload);
                self.output.finish_call(caller, Outcome::Done);
                Ok(())
            }
            _ => self.request(caller, segment, operation),
        }
    }

    /// Asks the home to execute an operation without bytes.
    #[inline(never)]
    fn request(&mut self, caller: &LocalCaller, segment: SegmentId, operation: &Operation) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        let wait = self.check_call(caller, home, operation)?;
        let step = self.begin(caller, wait)?;
        if let WaitState::Renew { segment, token, lease_us } = wait {
            // The record here outlives the lease at the home, whenever the message arrives within the deadline.
            let until_us = caller.deadline_us.saturating_add(lease_us.into());
            self.remote_locks.extend(segment, token, until_us);
        }
        self.output.send(home, caller.call(step, *operation));
        Ok(())
    }

    /// Checks what this node can check of a call, and returns what the call waits for.
    fn check_call(&mut self, caller: &LocalCaller, home: NodeId, operation: &Operation) -> Result<WaitState, Failure> {
        let client = caller.channel.client;
        Ok(match *operation {
            Operation::Atomic { segment, offset, token, .. } => {
                self.check_own_lock(caller, segment, token.is_none(), offset)?;
                WaitState::Answer { segment }
            }
            // The home knows a peer as the holder, not its client.
            Operation::Sweep { segment, .. } if self.remote_locks.is_held_by(client, segment, None) => {
                return Err(Failure::OwnLock);
            }
            Operation::Permit { segment, .. } | Operation::Break { segment } | Operation::Sweep { segment, .. } => {
                WaitState::Answer { segment }
            }
            Operation::Await { segment, above, .. } => WaitState::Version { segment, above },
            Operation::Lock { .. } if self.remote_locks.is_full() => return Err(Failure::Busy(Limit::RemoteLocks)),
            Operation::Lock { segment, lock_request: LockRequest { lease_us, row_offset, .. } } => {
                WaitState::Lock { segment, lease_us, row_offset }
            }
            Operation::Unlock { segment, token } | Operation::Renew { segment, token, .. }
                if !self.remote_locks.contains(client, segment, token) =>
            {
                return Err(Failure::LockLost);
            }
            Operation::Unlock { segment, token } => WaitState::Unlock { segment, token },
            Operation::Renew { segment, token, lease_us } => WaitState::Renew { segment, token, lease_us },
            Operation::Stat { page, .. } => WaitState::Page { node: home, into: page, list: false },
            Operation::Release { .. } => WaitState::Release { home },
            _ => return Err(Failure::Unsupported),
        })
    }
}
