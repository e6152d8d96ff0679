//! Handling of one client request: its text is copied out of the arena, the engine decides, and an immediate reply
//! goes back to the ring that the request came from.

use super::client_arena::CHECKED;
use super::executor::ActionExecutor;
use ddss_core::limits::TEXT_BYTES_MAX;
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Completion, Entry, Operation, Outcome, Payload, Range, Request, RequestId,
};
use ddss_engine::{Commit, InlineCommit};
use ddss_ipc::{RequestHandler, SharedMemory, TracedRequest};

impl RequestHandler for ActionExecutor {
    fn weight(&self, entry: &Entry) -> usize {
        Request::weight(entry)
    }

    #[inline(always)]
    fn handle(&mut self, channel: ChannelId, entry: &Entry, traced: Option<TracedRequest>) -> Option<Entry> {
        if Request::is_null(entry) {
            // The owner of a channel is attached, and a null request needs no decision.
            self.engine.note_null();
            return Some(Completion::bare(RequestId(entry[1]), Outcome::Done).encode());
        }
        if let Some(answered) = self.try_inline_put(channel, entry) {
            return Some(answered);
        }
        self.decide(channel, entry, traced)
    }

    /// Counts the reply after it is visible, so that the client does not wait for the count.
    #[inline(always)]
    fn after_reply(&mut self, channel: ChannelId, entry: &Entry, reply: &Entry, traced: Option<TracedRequest>) {
        // The reply to a collecting request has the id of a parked wait.
        if Completion::is_parked(reply) || entry[1] != reply[1] {
            return self.record_other_reply(channel, entry, reply, traced);
        }
        self.recorder.record_reply(channel, entry, reply, traced);
    }
}

impl ActionExecutor {
    /// Handles a request that the engine decides. Never inlined: inside the loop over the rings it slows down the requests
    /// above.
    #[inline(never)]
    fn decide(&mut self, channel: ChannelId, entry: &Entry, traced: Option<TracedRequest>) -> Option<Entry> {
        submit_request(self, channel, entry);
        self.execute_first_commit();
        // The last action is nearly always the reply to this very request, and often the only one.
        let answered = loop {
            match self.engine.last_reply() {
                Some(reply) if reply.channel == channel => {
                    break Some(self.memory.encode_completion(&reply.completion, reply.data));
                }
                Some(&reply) => self.reply(reply.channel, &reply.completion, reply.data),
                None => match self.engine.next_action() {
                    Some(action) => self.execute(action),
                    None => break self.replies.take(channel, entry[1]),
                },
            }
        };
        if answered.is_none() && !Request::is_collect(entry) {
            self.latency.begin_sample(channel, entry[1]);
            self.recorder.begin_wait(channel, entry, traced);
        }
        answered
    }

    /// Counts a reply that does not end its request, or ends another one. A parked wait is counted once, when its own
    /// completion goes out.
    #[cold]
    fn record_other_reply(&mut self, channel: ChannelId, entry: &Entry, reply: &Entry, traced: Option<TracedRequest>) {
        let place = ChannelId::parked(channel.client);
        if Request::is_collect(entry) {
            self.recorder.complete(place, reply);
        } else if Completion::is_parked(reply) {
            self.recorder.begin_wait(place, entry, None);
        } else {
            // The reply belongs to an older request of the same channel.
            self.recorder.begin_wait(channel, entry, traced);
            self.recorder.complete(channel, reply);
        }
    }

    /// Executes an inline put that needs nothing but its commit, and returns the reply.
    #[inline(always)]
    fn try_inline_put(&mut self, channel: ChannelId, entry: &Entry) -> Option<Entry> {
        self.refresh_time();
        let commit = self.engine.inline_put(self.clock.now(), channel, entry)?;
        let InlineCommit { at, offset, bytes, words, version, timestamp } = commit;
        let ranges = [Range { offset, bytes: bytes.into() }];
        self.memory.commit(at, (version, timestamp), &ranges, |area, data| {
            let inline = words.map(u64::to_le_bytes);
            area.write(data + offset as usize, &inline.as_flattened()[..usize::from(bytes)]).expect(CHECKED);
        });
        Some(Completion { version, timestamp, ..Completion::bare(RequestId(entry[1]), Outcome::Done) }.encode())
    }

    /// Executes the commit in place if it is the first action.
    #[inline]
    fn execute_first_commit(&mut self) {
        let Self { engine, memory, arenas, .. } = self;
        let Some(&Commit { at, offset, client, ref from, version, timestamp }) = engine.first_commit() else { return };
        let ranges = [Range { offset, bytes: from.length() }];
        memory.commit(at, (version, timestamp), &ranges, |area, data| {
            let to = data + offset as usize;
            match from {
                Payload::Inline { bytes, length } => area.write(to, &bytes[..usize::from(*length)]).expect(CHECKED),
                Payload::Arena(range) => {
                    if let Some(arena) = arenas.of(client) {
                        let (from, bytes) = (range.offset() as usize, range.bytes as usize);
                        SharedMemory::copy(&arena.memory, from, area, to, bytes).expect(CHECKED);
                    }
                }
            }
        });
    }
}

#[inline(always)]
fn submit_request(executor: &mut ActionExecutor, channel: ChannelId, entry: &Entry) {
    executor.refresh_time();
    match Request::decode(entry) {
        Ok(request) => {
            if text_range(&request.operation).is_some() {
                return submit_with_text(executor, channel, &request);
            }
            executor.engine.request(executor.clock.now(), channel, &request, &[]);
        }
        Err(refused) => executor.engine.refuse(channel, refused.id, refused.failure),
    }
}

#[cold]
fn submit_with_text(executor: &mut ActionExecutor, channel: ChannelId, request: &Request) {
    let mut text = [0; TEXT_BYTES_MAX];
    let length = copy_text(executor, channel.client, &request.operation, &mut text);
    executor.engine.request(executor.clock.now(), channel, request, &text[..length]);
}

/// Returns the range of an operation's text or table in the arena.
#[inline]
fn text_range(operation: &Operation) -> Option<ArenaRange> {
    match operation {
        Operation::Allocate { spec_and_name: range }
        | Operation::Open { name: range }
        | Operation::List { text: range, .. }
        | Operation::GetMany { list: range, .. }
        | Operation::PutMany { list: range, .. } => Some(*range),
        _ => None,
    }
}

/// Copies names, specifications, queries and tables out of the arena once, before they are validated.
fn copy_text(executor: &ActionExecutor, client: ClientId, operation: &Operation, text: &mut [u8]) -> usize {
    let Some(range) = text_range(operation) else { return 0 };
    let Some(arena) = executor.arenas.of(client) else { return 0 };
    let length = (range.bytes as usize).min(text.len());
    arena.memory.read(range.offset() as usize, &mut text[..length]).map_or(0, |()| length)
}
