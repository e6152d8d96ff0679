//! What the engine decided, done: copies in this node's memory, work for the fabric, replies to clients.

use crate::fetches::Fetches;
use crate::fetches::Tag;
use crate::links::Links;
use crate::memory::NodeMemory;
use ddss_core::engine::{Action, Engine, HandId, KeptId, Now, Parts, Source, StepId, Tail};
use ddss_core::{
    ArenaRange, ClientId, Completion, Entry, Failure, Header, LaneId, Message, NodeId, Payload, Timestamp, Version,
};
use ddss_ipc::SharedMemory;
use ddss_verbs::{Fabric, LocalRange, PostErrorKind, RegionId, RemoteRange, Work};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What an engine's action names was checked by the engine before.
const CHECKED: &str = "the engine checks ranges against the arena and the segment";

/// A client's arena, as this thread and the fabric see it.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) client: ClientId,
    pub(crate) memory: SharedMemory,
    pub(crate) region: RegionId,
}

/// What the progress thread works with, apart from the clients' rings.
pub(crate) struct Hands {
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) engine: Engine,
    pub(crate) links: Links,
    pub(crate) memory: NodeMemory,
    pub(crate) fetches: Fetches,
    pub(crate) pool_region: RegionId,
    pub(crate) scratch_region: RegionId,
    pub(crate) arenas: Vec<Option<Arena>>,
    /// Replies on their way into the rings.
    pub(crate) replies: Vec<(LaneId, Entry)>,
    pub(crate) began: Instant,
    /// The time as it was a few rounds ago at the most: no request waits for a clock to be read.
    pub(crate) now: Now,
}

