//! Routes a client's request to the home operations or the remote operations.

use crate::action::{CommitSource, RangeSet};
use crate::config::Now;
use crate::engine::Engine;
use crate::fault_injection::planted;
use crate::requester::{LocalCaller, Requester};
use crate::state::clients::Client;
use crate::state::lock_queue::{Destination, Get, PendingOp};
use crate::state::memory::uploads::UploadOwner;
use crate::state::output::RangeList;
use crate::state::pending::{Continuation, Transfer};
use crate::uploads::at_home::Uploader;
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{
    ArenaRange, ChannelId, Failure, ListPage, ListQuery, Listing, Name, NodeId, Operation, Outcome, Part, Payload,
    Placement, PutConditions, Ranges, ReadOptions, RequestId, SegmentId, Spec, UploadId,
};

impl Engine {
    /// Always inlined: a call with an operation costs a null request 8 % more instructions.
    #[inline(always)]
    pub(crate) fn dispatch(
        &mut self,
        now: Now,
        client: &Client,
        caller: LocalCaller,
        operation: &Operation,
        text: &[u8],
    ) -> Result<(), Failure> {
        let fits = |range: &ArenaRange| range.fits(client.arena_bytes).then_some(()).ok_or(Failure::OutOfRange);
        match *operation {
            Operation::Null => self.output.finish_call(&caller, Outcome::Done),
            Operation::Allocate { .. } => {
                let (spec, name) = text.split_first_chunk().ok_or(Failure::Malformed)?;
                let (spec, name) = (Spec::decode(spec)?, Name::from_bytes(name)?);
                spec.check().map_err(|refused| refused.failure)?;
                let placement = Placement::Node(self.place(spec.placement, &name));
                let spec = Spec { placement, ..spec };
                if placement == Placement::Node(self.node) && self.directory.is_some() {
                    let timeout_us = caller.timeout_us;
                    self.home().create_named(now, caller.requester(), caller.principal, name, spec, timeout_us)?;
                } else {
                    self.look_up(now, caller, name, Continuation::Allocate(spec))?;
                }
            }
            Operation::Open { .. } => self.look_up(now, caller, Name::from_bytes(text)?, Continuation::Open)?,
            Operation::Get { segment, offset, into, inline, options } => {
                fits(&into)?;
                let parts = RangeSet::One { offset, bytes: into.bytes };
                self.get(now, caller, Transfer { segment, parts, range: into, inline, options })?;
            }
            Operation::GetMany { segment, list, ranges, options } => {
                fits(&list)?;
                let (parts, range) = self.read_range_table(list, ranges, text)?;
                let transfer = Transfer { segment, parts, range, inline: false, options };
                self.get(now, caller, transfer).inspect_err(|_| self.output.free_table(&parts))?;
            }
            Operation::GetRows { segment, range, list, requested_model } => {
                fits(&range)?;
                let options = ReadOptions { requested_model, version: None };
                self.remote().get_rows(&caller, segment, (range, list), options)?;
            }
            Operation::Put { segment, offset, ref from, ref conditions } => {
                if let Payload::Arena(range) = from {
                    fits(range)?;
                }
                self.put_one(now, caller, segment, (offset, from), conditions)?;
            }
            Operation::PutMany { segment, list, ranges, conditions } => {
                fits(&list)?;
                let (parts, range) = self.read_range_table(list, ranges, text)?;
                let put = self.put(now, caller, segment, parts, Payload::Arena(range), conditions);
                put.inspect_err(|_| self.output.free_table(&parts))?;
            }
            Operation::UploadPart { segment, part, from } => {
                fits(&from)?;
                self.upload_part(now, &caller, segment, part, from)?;
            }
            Operation::CommitUpload { segment, offset, upload, conditions } => {
                self.commit_upload(now, &caller, segment, (offset, upload), conditions)?;
            }
            Operation::DropUpload { segment, upload } => self.drop_upload(&caller, segment, upload),
            Operation::List { node, text: range } => {
                fits(&ArenaRange { bytes: Listing::PAGE_BYTES as u32, ..range })?;
                self.list_from(now, &caller, node, range, &ListQuery::decode(text)?)?;
            }
            Operation::Stat { segment, page } => {
                fits(&ArenaRange { bytes: Listing::PAGE_BYTES as u32, ..page })?;
                self.execute(now, &caller, segment, operation)?;
            }
            Operation::Cancel { segment, request } => self.cancel(now, &caller, (segment, caller.channel), request),
            Operation::Collect => {
                if let Some(completion) = self.output.parked.collect(caller.channel, caller.request) {
                    self.output.reply(caller.channel, completion, None);
                }
            }
            Operation::Atomic { segment, .. }
            | Operation::Lock { segment, .. }
            | Operation::Await { segment, .. }
            | Operation::Unlock { segment, .. }
            | Operation::Renew { segment, .. }
            | Operation::Permit { segment, .. }
            | Operation::Break { segment, .. }
            | Operation::Release { segment } => self.execute(now, &caller, segment, operation)?,
        }
        Ok(())
    }

