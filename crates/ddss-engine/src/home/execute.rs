//! Execution of an operation on a segment at home here. Clients of this node and peers come through the same function: where
//! the bytes come from and go to follows from the requester.

use crate::config::Now;
use crate::home::handler::Home;
use crate::requester::{Caller, Requester};
use crate::state::lock_queue::{PendingOp, Waiter, Watcher};
use ddss_core::{ArenaRange, Failure, Operation, Outcome, SegmentId};

impl Home<'_> {
    /// Executes an operation, or queues it. An error is the answer.
    pub(crate) fn execute(&mut self, now: Now, caller: &Caller, operation: &Operation) -> Result<(), Failure> {
        let Caller { requester, principal, deadline_us } = *caller;
        match *operation {
            Operation::Atomic { segment, offset, change, token } => {
                self.submit(now, caller, segment, PendingOp::Atomic { offset, change, token })
            }
            Operation::Lock { segment, lock_request } => {
                self.submit(now, caller, segment, PendingOp::Lock(lock_request))
            }
            Operation::Await { segment, offset, above } => {
                let watcher = Watcher { requester, row: 0, above, deadline_us };
                self.await_at_home(now, segment, principal, offset, watcher)
            }
            Operation::Unlock { segment, token } => {
                let fields = self.unlock_at_home(now, segment, token, requester.owner())?;
                self.output.answer(requester, Outcome::Done, fields);
                Ok(())
            }
            Operation::Renew { segment, token, lease_us } => {
                let fields = self.renew_at_home(now, segment, token, requester.owner(), lease_us)?;
                self.output.answer(requester, Outcome::Done, fields);
                Ok(())
            }
            Operation::Stat { segment, page } => {
                let bytes = self.page_of_one(now, segment, principal)?;
                self.deliver_page(requester, page, &bytes, false);
                Ok(())
            }
            Operation::Permit { segment, update } => {
                self.update_permissions_at_home(now, principal, segment, update, requester)
            }
            Operation::Break { segment } => self.break_at_home(now, principal, segment, requester),
            Operation::Release { segment } => self.release_named(now, requester, principal, segment),
            Operation::Cancel { segment, request } => {
                // The cancelled request has its own answer, and the cancel of a peer none.
                self.cancel_at_home(now, segment, requester.of_request(request));
                Ok(())
            }
            _ => Err(Failure::Unsupported),
        }
    }

    /// Executes an operation that may have to wait behind a lock.
    fn submit(&mut self, now: Now, caller: &Caller, id: SegmentId, op: PendingOp) -> Result<(), Failure> {
        let Caller { requester, principal, deadline_us } = *caller;
        self.submit_op(now, id, Waiter { requester, principal, op, deadline_us })
    }

    /// Delivers a page of listings: into a client's arena, or in a message.
    fn deliver_page(&mut self, requester: Requester, into: ArenaRange, page: &[u8], more: bool) {
        match requester {
            Requester::Client(channel, request) => {
                self.output.reply_page(channel, request, into, page, (self.node, more));
            }
            Requester::Peer(node, step) => self.send_page(node, step, page, more),
        }
    }
}
