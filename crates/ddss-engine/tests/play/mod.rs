//! Two engines with arbitrary input between them. Clients ask for anything and lie in their requests, messages change
//! on their way, reads return anything, connections and clients come and go, and time jumps.
//!
//! A daemon executes actions without a second check: it copies where the engine says. So each action is checked against
//! the memory that the engine has allocated: no byte outside of it, no memory given away twice.

mod input;
mod maps;

use ddss_core::limits::{ARENA_SLOT_BYTES, PAGE_BYTES, STAGING_BYTES, TEXT_BYTES_MAX};
use ddss_core::{
    ArenaRange, AtomicOp, BucketLayout, ChannelId, ClientId, Completion, Entry, Failure, Header, LockRequest,
    LockToken, Message, NodeId, Operation, Outcome, Part, Payload, PermissionUpdate, Placement, Principal,
    PutConditions, ReadOptions, RemoteWindow, Request, RequestId, SegmentId, Shard, Spec, TableLayout, Timestamp,
    UploadId, Version, offset_of,
};
use ddss_engine::{
    Action, CommitSource, CopyOut, Engine, EngineConfig, Fetch, FetchTarget, MessageBody, Now, PeerAction, RangeSet,
    Reply, SegmentCommit, StepId,
};
use input::Input;

const POOL_BYTES: u64 = 1 << 18;
const ARENA_BYTES: u64 = 8 * ARENA_SLOT_BYTES as u64;
const CLIENTS: u32 = 3;
/// Maximum number of steps of an input.
const STEPS_MAX: usize = 400;
/// Maximum number of actions of one step in both engines; more means an endless exchange.
const ACTIONS_MAX: usize = 10_000;

/// One engine, and the memory that it has allocated.
struct Side {
    engine: Engine,
    generations: [u32; CLIENTS as usize],
    /// Memory of its segments.
    live: Vec<(u64, u64)>,
    /// Memory that holds bytes read from another node.
    copies: Vec<(u64, u64)>,
    /// Reads in flight, and their local destination.
    reads: Vec<Reading>,
    /// Large commits in progress.
    commits: Vec<SegmentId>,
}

/// Step, segment, and local destination if it is this node's own memory.
type Reading = (StepId, SegmentId, Option<(u64, u64)>);

fn overlap((at, bytes): (u64, u64), (from, length): (u64, u64)) -> bool {
    at < from + length && from < at + bytes
}

impl Side {
    fn new(node: u16) -> Self {
        let (shard, peers) = (Shard::ONLY, vec![NodeId(1), NodeId(2)]);
        let (node, first_generation, reads_overlap) = (NodeId(node), 9, node == 1);
        let config = EngineConfig { node, shard, pool_bytes: POOL_BYTES, peers, first_generation, reads_overlap };
        let (engine, generations) = (Engine::new(&config), [0; 3]);
        let mut side =
            Self { engine, generations, live: Vec::new(), copies: Vec::new(), reads: Vec::new(), commits: Vec::new() };
        side.engine.set_commit_at_once_max(512);
        (0..CLIENTS).for_each(|index| side.attach(index));
        side
    }

    fn client(&self, index: u32) -> ClientId {
        ClientId { index, generation: self.generations[index as usize] }
    }

    fn attach(&mut self, index: u32) {
        self.generations[index as usize] += 1;
        let principal = Principal { uid: 1000 + index, gid: 1000 + index / 2 };
        self.engine.attach(self.client(index), principal, ARENA_BYTES);
    }

    fn overlaps(&self, at: u64, bytes: u64) -> bool {
        self.live.iter().any(|&live| overlap(live, (at, bytes)))
    }

