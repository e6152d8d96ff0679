//! Execution of an operation at its home. Clients of this node and peers come through the same function: where the bytes come
//! from and go to follows from the requester.

use crate::action::{CommitSource, RangeSet};
use crate::config::Now;
use crate::home::handler::Home;
use crate::home::upload_calls::Uploader;
use crate::requester::{Caller, Requester};
use crate::state::lock_queue::{Destination, Get, PendingOp, Waiter, Watcher};
use crate::state::memory::uploads::UploadOwner;
use ddss_core::{
    Access, ArenaRange, Failure, ListQuery, Message, Name, Operation, Outcome, Part, Payload, SegmentId, Spec, UploadId,
};

impl Home<'_> {
    /// Executes an operation, or queues it, and does the work that follows. An error is the answer.
    #[inline(always)]
    pub(crate) fn execute(&mut self, now: Now, caller: &Caller, operation: &Operation) -> Result<(), Failure> {
        let result = self.execute_step(now, caller, operation);
        self.follow_up();
        result
    }

    /// Always inlined: a call costs a get 3 % more instructions.
    #[inline(always)]
    fn execute_step(&mut self, now: Now, caller: &Caller, operation: &Operation) -> Result<(), Failure> {
        let (requester, token) = (caller.requester, caller.lock);
        match *operation {
            Operation::Get { segment, offset, into, inline, options } => {
                let sink = if inline { Destination::Inline } else { Destination::Arena(into) };
                let (parts, sink) = (RangeSet::One { offset, bytes: into.bytes }, destination(requester, sink));
                let lock_dependency = self.operations().lock_dependency_of_get(segment, &options)?;
                let get = Get { parts, sink, lock_dependency, version: options.version, token };
                self.submit(now, caller, segment, PendingOp::Get(get))
            }
            Operation::GetMany { segment, list, ranges, options } => {
                let lock_dependency = self.operations().lock_dependency_of_get(segment, &options)?;
                let (parts, data) = self.read_table(caller, list, ranges)?;
                let sink = destination(requester, Destination::Arena(data));
                let get = Get { parts, sink, lock_dependency, version: options.version, token };
                self.submit(now, caller, segment, PendingOp::Get(get))
            }
            Operation::Put { segment, offset, ref from, conditions } => {
                let parts = RangeSet::One { offset, bytes: from.length() };
                let source = self.source_of_put(caller, from);
                self.submit(now, caller, segment, PendingOp::Put { parts, source, conditions })
            }
            Operation::PutMany { segment, list, ranges, conditions } => {
                let (parts, data) = self.read_table(caller, list, ranges)?;
                let source = self.source_of_put(caller, &Payload::Arena(data));
                self.submit(now, caller, segment, PendingOp::Put { parts, source, conditions })
            }
            Operation::Atomic { segment, offset, change, token } => {
                self.submit(now, caller, segment, PendingOp::Atomic { offset, change, token })
            }
            Operation::Lock { segment, lock_request } => {
                self.submit(now, caller, segment, PendingOp::Lock(lock_request))
            }
            _ => self.execute_seldom(now, caller, operation),
        }
    }

    #[inline(always)]
    fn submit(&mut self, now: Now, caller: &Caller, id: SegmentId, op: PendingOp) -> Result<(), Failure> {
        let Caller { requester, principal, deadline_us, .. } = *caller;
        self.operations().submit_op(now, id, &Waiter { requester, principal, op, deadline_us })
    }

    /// Executes an operation that waits for no other caller.
    #[inline(never)]
    fn execute_seldom(&mut self, now: Now, caller: &Caller, operation: &Operation) -> Result<(), Failure> {
        let Caller { requester, principal, deadline_us, text, .. } = *caller;
        match *operation {
            Operation::Await { segment, offset, above } => {
                let watcher = Watcher { requester, row: 0, above, deadline_us };
                self.operations().await_at_home(now, segment, principal, offset, watcher)?;
            }
            Operation::Unlock { segment, token } => {
                let fields = self.operations().unlock_at_home(now, segment, token, requester.owner())?;
                self.output.answer(requester, Outcome::Done, fields);
            }
            Operation::Renew { segment, token, lease_us } => {
                let fields = self.operations().renew_at_home(now, segment, token, requester.owner(), lease_us)?;
                self.output.answer(requester, Outcome::Done, fields);
            }
            Operation::Allocate { .. } => {
                let (spec, name) = decode_new(text)?;
                let left_us = deadline_us.saturating_sub(now.steady_us);
                let within_us = u32::try_from(left_us).unwrap_or(u32::MAX);
                self.lifecycle().create_named(now, requester, principal, name, spec, within_us)?;
            }
            Operation::Open { .. } => self.open(caller, &Name::from_bytes(text)?)?,
            Operation::List { text: into, .. } => self.list(now, caller, into)?,
            Operation::Stat { segment, page: into } => {
                let page = self.page_of_one(now, segment, principal)?;
                self.deliver_page(requester, into, &page, false);
            }
            Operation::Permit { segment, update } => {
                self.update_permissions_at_home(now, principal, segment, update, requester)?;
            }
            Operation::Break { segment } => self.operations().break_at_home(now, principal, segment, requester)?,
            Operation::Sweep { segment, first, buckets } => {
                self.operations().sweep(now, caller, segment, (first, buckets))?
            }
            Operation::Release { segment } => self.lifecycle().release_named(now, requester, principal, segment)?,
            // The cancelled request has its own answer, and the cancel of a peer none.
            Operation::Cancel { segment, request } => {
                self.operations().cancel_at_home(now, segment, requester.of_request(request));
            }
            Operation::UploadPart { segment, part, from } => self.upload_part(now, caller, segment, part, from)?,
            Operation::CommitUpload { segment, offset, upload, conditions } => {
                self.commit_upload(now, &uploader(caller)?, segment, (offset, upload), conditions)?;
            }
            Operation::DropUpload { upload, .. } => {
                if upload != UploadId(0) {
                    let owner = UploadOwner { node: self.segments.node(), client: uploader(caller)?.client };
                    self.upload_memory().drop_upload(owner, upload);
                }
                self.output.answer(requester, Outcome::Done, Default::default());
            }
            _ => return Err(Failure::Unsupported),
        }
        Ok(())
    }

    /// Returns the source of the bytes of a put. Bytes of a message go into a buffer, since the put may have to wait.
    #[inline]
    fn source_of_put(&mut self, caller: &Caller, from: &Payload) -> CommitSource {
        match (caller.requester, from) {
            (Requester::Client(channel, _), _) => CommitSource::Client(channel.client, *from),
            (Requester::Peer(..), Payload::Inline { bytes, length }) => {
                CommitSource::Buffer(self.output.store(&bytes[..usize::from(*length)]))
            }
            (Requester::Peer(node, _), Payload::Arena(range)) => {
                self.output.source_of(node, range.staged_at().unwrap_or(Message::NOT_STAGED), caller.text)
            }
        }
    }

    /// Reads the table of a vectored call, and returns its ranges and the place of its bytes: behind the table in the arena of
    /// a client. The table of a peer is in the message.
    fn read_table(&mut self, caller: &Caller, list: ArenaRange, ranges: u8) -> Result<(RangeSet, ArenaRange), Failure> {
        let parts = self.output.read_table(list, ranges, caller.text)?;
        let bytes = parts.bytes();
        let data = match caller.requester {
            Requester::Client(..) => list.behind_table(bytes),
            Requester::Peer(..) => ArenaRange { bytes, ..list },
        };
        Ok((parts, data))
    }

    /// Opens a segment of that name at home here.
    pub(crate) fn open(&mut self, caller: &Caller, name: &Name) -> Result<(), Failure> {
        let id = self.segments.by_name(name).ok_or(Failure::NotFound)?;
        match caller.requester {
            Requester::Peer(node, step) => self.lifecycle().describe_segment(node, step, caller.principal, id),
            Requester::Client(channel, request) => {
                let segment = self.segments.get(id)?;
                segment.permissions.allow(caller.principal, Access::Read)?;
                let opened = self.segments.opened(&segment.info(id));
                self.output.finish_opened(channel, request, &opened);
                Ok(())
            }
        }
    }

    /// Lists the segments at home here that a query names.
    pub(crate) fn list(&mut self, now: Now, caller: &Caller, into: ArenaRange) -> Result<(), Failure> {
        let (page, more) = self.page(now, caller.principal, &ListQuery::decode(caller.text)?);
        self.deliver_page(caller.requester, into, &page, more);
        Ok(())
    }

    fn upload_part(
        &mut self,
        now: Now,
        caller: &Caller,
        id: SegmentId,
        part: Part,
        from: ArenaRange,
    ) -> Result<(), Failure> {
        let uploader = uploader(caller)?;
        let source = CommitSource::Client(uploader.client, Payload::Arena(from));
        self.store_part(now, &uploader, id, part, (source, from.bytes))
    }

    /// Delivers a page of listings: into a client's arena, or in a message.
    fn deliver_page(&mut self, requester: Requester, into: ArenaRange, page: &[u8], more: bool) {
        match requester {
            Requester::Client(channel, request) => {
                self.output.reply_page(channel, request, into, page, (self.segments.node(), more));
            }
            Requester::Peer(node, step) => self.send_page(node, step, page, more),
        }
    }
}

/// Returns where the bytes of a get go: to a client as it asked, to a peer in an answer.
fn destination(requester: Requester, of_client: Destination) -> Destination {
    if let Requester::Client(..) = requester { of_client } else { Destination::Peer }
}

/// Decodes the text of an allocation.
pub(crate) fn decode_new(text: &[u8]) -> Result<(Spec, Name), Failure> {
    let (spec, name) = text.split_first_chunk().ok_or(Failure::Malformed)?;
    let (spec, name) = (Spec::decode(spec)?, Name::from_bytes(name)?);
    spec.check().map_err(|refused| refused.failure)?;
    Ok((spec, name))
}

/// Returns the requester of an operation on an upload. A peer names its client, in messages of their own.
fn uploader(caller: &Caller) -> Result<Uploader, Failure> {
    let Caller { requester, principal, deadline_us, .. } = *caller;
    let Requester::Client(channel, _) = requester else { return Err(Failure::Unsupported) };
    Ok(Uploader { requester, principal, client: channel.client, deadline_us })
}