impl Hands {
    pub(crate) fn read_clocks(began: Instant) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady_us: began.elapsed().as_micros() as u64, wall_us: wall.as_micros() as u64 }
    }

    /// The arena of a client that is attached.
    pub(crate) fn arena(&self, client: ClientId) -> Option<&Arena> {
        self.arenas.get(client.index as usize)?.as_ref().filter(|arena| arena.client == client)
    }

    /// Does everything that the engine has decided.
    pub(crate) fn perform(&mut self) {
        while let Some(action) = self.engine.next_action() {
            match action {
                Action::Format { at, header } => self.memory.format(at, &header),
                Action::Erase { at } => self.memory.erase(at),
                Action::CopyOut { at, parts, client, into } => self.copy_out(at, &parts, client, into),
                Action::Commit { at, parts, source, version, timestamp } => {
                    self.commit(at, &parts, source, (version, timestamp));
                }
                Action::Keep { at, to, header } => self.memory.keep(at, to, &header),
                Action::Snapshot { at, parts, to } => self.snapshot(at, &parts, to),
                Action::Hand { node, hand, at, from, bytes, message } => {
                    self.hand(node, hand, at, (from, bytes), &message);
                }
                Action::Unstage { node, at, client, into } => self.unstage(node, at, client, into),
                Action::WriteOut { kept, client, into } => self.write_out(kept, client, into),
                Action::Look { at } => {
                    let word = self.memory.word(at);
                    self.engine.looked(word);
                }
                Action::Mark { at, holder } => self.memory.mark(at, holder),
                Action::Fetch { node, step, window, line, parts, target } => {
                    self.fetch(node, step, window, line, &parts, target);
                }
                Action::Stage { node, step, at, client, from, message, table } => {
                    self.stage(node, step, at, client, from, &message, table);
                }
                Action::Send { node, message, tail } => self.send(node, &message, tail),
                Action::Introduce { node, message, at, bytes } => self.introduce(node, message, at, bytes),
                Action::Withdraw { at } => self.links.withdraw(self.fabric.as_mut(), at),
                Action::Cut { node } => self.links.cut(self.fabric.as_mut(), node),
                Action::Reply { lane, completion, data } => self.reply(lane, completion, data),
            }
        }
    }

    fn copy_out(&self, at: u64, parts: &Parts, client: ClientId, into: ArenaRange) {
        let Some(arena) = self.arena(client) else { return };
        let mut to = into.offset() as usize;
        self.engine.ranges(parts).iter().for_each(|range| {
            let (from, bytes) = ((at + range.offset) as usize, range.bytes as usize);
            SharedMemory::copy(&self.memory.pool, from, &arena.memory, to, bytes).expect(CHECKED);
            to += bytes;
        });
    }

    fn snapshot(&self, at: u64, parts: &Parts, to: u64) {
        let (pool, mut to) = (&self.memory.pool, to as usize);
        for range in &self.engine.ranges(parts) {
            let (from, bytes) = ((at + range.offset) as usize, range.bytes as usize);
            SharedMemory::copy(pool, from, pool, to, bytes).expect(CHECKED);
            to += bytes;
        }
    }

    fn unstage(&self, node: NodeId, at: u64, client: ClientId, into: ArenaRange) {
        if let (Some(arena), Some(staging), Some(part)) =
            (self.arena(client), &self.memory.staging, self.links.staging_of(node))
        {
            let (to, bytes) = (into.offset() as usize, into.bytes as usize);
            SharedMemory::copy(staging, (part + at) as usize, &arena.memory, to, bytes).expect(CHECKED);
        }
    }

    fn write_out(&self, kept: KeptId, client: ClientId, into: ArenaRange) {
        if let Some(arena) = self.arena(client) {
            arena.memory.write(into.offset() as usize, self.engine.kept(kept)).expect(CHECKED);
        }
    }

    fn commit(&mut self, at: u64, parts: &Parts, source: Source, stamp: (Version, Timestamp)) {
        let ranges = self.engine.ranges(parts);
        let data = at + Header::DATA_OFFSET;
        let (version, timestamp) = stamp;
        if let Source::Kept(kept) = source {
            let Self { engine, memory, .. } = self;
            engine.take_kept(kept, |bytes| {
                memory.commit(at, version, timestamp, |pool| {
                    let mut left = bytes;
                    for range in &ranges {
                        let (now, later) = left.split_at(range.bytes as usize);
                        pool.write((data + range.offset) as usize, now).expect(CHECKED);
                        left = later;
                    }
                });
            });
            return;
        }
        self.memory.commit(at, version, timestamp, |pool| {
            let mut done = 0;
            for range in &ranges {
                self.copy_in(pool, (data + range.offset) as usize, range.bytes, &source, done);
                done += u64::from(range.bytes);
            }
        });
    }

    /// Copies `length` bytes of what is committed, from the `skip`th on.
    fn copy_in(&self, pool: &SharedMemory, to: usize, length: u32, source: &Source, skip: u64) {
        let bytes = length as usize;
        match *source {
            Source::Client(_, Payload::Inline { bytes: held, .. }) => pool.write(to, &held[..bytes]).expect(CHECKED),
            Source::Client(client, Payload::Arena(range)) => {
                if let Some(arena) = self.arena(client) {
                    let from = (range.offset() + skip) as usize;
                    SharedMemory::copy(&arena.memory, from, pool, to, bytes).expect(CHECKED);
                }
            }
            Source::Staged { node, at } => {
                if let (Some(staging), Some(part)) = (&self.memory.staging, self.links.staging_of(node)) {
                    SharedMemory::copy(staging, (part + at + skip) as usize, pool, to, bytes).expect(CHECKED);
                }
            }
            Source::Word(word) => pool.write(to, &word.to_le_bytes()).expect(CHECKED),
            Source::Kept(_) => unreachable!("the engine's own bytes are written by `commit`"),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "these are the fields of one action")]
    fn stage(
        &mut self,
        node: NodeId,
        step: StepId,
        at: u64,
        client: ClientId,
        from: ArenaRange,
        message: &Message,
        table: Option<KeptId>,
    ) {
        let (Some((peer, staging)), Some(arena)) = (self.links.road_to(node), self.arena(client)) else {
            return self.engine.refused(step, Failure::NodeDown);
        };
        let write = Work::Write {
            peer,
            tag: Tag::Stage(step).to_bits(),
            local: LocalRange { region: arena.region, offset: from.offset(), bytes: from.bytes.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.fabric.post(&[write]) {
            Ok(()) => {
                let tail = table.map_or(&[][..], |table| self.engine.kept(table));
                self.links.send(self.fabric.as_mut(), node, message.encode(tail));
            }
            Err(error) => self.engine.refused(step, failure_of(error.kind)),
        }
    }

    /// The bytes first, then the message that says where they are. If they cannot go out, the one who waits for them is
    /// told to try in another way.
    fn hand(&mut self, node: NodeId, hand: HandId, at: u64, from: (u64, u32), message: &Message) {
        let Some((peer, staging)) = self.links.road_to(node) else { return self.engine.handed(hand) };
        let write = Work::Write {
            peer,
            tag: Tag::Hand(hand).to_bits(),
            local: LocalRange { region: self.pool_region, offset: from.0, bytes: from.1.into() },
            remote: RemoteRange { key: staging.key, address: staging.base + at },
        };
        match self.fabric.post(&[write]) {
            Ok(()) => self.links.send(self.fabric.as_mut(), node, message.encode(&[])),
            Err(_) => self.engine.not_handed(node, hand, message),
        }
    }

    fn send(&mut self, node: NodeId, message: &Message, tail: Tail) {
        let mut bytes = [0; Message::PUT_BYTES_MAX];
        let length = match tail {
            Tail::None => 0,
            Tail::Client(_, Payload::Inline { bytes: held, length }) => {
                bytes[..held.len()].copy_from_slice(&held);
                usize::from(length)
            }
            Tail::Client(client, Payload::Arena(range)) => {
                let length = range.bytes as usize;
                let Some(arena) = self.arena(client) else { return };
                arena.memory.read(range.offset() as usize, &mut bytes[..length]).expect(CHECKED);
                length
            }
            Tail::Kept(kept) => {
                let kept = self.engine.kept(kept);
                bytes[..kept.len()].copy_from_slice(kept);
                kept.len()
            }
            Tail::Pool(at, parts) => {
                let mut length = 0;
                for range in &self.engine.ranges(&parts) {
                    let part = &mut bytes[length..length + range.bytes as usize];
                    self.memory.pool.read((at + range.offset) as usize, part).expect(CHECKED);
                    length += part.len();
                }
                length
            }
        };
        self.links.send(self.fabric.as_mut(), node, message.encode(&bytes[..length]));
    }

    fn introduce(&mut self, node: NodeId, message: Message, at: u64, bytes: u64) {
        let Message::Found { step, facts, .. } = message else { return };
        let window = self.links.window(self.fabric.as_mut(), node, self.pool_region, at, bytes);
        let message = match window {
            Some(window) => Message::Found { step, facts, window },
            None => Message::Ended {
                step,
                // The segment may have been made for this very message.
                outcome: ddss_core::Outcome::Indeterminate(Failure::Busy),
                version: Default::default(),
                timestamp: Default::default(),
                word: 0,
            },
        };
        self.links.send(self.fabric.as_mut(), node, message.encode(&[]));
    }

    fn reply(&mut self, lane: LaneId, mut completion: Completion, data: Option<(u64, u8)>) {
        if let Some((at, bytes)) = data {
            self.memory.pool.read(at as usize, &mut completion.data[..usize::from(bytes)]).expect(CHECKED);
        }
        self.replies.push((lane, completion.encode()));
    }
}

/// What a client is told when the fabric took nothing.
pub(crate) fn failure_of(kind: PostErrorKind) -> Failure {
    match kind {
        PostErrorKind::Busy => Failure::Busy,
        PostErrorKind::UnknownPeer | PostErrorKind::NotConnected => Failure::NodeDown,
        _ => Failure::OutOfRange,
    }
}