    /// Records memory of a segment.
    fn give(&mut self, at: u64, bytes: u64) {
        assert!(!self.overlaps(at, bytes), "{bytes} bytes at {at} were given away twice");
        let into = self.reads.iter().filter_map(|&(.., into)| into);
        assert!(!into.into_iter().any(|into| overlap(into, (at, bytes))), "a read is on its way to {at}");
        self.in_pool(at, bytes);
        self.copies.retain(|&copy| !overlap(copy, (at, bytes)));
        self.live.push((at, bytes));
    }

    /// Returns true if all of it belongs to one segment.
    fn owns(&self, at: u64, bytes: u64) -> bool {
        let end = at.checked_add(bytes).expect("no place is that far");
        self.live.iter().any(|&(from, length)| at >= from && end <= from + length)
    }

    /// Returns true if all of it belongs to one segment or was read from another node's.
    fn may_show(&self, at: u64, bytes: u64) -> bool {
        let in_copy = |&(from, length): &(u64, u64)| at >= from && at + bytes <= from + length;
        self.owns(at, bytes) || self.copies.iter().any(in_copy)
    }

    fn owns_parts(&self, at: u64, parts: &RangeSet) {
        for range in &self.engine.ranges(parts) {
            let (at, bytes) = (at + range.offset, u64::from(range.bytes));
            assert!(self.may_show(at, bytes), "{range:?}, at {at}, is no segment's");
        }
    }

    fn in_pool(&self, at: u64, bytes: u64) {
        assert!(offset_of(at).checked_add(bytes).is_some_and(|end| end <= POOL_BYTES), "{bytes} bytes at {at}");
    }

    fn source(&mut self, source: CommitSource, bytes: u32) {
        match source {
            CommitSource::Client(_, Payload::Arena(range)) => assert!(range.fits(ARENA_BYTES) && range.bytes >= bytes),
            CommitSource::Client(_, Payload::Inline { length, .. }) => assert!(u32::from(length) >= bytes),
            CommitSource::Staged { at, .. } => assert!(at + u64::from(bytes) <= STAGING_BYTES as u64),
            CommitSource::Buffer(kept) => {
                self.engine.consume_buffer(kept, |kept| assert!(kept.len() >= bytes as usize))
            }
            CommitSource::Pool(at) => self.in_pool(at, bytes.into()),
            CommitSource::Word(_) => assert_eq!(bytes, 8),
        }
    }

    fn tail(&self, tail: &MessageBody) -> Vec<u8> {
        match tail {
            MessageBody::None => Vec::new(),
            MessageBody::Client(_, payload) => vec![7; payload.length() as usize],
            MessageBody::Buffer(kept) => self.engine.buffer(*kept).to_vec(),
            MessageBody::Pool(at, parts) => {
                self.owns_parts(*at, parts);
                vec![8; parts.bytes() as usize]
            }
        }
    }
}

/// Two engines and the connection between them.
struct World<'a> {
    input: Input<'a>,
    sides: [Side; 2],
    up: bool,
    now: Now,
    segments: Vec<SegmentId>,
    words: Vec<u64>,
    requests: u64,
    actions: usize,
}

/// Executes the input.
pub(crate) fn play(data: &[u8]) {
    let mut world = World {
        input: Input(data),
        sides: [Side::new(1), Side::new(2)],
        up: false,
        now: Now { steady_us: 1000, wall_us: 1000 },
        segments: Vec::new(),
        words: Vec::new(),
        requests: 0,
        actions: 0,
    };
    world.connect();
    for _ in 0..STEPS_MAX {
        if world.input.0.is_empty() {
            break;
        }
        world.actions = 0;
        world.step();
    }
    // Every input ends with a disconnect.
    world.disconnect();
    world.now.steady_us += u64::from(u32::MAX);
    for side in 0..2 {
        while let Some((step, ..)) = world.sides[side].reads.pop() {
            world.sides[side].engine.on_fetched(world.now, step, Err(Failure::NodeDown));
            world.perform();
        }
        while !world.sides[side].commits.is_empty() {
            world.end_commit(side);
            world.perform();
        }
        world.sides[side].engine.tick(world.now);
        world.perform();
        assert_eq!(world.sides[side].engine.uploads(), (0, 0), "the parts of a large put are never freed");
        assert_eq!(world.sides[side].engine.pending(), 0, "an operation never ends");
    }
}

