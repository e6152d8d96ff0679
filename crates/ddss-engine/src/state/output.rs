//! Output of the engine: the actions for the daemon, the bytes that they name, the operations that continue with what the
//! daemon reads, the clients that get replies, and the counts of all that.

use crate::action::{Action, Commit, CommitSource, MessageBody, PeerAction, RangeSet, Reply};
use crate::config::Counters;
use crate::ids::BufferId;
use crate::requester::{LocalCaller, ReplyFields, Requester};
use crate::state::action_queue::{ActionQueue, SetAside};
use crate::state::clients::{Client, Clients};
use crate::state::lock_queue::PendingOp;
use crate::state::memory::buffer_pool::BufferPool;
use crate::state::parked_waits::{ParkedReply, ParkedWaits};
use crate::state::pending::{AwaitedReads, Pending, PendingAtomic, PendingRecord};
use crate::state::segments::{Segment, Segments, check_range};
use arrayvec::ArrayVec;
use ddss_core::limits::{ARENA_SLOT_BYTES, RANGES_MAX, TRANSFER_BYTES_MAX};
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Completion, Failure, ListPage, Message, NodeId, OpenedSegment, Outcome, Principal,
    Range, Ranges, RequestId, SegmentId, TableLayout, Version,
};

/// The ranges of one call.
pub(crate) type RangeList = ArrayVec<Range, RANGES_MAX>;