    /// Executes an operation here, or asks the home of its segment to do so.
    #[inline(never)]
    fn execute(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        segment: SegmentId,
        operation: &Operation,
    ) -> Result<(), Failure> {
        if self.is_home(segment) {
            self.home().execute(now, &caller.at_home(), operation)
        } else {
            self.remote().call(caller, segment, operation)
        }
    }

    #[inline(never)]
    fn upload_part(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        segment: SegmentId,
        part: Part,
        from: ArenaRange,
    ) -> Result<(), Failure> {
        if !self.is_home(segment) {
            return self.remote().upload_part(caller, segment, part, from);
        }
        let uploader = uploader(caller);
        let source = CommitSource::Client(caller.channel.client, Payload::Arena(from));
        self.home().store_part(now, &uploader, segment, part, (source, from.bytes))
    }

    #[inline(never)]
    fn commit_upload(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        segment: SegmentId,
        upload: (u64, UploadId),
        conditions: PutConditions,
    ) -> Result<(), Failure> {
        if !self.is_home(segment) {
            return self.remote().commit_upload(caller, segment, upload, conditions);
        }
        self.home().commit_upload(now, &uploader(caller), segment, upload, conditions)
    }

    #[inline(never)]
    fn drop_upload(&mut self, caller: &LocalCaller, segment: SegmentId, upload: UploadId) {
        let client = caller.channel.client;
        if !self.is_home(segment) {
            self.remote().drop_upload(client, segment, upload);
        } else if upload != UploadId(0) {
            let node = self.node;
            self.home().drop_upload(UploadOwner { node, client }, upload);
        }
        self.output.finish_call(caller, Outcome::Done);
    }

    /// Looks up a name, and creates the segment here if that is what follows.
    #[inline(never)]
    fn look_up(&mut self, now: Now, caller: LocalCaller, name: Name, then: Continuation) -> Result<(), Failure> {
        let new = self.remote().look_up(caller, name, then)?;
        self.create(now, new);
        Ok(())
    }

    /// Lists for a client, from the first connected node with at least that id.
    #[inline(never)]
    fn list_from(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        from: NodeId,
        text: ArenaRange,
        query: &ListQuery,
    ) -> Result<(), Failure> {
        let up = self.peers.iter().filter(|&(_, up)| up).map(|(node, _)| node);
        let next = up.chain([self.node]).filter(|&node| node >= from).min();
        match next {
            None => self.output.complete_page(caller.channel, caller.request, ListPage::default()),
            Some(node) if node == self.node => {
                let (bytes, more) = self.home().page(now, caller.principal, query);
                self.output.reply_page(caller.channel, caller.request, text, &bytes, (node, more));
            }
            Some(node) => self.remote().request_page(caller, node, text, query)?,
        }
        Ok(())
    }

    /// Ends a waiting request of one of the caller's channels.
    #[inline(never)]
    pub(crate) fn cancel(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        (segment, channel): (SegmentId, ChannelId),
        request: RequestId,
    ) {
        let waiting = Requester::Client(channel, request);
        if !self.is_home(segment) || !self.home().cancel_at_home(now, segment, waiting) {
            self.remote().cancel(channel, request);
        }
        // This comes after the end of the cancelled request: the last reply of a round is this request's own.
        self.output.finish_call(caller, Outcome::Done);
    }