impl World<'_> {
    fn connect(&mut self) {
        if !self.up {
            self.up = true;
            self.sides[0].engine.on_peer_up(self.now, NodeId(2), Timestamp::default());
            self.sides[1].engine.on_peer_up(self.now, NodeId(1), Timestamp::default());
            self.perform();
        }
    }

    fn disconnect(&mut self) {
        if self.up {
            self.up = false;
            self.sides[0].engine.on_peer_down(self.now, NodeId(2));
            self.sides[1].engine.on_peer_down(self.now, NodeId(1));
            self.perform();
        }
    }

    fn step(&mut self) {
        let side = usize::from(self.input.one_in(3));
        match self.input.byte() % 32 {
            0 => {
                self.now.steady_us += self.input.word() % 10_000_000;
                self.now.wall_us = self.now.steady_us;
                self.sides[side].engine.tick(self.now);
            }
            1 => self.disconnect(),
            2 => self.connect(),
            3 => {
                let index = u32::from(self.input.byte()) % CLIENTS;
                let gone = self.sides[side].client(index);
                self.sides[side].engine.detach(self.now, gone);
                self.perform();
                self.sides[side].attach(index);
            }
            4..=8 => self.end_read(side),
            9 => self.end_commit(side),
            _ => self.ask(side),
        }
        self.perform();
    }

    /// Ends a large commit.
    fn end_commit(&mut self, side: usize) {
        if let Some(segment) = self.sides[side].commits.pop() {
            let made = !self.input.one_in(4);
            self.sides[side].engine.on_large_committed(self.now, segment, made);
        }
    }

    /// Ends a read in flight with arbitrary bytes.
    fn end_read(&mut self, side: usize) {
        let count = self.sides[side].reads.len();
        if count == 0 {
            return;
        }
        let (step, segment, _) = self.sides[side].reads.swap_remove(usize::from(self.input.byte()) % count);
        let state = self.input.word();
        let result = match self.input.byte() % 4 {
            0 => Err(Failure::NodeDown),
            1 => {
                let (timestamp, segment, bytes, locked) =
                    (self.input.word(), self.input.word(), self.input.word(), self.input.word());
                Ok((Header { state, timestamp, segment, bytes, locked }, self.input.word()))
            }
            _ => Ok((Header { state: state & !1, segment: segment.to_bits(), ..Header::default() }, state & !1)),
        };
        self.sides[side].engine.on_fetched(self.now, step, result);
    }

    /// Sends a request of a client, possibly a malformed one.
    fn ask(&mut self, side: usize) {
        let client = self.sides[side].client(u32::from(self.input.byte()) % CLIENTS);
        let (operation, text) = self.operation();
        self.requests += 1;
        let timeout_us = 1 + self.input.word() as u32 % 5_000_000;
        let request = Request { timeout_us, ..Request::new(RequestId(self.requests), operation) };
        let mut entry: Entry = request.encode();
        for _ in 0..self.lies() {
            entry[usize::from(self.input.byte()) % entry.len()] ^= self.input.word() << (self.input.byte() % 64);
        }
        let channel = ChannelId { client, index: 0 };
        let engine = &mut self.sides[side].engine;
        engine.set_slow_path(self.requests.is_multiple_of(2));
        // Like a daemon, tries the inline path first.
        if let Some(commit) = engine.inline_put(self.now, channel, &entry) {
            return commit.actions(channel, &entry).into_iter().for_each(|action| self.act(side, action));
        }
        match Request::decode(&entry) {
            Ok(request) => engine.request(self.now, channel, &request, &text),
            Err(refused) => engine.refuse(channel, refused.id, refused.failure),
        }
    }

    /// Number of corruptions: nearly always none.
    fn lies(&mut self) -> u8 {
        self.input.byte().saturating_sub(235) / 8
    }

    fn text(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        for _ in 0..self.lies() {
            let at = usize::from(self.input.byte()) % text.len().max(1);
            if let Some(byte) = text.get_mut(at) {
                *byte ^= self.input.byte();
            }
        }
        text.truncate(TEXT_BYTES_MAX);
        text
    }

    fn operation(&mut self) -> (Operation, Vec<u8>) {
        let segment = self.input.of(&self.segments.clone()).unwrap_or(SegmentId::from_bits(0));
        let token = self.input.of(&self.words.clone()).map(LockToken);
        let (offset, slot) = (self.input.word(), u32::from(self.input.byte() % 8));
        let range = ArenaRange { slot, bytes: self.input.word() as u32 % 8192 };
        let version = self.input.one_in(4).then(|| Version(self.input.word()));
        let requested_model = self.input.one_in(4).then(|| self.input.model());
        let (options, conditions) = (
            ReadOptions { requested_model, version },
            PutConditions { version, token: token.filter(|_| offset % 3 == 0), requested_model, entry: None },
        );
        let name = vec![b'a' + self.input.byte() % 6];
        let text = |text: &[u8]| ArenaRange { slot, bytes: text.len() as u32 };
        let ranges = 1 + self.input.byte() % 3;
        let operation = match self.input.byte() % 24 {
            0..=1 => {
                let placement = Placement::Node(NodeId(1 + u16::from(self.input.byte() % 3)));
                let (model, history) = (self.input.model(), (self.input.byte() % 4).into());
                let word = self.input.word();
                let plain = Spec { history, ..Spec::new(8 + word % 40_000) };
                let is_table = word.is_multiple_of(3) && plain.history_len() == 0;
                let size = if is_table { maps::random_table(word) } else { plain };
                let spec = Spec { placement, model, mode: 0o664, ..size };
                let text_of = self.text([&spec.encode()[..], &name].concat());
                return (Operation::Allocate { spec_and_name: text(&text_of) }, text_of);
            }
            2 => {
                let name = self.text(name);
                return (Operation::Open { name: text(&name) }, name);
            }
            3 => Operation::Release { segment },
            4..=5 => Operation::Get { segment, offset, into: range, inline: range.bytes <= 32, options },
            6..=7 if offset.is_multiple_of(3) => maps::entry_put(segment, offset, range, requested_model),
            6..=7 => Operation::Put { segment, offset, from: Payload::Arena(range), conditions },
            8 => {
                let from = Payload::inline(&[5; 16][..(offset % 17) as usize]).expect("so many fit");
                Operation::Put { segment, offset, from, conditions: PutConditions::default() }
            }
            which @ 9..=10 => {
                let table: Vec<u8> = (0..ranges)
                    .flat_map(|_| {
                        let (offset, bytes) = (self.input.word(), self.input.word() as u32 % 5000);
                        [&offset.to_le_bytes()[..], &bytes.to_le_bytes(), &[0; 4]].concat()
                    })
                    .collect();
                let table = self.text(table);
                let list = ArenaRange { slot: 0, bytes: ARENA_BYTES as u32 };
                let get = Operation::GetMany { segment, list, ranges, options };
                let put = Operation::PutMany { segment, list, ranges, conditions };
                return (if which == 9 { get } else { put }, table);
            }
            11 => Operation::Atomic { segment, offset, change: AtomicOp::Add(3), token: conditions.token },
            12 => Operation::Await { segment, offset, above: Version(self.input.word()) },
            13 => {
                let (lease_us, shared, no_wait) = (self.input.word() as u32 % 1_000_000, ranges == 1, ranges == 2);
                let row_offset = offset.is_multiple_of(3).then_some(offset);
                Operation::Lock { segment, lock_request: LockRequest { shared, no_wait, lease_us, row_offset } }
            }
            14 if ranges == 1 => {
                let lease_us = 1 + self.input.word() as u32 % 1_000_000;
                Operation::Renew { segment, token: token.unwrap_or_default(), lease_us }
            }
            14 => Operation::Unlock { segment, token: token.unwrap_or_default() },
            15 => Operation::Stat { segment, page: range },
            16 => {
                let owner = (ranges == 1).then_some(Principal { uid: 1001, gid: 1000 });
                Operation::Permit {
                    segment,
                    update: PermissionUpdate { mode: Some(self.input.word() as u16 & 0o777), owner },
                }
            }
            17 => Operation::Break { segment },
            18..=19 => {
                let total = 1 + self.input.word() as u32 % 9000;
                let upload = UploadId(self.upload(token));
                let from = ArenaRange { bytes: 1 + range.bytes % total, ..range };
                Operation::UploadPart { segment, part: Part { upload, at: offset as u32 % 5000, total }, from }
            }
            20 => Operation::CommitUpload { segment, offset, upload: UploadId(self.upload(token)), conditions },
            21 => Operation::DropUpload { segment, upload: UploadId(self.upload(token)) },
            22 => Operation::Sweep { segment, first: offset % 5, buckets: self.input.word() >> 3 },
            _ => Operation::Cancel { segment, request: RequestId(self.requests.saturating_sub(offset % 16)) },
        };
        (operation, Vec::new())
    }

    /// Returns the number of an upload: mostly none or one of the first.
    fn upload(&mut self, token: Option<LockToken>) -> u32 {
        match self.input.byte() % 4 {
            0 => 0,
            1 => token.map_or(1, |token| token.0 as u32),
            _ => u32::from(self.input.byte() % 8),
        }
    }

    /// Executes the actions of both engines.
    fn perform(&mut self) {
        loop {
            let Some((side, action)) = (0..2).find_map(|side| Some((side, self.sides[side].engine.next_action()?)))
            else {
                return;
            };
            self.actions += 1;
            assert!(self.actions < ACTIONS_MAX, "the engines do not come to rest: {action:?}");
            self.act(side, action);
        }
    }

    fn act(&mut self, side: usize, action: Action) {
        let now = self.now;
        let here = &mut self.sides[side];
        match action {
            Action::Format { record, bytes, .. } => {
                here.give(record.at, bytes);
                self.segments.push(record.segment);
                let made = !self.input.one_in(20);
                self.sides[side].engine.on_formatted(now, record.segment, made);
            }
            Action::Move { record, from, bytes } => {
                assert!(here.owns(from, bytes), "{record:?} was not there");
                here.give(record.at, bytes);
                here.engine.on_moved(now, record.segment, true);
            }
            Action::ZeroFill { at, bytes } => {
                here.live.retain(|&(from, length)| from < at || from + length > at + bytes);
                assert!(!here.overlaps(at, bytes), "memory was taken from a segment");
                let pages: Vec<u64> = here.engine.on_cleared(at, bytes).collect();
                assert!(pages.iter().all(|&page| !here.overlaps(page, PAGE_BYTES as u64)), "a page has a segment");
            }
            Action::ReadWord { at } => {
                assert!(here.owns(at, 8));
                let word = self.input.word();
                self.sides[side].engine.on_word_read(word);
            }
            Action::ReadRecord { place, word } => {
                assert!(here.owns(place.header, TableLayout::RECORD_HEADER_BYTES));
                assert!(word.is_none_or(|offset| here.owns(place.data + offset, 8)));
                let (state, word) = (self.input.word(), self.input.word());
                // A record's version never reaches the end of its range.
                self.sides[side].engine.on_record_read(state >> 1, Timestamp(word), word);
            }
            Action::FindEntry { place, offset, description, change, source } => {
                let seed = BucketLayout::SEED_AT + BucketLayout::SEED_BYTES;
                assert!(here.owns(description, seed as u64));
                assert!(here.owns(place.header, TableLayout::RECORD_HEADER_BYTES));
                assert!(here.owns(place.data + offset, maps::bucket_bytes(change)), "{change:?} at {offset}");
                if let CommitSource::Buffer(kept) = source {
                    assert!(here.engine.buffer(kept).len() >= change.head_bytes() as usize);
                }
                let (state, word) = (self.input.word(), self.input.word());
                self.sides[side].engine.on_entry_found(
                    now,
                    state >> 1,
                    Timestamp(word),
                    maps::random_search(change, word),
                );
            }
            Action::FindGarbage { segment: id, layout, rows, first, end, .. } => {
                let found = maps::random_garbage((layout, rows), (first, end), self.input.word());
                self.sides[side].engine.on_garbage_found(now, id, found.as_ref());
            }
            Action::CommitRecord { place, parts, source, .. } => {
                assert!(here.owns(place.header, TableLayout::RECORD_HEADER_BYTES));
                here.owns_parts(place.data, &parts);
                here.source(source, parts.bytes());
            }
            Action::SetLockHolder { at, .. }
            | Action::EraseHeader { at }
            | Action::Peer(PeerAction::RevokeWindow { at })
            | Action::WriteVersion { at, .. } => {
                assert!(here.owns(at, Header::DATA_OFFSET));
            }
            Action::CopyOut(CopyOut { at, parts, into, .. }) => {
                here.owns_parts(at, &parts);
                assert!(into.fits(ARENA_BYTES) && into.bytes >= parts.bytes(), "{into:?} for {parts:?}");
            }
            Action::Commit(SegmentCommit { at, parts, source, .. }) => {
                here.owns_parts(at + Header::DATA_OFFSET, &parts);
                here.source(source, parts.bytes());
            }
            Action::CommitLarge { segment, at, offset, bytes, from, .. } => {
                assert!(here.owns(at + Header::DATA_OFFSET + offset, bytes.into()), "written over another segment");
                here.in_pool(from, bytes.into());
                here.commits.push(segment);
            }
            Action::Fill { at, source, parts } => {
                here.owns_parts(at, &parts);
                here.source(source, parts.bytes());
            }
            Action::SaveVersion { at, to, header } => {
                let bytes = Header::DATA_OFFSET + header.bytes;
                assert!(here.owns(at, bytes) && here.owns(to, bytes) && at.abs_diff(to) >= bytes);
            }
            Action::CopyAside { source, bytes, to } => {
                here.in_pool(to, bytes.into());
                assert!(!here.overlaps(to, bytes.into()), "put aside over a segment");
                here.source(source, bytes);
            }
            Action::Snapshot { at, parts, to } => {
                here.owns_parts(at, &parts);
                here.in_pool(to, parts.bytes().into());
                assert!(!here.overlaps(to, parts.bytes().into()), "put aside over a segment");
            }
            Action::Unstage { at, into, .. } => {
                assert!(at + u64::from(into.bytes) <= STAGING_BYTES as u64 && into.fits(ARENA_BYTES));
            }
            Action::WriteOut { buffer: kept, into, .. } => {
                assert!(into.fits(ARENA_BYTES));
                assert!(matches!(into.bytes, bytes if bytes as usize >= here.engine.buffer(kept).len()));
            }
            Action::Peer(PeerAction::FetchRecord { step, window, parts, place, target, .. }) => {
                assert!(place.header + TableLayout::RECORD_HEADER_BYTES <= window.bytes);
                for range in &here.engine.ranges(&parts) {
                    let end = place.data + range.offset + u64::from(range.bytes);
                    assert!(end <= window.bytes, "{range:?} of {place:?} is not in {window:?}");
                }
                let segment = self.input.of(&self.segments.clone()).unwrap_or(SegmentId::from_bits(0));
                assert!(
                    matches!(target, FetchTarget::Arena(_, range) if range.fits(ARENA_BYTES) && range.bytes >= parts.bytes()),
                    "a table is not cached"
                );
                self.sides[side].reads.push((step, segment, None));
            }
            Action::Peer(PeerAction::Fetch(Fetch { step, window, parts, line, target, .. })) => {
                for range in &here.engine.ranges(&parts) {
                    let end = line + Header::DATA_OFFSET + range.offset + u64::from(range.bytes);
                    assert!(end <= window.bytes, "{range:?} behind {line} is not in {window:?}");
                }
                let segment = self.input.of(&self.segments.clone()).unwrap_or(SegmentId::from_bits(0));
                let into = match target {
                    FetchTarget::Arena(_, range) => {
                        assert!(range.fits(ARENA_BYTES) && range.bytes >= parts.bytes());
                        None
                    }
                    FetchTarget::Pool(at) => Some((at, u64::from(parts.bytes()))),
                };
                let here = &mut self.sides[side];
                if let Some((at, bytes)) = into {
                    here.in_pool(at, bytes);
                    assert!(!here.overlaps(at, bytes), "read over a segment");
                    here.copies.push((at, bytes));
                }
                here.reads.push((step, segment, into));
            }
            Action::Reply(Reply { channel, completion, data }) => self.replied(side, channel, &completion, data),
            Action::Peer(PeerAction::Disconnect { .. }) => self.disconnect(),
            other => self.send(side, other),
        }
    }

    fn replied(&mut self, side: usize, channel: ChannelId, completion: &Completion, data: Option<(u64, u8)>) {
        let here = &self.sides[side];
        assert_eq!(here.client(channel.client.index), channel.client, "told to somebody else");
        if let Some((at, bytes)) = data {
            assert!(here.may_show(at, bytes.into()) && usize::from(bytes) <= completion.data.len());
        }
        if completion.outcome == Outcome::Done {
            self.words.push(u64::from_le_bytes(std::array::from_fn(|index| completion.data[index])));
        }
    }

    /// Delivers an action to the other engine.
    fn send(&mut self, side: usize, action: Action) {
        let here = &mut self.sides[side];
        let table = |table: Option<_>| table.map(|table| here.engine.buffer(table).to_vec()).unwrap_or_default();
        let (message, tail) = match action {
            Action::Peer(PeerAction::Send { message, tail, .. }) => (message, here.tail(&tail)),
            Action::Peer(PeerAction::Stage { at, from, message, table: ranges, .. }) => {
                assert!(from.fits(ARENA_BYTES) && at + u64::from(from.bytes) <= STAGING_BYTES as u64);
                (message, table(ranges))
            }
            Action::Peer(PeerAction::SendStaged { at, from, bytes, message, table: ranges, served_get, .. }) => {
                assert!(at + u64::from(bytes) <= STAGING_BYTES as u64);
                here.in_pool(from, bytes.into());
                let tail = table(ranges);
                here.engine.on_served_get_sent(served_get);
                (message, tail)
            }
            Action::Peer(PeerAction::GrantWindow { message: Message::Found { step, info, .. }, at, bytes, .. }) => {
                assert!(here.owns(at, bytes), "others may look at what is no segment's");
                let window = RemoteWindow { key: 1, base: at, bytes };
                (Message::Found { step, info, window }, Vec::new())
            }
            _ => return,
        };
        if !self.up {
            return;
        }
        let mut bytes = message.encode(self.sides[side].engine.clock(self.now), &tail).to_vec();
        for _ in 0..self.lies() {
            let at = usize::from(self.input.byte()) % bytes.len();
            bytes[at] ^= self.input.byte();
        }
        match Message::decode(&bytes) {
            Ok((message, clock, tail)) => {
                self.sides[1 - side].engine.on_message(self.now, NodeId(side as u16 + 1), clock, &message, tail);
            }
            Err(_) => self.disconnect(),
        }
    }
}
