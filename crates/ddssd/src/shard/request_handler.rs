//! A client's request on its way through this node: what it has in the arena is copied, the engine decides, and what is
//! answered on the spot is handed back to the ring that it came from.

use super::executor::{ActionExecutor, CHECKED, arena_of};
use ddss_core::engine::{Commit, InlineCommit};
use ddss_core::limits::TEXT_BYTES_MAX;
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Completion, Entry, Operation, Outcome, Payload, Range, Request, RequestId,
};
use ddss_ipc::{RequestHandler, SharedMemory, TracedRequest};

impl RequestHandler for ActionExecutor {
    fn weight(&self, entry: &Entry) -> usize {
        Request::weight(entry)
    }

    #[inline(always)]
    fn handle(&mut self, lane: ChannelId, entry: &Entry, followed: Option<TracedRequest>) -> Option<Entry> {
        if Request::is_null(entry) {
            // Whoever has a lane is attached, and there is nothing to decide.
            self.engine.note_null();
            return Some(Completion::bare(RequestId(entry[1]), Outcome::Done).encode());
        }
        if let Some(seen) = self.engine.inline_get(lane, entry) {
            return Some(self.memory.seen(entry[1], &seen));
        }
        if let Some(answered) = self.put_small(lane, entry) {
            return Some(answered);
        }
        ask(self, lane, entry);
        self.commit_first();
        // Nearly always the last thing to do is the reply to this very request, and often the only one.
        let answered = loop {
            match self.engine.last_reply() {
                Some(reply) if reply.lane == lane => break Some(self.memory.encoded(&reply.completion, reply.data)),
                Some(&reply) => self.reply(reply.lane, &reply.completion, reply.data),
                None => match self.engine.next_action() {
                    Some(action) => self.perform_one(action),
                    None => break self.reply_to(lane, entry[1]),
                },
            }
        };
        if answered.is_none() {
            self.pulse.began(lane, entry[1]);
            self.tally.waits(lane, entry, followed);
        }
        answered
    }

    /// Counts it when the answer is out: nobody waits for a count.
    #[inline(always)]
    fn after_reply(&mut self, lane: ChannelId, entry: &Entry, reply: &Entry, followed: Option<TracedRequest>) {
        self.tally.answered(lane, entry, reply, followed);
    }
}

impl ActionExecutor {
    /// A put of which nothing but the commit is left to do, and its answer.
    #[inline(always)]
    fn put_small(&mut self, lane: ChannelId, entry: &Entry) -> Option<Entry> {
        self.see_time();
        let commit = self.engine.inline_put(self.now, lane, entry)?;
        let InlineCommit { at, offset, bytes, words, version, timestamp } = commit;
        let ranges = [Range { offset, bytes: bytes.into() }];
        self.memory.commit(at, (version, timestamp), &ranges, |area, data| {
            let held = words.map(u64::to_le_bytes);
            area.write(data + offset as usize, &held.as_flattened()[..usize::from(bytes)]).expect(CHECKED);
        });
        Some(Completion { version, timestamp, ..Completion::bare(RequestId(entry[1]), Outcome::Done) }.encode())
    }

    /// Does a commit that is the first thing to do and in its place.
    #[inline]
    fn commit_first(&mut self) {
        let Self { engine, memory, arenas, .. } = self;
        let Some(&Commit { at, offset, client, ref from, version, timestamp }) = engine.first_commit() else { return };
        let ranges = [Range { offset, bytes: from.length() }];
        memory.commit(at, (version, timestamp), &ranges, |area, data| {
            let to = data + offset as usize;
            match from {
                Payload::Inline { bytes, length } => area.write(to, &bytes[..usize::from(*length)]).expect(CHECKED),
                Payload::Arena(range) => {
                    if let Some(arena) = arena_of(arenas, client) {
                        let (from, bytes) = (range.offset() as usize, range.bytes as usize);
                        SharedMemory::copy(&arena.memory, from, area, to, bytes).expect(CHECKED);
                    }
                }
            }
        });
    }
}

#[inline(always)]
fn ask(hands: &mut ActionExecutor, lane: ChannelId, entry: &Entry) {
    hands.see_time();
    match Request::decode(entry) {
        Ok(request) => {
            hands.has_company |= Request::has_working_hint(entry);
            if text_range(&request.operation).is_some() {
                return ask_by_text(hands, lane, &request);
            }
            hands.engine.request(hands.now, lane, &request, &[]);
        }
        Err(refused) => hands.engine.refuse(lane, refused.id, refused.failure),
    }
}

#[cold]
fn ask_by_text(hands: &mut ActionExecutor, lane: ChannelId, request: &Request) {
    let mut text = [0; TEXT_BYTES_MAX];
    let length = copy_text(hands, lane.client, &request.operation, &mut text);
    hands.engine.request(hands.now, lane, request, &text[..length]);
}

/// What an operation has in the arena for the engine to read.
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

/// Names, specifications, queries and tables are copied out of the arena once, before anybody looks at them.
fn copy_text(hands: &ActionExecutor, client: ClientId, operation: &Operation, text: &mut [u8]) -> usize {
    let Some(range) = text_range(operation) else { return 0 };
    let Some(arena) = hands.arena(client) else { return 0 };
    let length = (range.bytes as usize).min(text.len());
    arena.memory.read(range.offset() as usize, &mut text[..length]).map_or(0, |()| length)
}