    fn get(&mut self, now: Now, caller: LocalCaller, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { segment, parts, range, inline, options } = transfer;
        if !self.is_home(segment) {
            return self.remote().get_remote(now, caller, transfer);
        }
        if let Some(ended) = self.fast_path().get_fast(&caller, &transfer) {
            return ended;
        }
        let sink = if inline { Destination::Inline } else { Destination::Arena(range) };
        let lock_dependency = self.home().lock_dependency_of_get(segment, &options)?;
        let ReadOptions { version, .. } = options;
        self.home().submit_client_op(
            now,
            &caller,
            segment,
            PendingOp::Get(Get { parts, sink, lock_dependency, version, token: None }),
        )
    }

    #[inline]
    fn put_one(
        &mut self,
        now: Now,
        caller: LocalCaller,
        segment: SegmentId,
        (offset, from): (u64, &Payload),
        conditions: &PutConditions,
    ) -> Result<(), Failure> {
        if self.is_home(segment)
            && let Some(ended) = self.fast_path().put_fast(now, &caller, segment, (offset, from), conditions)
        {
            return ended;
        }
        self.put(now, caller, segment, RangeSet::One { offset, bytes: from.length() }, *from, *conditions)
    }

    fn put(
        &mut self,
        now: Now,
        caller: LocalCaller,
        segment: SegmentId,
        parts: RangeSet,
        from: Payload,
        conditions: PutConditions,
    ) -> Result<(), Failure> {
        if !self.is_home(segment) {
            return self.remote().put_remote(caller, segment, parts, from, conditions);
        }
        let source = CommitSource::Client(caller.channel.client, from);
        self.home().submit_client_op(now, &caller, segment, PendingOp::Put { parts, source, conditions })
    }

    /// Reads the range table of a vectored call. The bytes begin in the arena slot behind the table's.
    fn read_range_table(
        &mut self,
        list: ArenaRange,
        ranges: u8,
        text: &[u8],
    ) -> Result<(RangeSet, ArenaRange), Failure> {
        let bytes = usize::from(ranges) * Ranges::ENTRY_BYTES;
        let table = text.get(..bytes).ok_or(Failure::Malformed)?;
        let sum = Ranges::decode(table)?.sum();
        if (list.bytes as usize) < ARENA_SLOT_BYTES + sum as usize {
            return Err(Failure::OutOfRange);
        }
        let data = ArenaRange { slot: list.slot.saturating_add(1), bytes: sum };
        Ok((self.output.store_table(table, sum), data))
    }

    /// Returns the byte ranges of a range set.
    pub fn ranges(&self, parts: &RangeSet) -> RangeList {
        let mut ranges = self.output.ranges_of(parts);
        if planted!(self.segments, FirstRangeOnly) {
            ranges.truncate(1);
        }
        ranges
    }

    /// Chooses the home of a new segment.
    fn place(&mut self, placement: Placement, name: &Name) -> NodeId {
        match placement {
            Placement::Local => self.node,
            Placement::Node(node) => node,
            Placement::RoundRobin => {
                let up = self.peers.iter().filter(|&(_, up)| up).map(|(node, _)| node);
                let mut nodes: Vec<NodeId> = up.chain([self.node]).collect();
                nodes.sort_unstable();
                self.placed += 1;
                nodes[(self.placed - 1) as usize % nodes.len()]
            }
            Placement::Hash => {
                let nodes = self.peers.iter().map(|(node, _)| node).chain([self.node]);
                nodes.max_by_key(|&node| (weight(node, name), node)).unwrap_or(self.node)
            }
        }
    }
}

/// Returns the requester of an operation on an upload.
fn uploader(caller: &LocalCaller) -> Uploader {
    let LocalCaller { channel, principal, deadline_us, .. } = *caller;
    Uploader { requester: caller.requester(), principal, client: channel.client, deadline_us }
}

/// Rendezvous weight of a name on a node (FNV-1a over both, mixed once more). Each name goes to the node with the
/// highest weight, so a node that joins or leaves moves only its own names.
pub(crate) fn weight(node: NodeId, name: &Name) -> u64 {
    let bytes = node.0.to_le_bytes().into_iter().chain(name.as_str().bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ hash >> 32
}