/// Actions in order, with the buffers that they name. A reply to a client that is gone is dropped.
#[derive(Debug)]
pub(crate) struct Output {
    actions: ActionQueue,
    buffers: BufferPool,
    pub(crate) awaited_reads: AwaitedReads,
    clients: Clients,
    pub(crate) counters: Counters,
    pub(crate) parked: ParkedWaits,
    /// Version that a refused condition found, until the answer.
    found_version: Option<Version>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            actions: ActionQueue::new(),
            buffers: BufferPool::default(),
            awaited_reads: AwaitedReads::default(),
            clients: Clients::new(),
            counters: Counters::default(),
            parked: ParkedWaits::new(),
            found_version: None,
        }
    }

    /// Adds a client.
    pub(crate) fn attach(&mut self, id: ClientId, principal: Principal, arena_bytes: u64) {
        self.clients.attach(id, principal, arena_bytes);
    }

    /// Removes a client; `false` if it is not attached.
    pub(crate) fn detach(&mut self, id: ClientId) -> bool {
        self.parked.detach(id);
        self.clients.detach(id)
    }

    /// Returns the source of bytes from a message or from staging memory. Message bytes stay in a buffer until used.
    pub(crate) fn source_of(&mut self, node: NodeId, staged: u64, tail: &[u8]) -> CommitSource {
        if staged == Message::NOT_STAGED {
            return CommitSource::Buffer(self.store(tail));
        }
        CommitSource::Staged { node, at: staged }
    }

    /// Returns an attached client.
    #[inline(always)]
    pub(crate) fn client(&self, id: ClientId) -> Option<Client> {
        self.clients.get(id)
    }

    #[inline]
    pub(crate) fn is_attached(&self, id: ClientId) -> bool {
        self.client(id).is_some()
    }

    /// Returns true if no action is queued.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Takes the next action.
    #[inline]
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        let Self { actions, buffers, .. } = self;
        actions.pop(|buffer| buffers.remove(&buffer))
    }

    /// Takes the next action if it is an immediate commit.
    #[inline(always)]
    pub(crate) fn take_commit(&mut self) -> Option<&Commit> {
        self.actions.take_commit()
    }

    /// Takes the next action if it is a reply and the last one.
    #[inline(always)]
    pub(crate) fn take_last_reply(&mut self) -> Option<&Reply> {
        self.actions.take_last_reply()
    }

    /// Emits an action.
    #[inline(always)]
    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Emits the commit of a put of one range by a local client.
    #[inline(always)]
    pub(crate) fn commit(&mut self, commit: Commit) {
        self.actions.push_commit(commit);
    }

    /// Asks for the word at a pool offset. The atomic continues with it.
    pub(crate) fn read_word(&mut self, at: u64, atomic: PendingAtomic) {
        self.awaited_reads.atomics.push_back(atomic);
        self.push(Action::ReadWord { at });
    }

    /// Returns the atomic whose word was read.
    pub(crate) fn end_word_read(&mut self) -> PendingAtomic {
        self.awaited_reads.atomics.pop_front().expect("each read of a word is answered once")
    }

    /// Asks for a record by `read`. The operation continues with it.
    pub(crate) fn read_record(&mut self, read: Action, operation: PendingRecord) {
        self.awaited_reads.records.push_back(operation);
        self.push(read);
    }

    /// Returns the operation whose record is read next.
    pub(crate) fn next_record_read(&self) -> Option<&PendingRecord> {
        self.awaited_reads.records.front()
    }

    /// Returns the operation whose record was read.
    pub(crate) fn end_record_read(&mut self) -> PendingRecord {
        self.awaited_reads.records.pop_front().expect("each read of a record is answered once")
    }

    /// Sends a message without further bytes.
    #[inline]
    pub(crate) fn send(&mut self, node: NodeId, message: Message) {
        self.push(Action::Peer(PeerAction::Send { node, message, tail: MessageBody::None }));
    }

    /// Emits a reply, unless the client is gone.
    #[inline(always)]
    pub(crate) fn reply(&mut self, channel: ChannelId, completion: Completion, data: Option<(u64, u8)>) {
        if channel.is_parked() {
            return self.reply_to_parked(channel.client, completion);
        }
        if self.client(channel.client).is_some() {
            self.actions.push_reply(Reply { channel, completion, data });
        }
    }

    /// Ends a wait that was to be parked: with a reply of its own if it never waited, else in an offered place.
    #[cold]
    fn reply_to_parked(&mut self, client: ClientId, completion: Completion) {
        if let ParkedReply::AtOnce(channel) = self.parked.complete(client, completion) {
            self.actions.push_reply(Reply { channel, completion, data: None });
        }
    }

    /// Answers the requester of an operation: a client, or a peer that waits for the end of a step.
    pub(crate) fn answer(&mut self, requester: Requester, outcome: Outcome, fields: ReplyFields) {
        let ReplyFields { version, timestamp, word } = self.found_version(outcome).unwrap_or(fields);
        match requester {
            Requester::Client(channel, request) => {
                let mut completion = Completion { version, timestamp, ..Completion::bare(request, outcome) };
                completion.data[..8].copy_from_slice(&word.to_le_bytes());
                self.reply(channel, completion, None);
            }
            Requester::Peer(_, 0) => {}
            Requester::Peer(node, step) => self.send(node, Message::Ended { step, outcome, version, timestamp, word }),
        }
    }

    /// Records the version that a refused condition found: the answer to it, which follows, names it.
    pub(crate) fn name_version(&mut self, found: Version) {
        self.found_version = Some(found);
    }

    /// Returns the fields of an answer that names a version.
    #[inline]
    fn found_version(&mut self, outcome: Outcome) -> Option<ReplyFields> {
        let Outcome::Failed(failure) = outcome else { return None };
        let version = self.found_version.take().filter(|_| failure == Failure::VersionMismatch)?;
        Some(ReplyFields { version, word: 1, ..ReplyFields::default() })
    }

    /// Replies to a local caller.
    #[inline]
    pub(crate) fn finish_call(&mut self, caller: &LocalCaller, outcome: Outcome) {
        if let Some(found) = self.found_version(outcome) {
            return self.answer(caller.requester(), outcome, found);
        }
        self.reply(caller.channel, Completion::bare(caller.request, outcome), None);
    }

    /// Replies to the caller of a pending operation that has ended.
    #[inline]
    pub(crate) fn finish(&mut self, pending: &Pending, outcome: Outcome) {
        self.reply(pending.channel, Completion::bare(pending.request, outcome), None);
    }

    /// Replies with an opened segment.
    pub(crate) fn finish_opened(&mut self, channel: ChannelId, request: RequestId, opened: &OpenedSegment) {
        let completion = Completion { data: opened.encode(), ..Completion::bare(request, Outcome::Done) };
        self.reply(channel, completion, None);
    }

    /// Completes a list with a page. For a node that went away in between the page is empty.
    pub(crate) fn complete_page(&mut self, channel: ChannelId, request: RequestId, page: ListPage) {
        let done = Completion::bare(request, Outcome::Done);
        self.reply(channel, Completion { data: page.encode(), ..done }, None);
    }

    /// Writes a page of a node's list into a client's arena, and completes the list with it.
    pub(crate) fn reply_page(
        &mut self,
        channel: ChannelId,
        request: RequestId,
        into: ArenaRange,
        page: &[u8],
        (node, more): (NodeId, bool),
    ) {
        let bytes = page.len() as u16;
        let buffer = self.store(page);
        self.push(Action::WriteOut {
            buffer,
            client: channel.client,
            into: ArenaRange { bytes: bytes.into(), ..into },
        });
        self.free_buffer(buffer);
        self.complete_page(channel, request, ListPage { node, bytes, more, away: false });
    }

    /// Stores bytes in a buffer.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> BufferId {
        self.buffers.insert(bytes)
    }

    /// Returns the bytes of a buffer.
    pub(crate) fn buffer(&self, id: BufferId) -> &[u8] {
        self.buffers.get(id)
    }

    /// Frees a buffer that no queued action names.
    pub(crate) fn drop_buffer(&mut self, id: &BufferId) {
        self.buffers.remove(id);
    }

    /// Frees a buffer after the actions that are queued now.
    pub(crate) fn free_buffer(&mut self, buffer: BufferId) {
        self.actions.push_free(buffer);
    }

    /// Stores a checked table in a buffer.
    pub(crate) fn store_table(&mut self, table: &[u8], bytes: u32) -> RangeSet {
        RangeSet::Many { table: self.store(table), bytes }
    }

    /// Returns the byte ranges of a range set.
    #[inline]
    pub(crate) fn ranges_of(&self, parts: &RangeSet) -> RangeList {
        match *parts {
            RangeSet::One { offset, bytes } => RangeList::from_iter([Range { offset, bytes }]),
            RangeSet::Many { table, .. } => {
                let ranges = Ranges::decode(self.buffer(table)).expect("a table is checked before it is stored");
                RangeList::from_iter(ranges.as_slice().iter().copied())
            }
        }
    }

    /// Checks that all ranges lie inside a segment of that many bytes.
    #[inline]
    pub(crate) fn check_parts(&self, parts: &RangeSet, segment_bytes: u64) -> Result<(), Failure> {
        match *parts {
            RangeSet::One { offset, bytes } => check_range(segment_bytes, offset, bytes),
            RangeSet::Many { .. } => {
                self.ranges_of(parts).iter().try_for_each(|range| check_range(segment_bytes, range.offset, range.bytes))
            }
        }
    }

    /// Returns the row of a table that contains all ranges.
    pub(crate) fn row_of(&self, layout: TableLayout, table_bytes: u64, parts: &RangeSet) -> Result<u64, Failure> {
        let row = match *parts {
            RangeSet::One { offset, bytes } => layout.row_of(offset, bytes),
            RangeSet::Many { .. } => layout.row_of_ranges(&self.ranges_of(parts)),
        };
        row.filter(|&row| row < layout.rows(table_bytes)).ok_or(Failure::OutOfRange)
    }

    /// Emits the action that writes the record of a segment again.
    pub(crate) fn rewrite_record(&mut self, segments: &Segments, id: SegmentId) {
        if let Ok(record) = segments.record(id) {
            self.push(Action::RewriteRecord { record });
        }
    }

    /// Returns the row of an operation; `None` if it concerns the whole segment.
    pub(crate) fn row_of_op(&self, segment: &Segment, op: &PendingOp) -> Result<Option<u64>, Failure> {
        let Some(layout) = segment.spec.layout() else { return Ok(None) };
        let parts = match *op {
            PendingOp::Get(get) => get.parts,
            PendingOp::Put { parts, .. } => parts,
            PendingOp::Atomic { offset, .. } => RangeSet::One { offset, bytes: 8 },
            PendingOp::Lock(ref lock_request) => return segment.row_to_lock(lock_request),
        };
        self.row_of(layout, segment.spec.bytes, &parts).map(Some)
    }

    /// Returns the offset of the first byte of a range set.
    pub(crate) fn first_offset(&self, parts: &RangeSet) -> u64 {
        match *parts {
            RangeSet::One { offset, .. } => offset,
            RangeSet::Many { .. } => self.ranges_of(parts).first().map_or(0, |range| range.offset),
        }
    }

    /// Takes all actions out, so that others come before them; `None` if no action is due.
    pub(crate) fn set_aside(&mut self) -> Option<SetAside> {
        self.actions.set_aside()
    }

    /// Puts actions back behind those that are due now.
    pub(crate) fn put_back(&mut self, later: SetAside) {
        self.actions.put_back(later);
    }

    /// Returns the byte ranges of a message: one range, or those of the table behind it, which goes into a buffer.
    pub(crate) fn ranges_of_message(&mut self, one: (u64, u32), ranges: u8, table: &[u8]) -> Result<RangeSet, Failure> {
        let (offset, bytes) = one;
        if ranges == 0 {
            return if bytes as usize <= TRANSFER_BYTES_MAX {
                Ok(RangeSet::One { offset, bytes })
            } else {
                Err(Failure::TooLarge)
            };
        }
        let sum = Ranges::decode(table)?.sum();
        if sum == bytes { Ok(self.store_table(table, sum)) } else { Err(Failure::Malformed) }
    }

    /// Reads and stores the range table of a vectored call.
    pub(crate) fn read_table(&mut self, list: ArenaRange, ranges: u8, text: &[u8]) -> Result<RangeSet, Failure> {
        let table = text.get(..usize::from(ranges) * Ranges::ENTRY_BYTES).ok_or(Failure::Malformed)?;
        let sum = Ranges::decode(table)?.sum();
        if (list.bytes as usize) < ARENA_SLOT_BYTES + sum as usize {
            return Err(Failure::OutOfRange);
        }
        Ok(self.store_table(table, sum))
    }

    /// Sends a message with bytes behind it.
    pub(crate) fn send_with(&mut self, node: NodeId, message: Message, tail: &[u8]) {
        let buffer = self.store(tail);
        self.push(Action::Peer(PeerAction::Send { node, message, tail: MessageBody::Buffer(buffer) }));
        self.free_buffer(buffer);
    }

    /// Frees the table of a range set after the actions that are queued now.
    #[inline]
    pub(crate) fn free_table(&mut self, parts: &RangeSet) {
        if let RangeSet::Many { table, .. } = *parts {
            self.free_buffer(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_is_gone_gets_no_reply_and_a_peer_without_a_step_no_message() {
        // If this broke, a new client in the same slot would get the reply to a request that it never made.
        let client = ClientId { index: 1, generation: 1 };
        let requester = Requester::Client(ChannelId { client, index: 0 }, RequestId(9));
        let mut output = Output::new();
        output.answer(requester, Outcome::Done, ReplyFields::default());
        output.answer(Requester::Peer(NodeId(2), 0), Outcome::Done, ReplyFields::default());
        assert!(output.is_empty());
        output.attach(client, Principal { uid: 1, gid: 1 }, 0);
        output.answer(requester, Outcome::Done, ReplyFields { word: 7, ..ReplyFields::default() });
        let Some(Action::Reply(Reply { completion, .. })) = output.next_action() else {
            panic!("an attached client is answered")
        };
        assert_eq!((completion.request, completion.data[0]), (RequestId(9), 7));
        output.answer(Requester::Peer(NodeId(2), 5), Outcome::Done, ReplyFields::default());
        assert!(matches!(
            output.next_action(),
            Some(Action::Peer(PeerAction::Send { message: Message::Ended { step: 5, .. }, .. }))
        ));
    }

    #[test]
    fn table_of_ranges_lives_until_the_actions_before_its_end_are_taken() {
        // If this broke, a put of several ranges would write to the ranges of another call.
        let table = [[0_u8; Ranges::ENTRY_BYTES]; 1].concat();
        let mut output = Output::new();
        let parts = output.store_table(&table, 0);
        output.push(Action::Peer(PeerAction::Disconnect { node: NodeId(2) }));
        output.free_table(&parts);
        let RangeSet::Many { table: first, .. } = parts else { panic!("a stored table has a buffer") };
        assert!(output.next_action().is_some());
        assert_ne!(output.store(&table), first, "an action that was just taken may still use it");
        assert!(output.next_action().is_none());
        assert_eq!(output.store(&table), first, "its end was reached");
    }
}
