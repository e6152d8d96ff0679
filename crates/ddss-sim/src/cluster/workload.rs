//! Workload of the simulated clients: chooses the calls and encodes them.

use crate::cluster::network::Event;
use crate::cluster::node::{Node, bytes_of};
use crate::cluster::simulator::Simulator;
use crate::load::calls::{Content, HeldLock, Kind, LEASE_US, PendingCall, SeenEntry, Target, Upload};
use crate::oracle::permission_oracle::{MODE_OPEN, MODES, user_of};
use crate::oracle::{EntryContent, History, MapChecker};
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{
    ANY_ROW, ArenaRange, AtomicOp, BucketLayout, EntryChange, EntryChangeKind, ListQuery, Listing, LockRequest, Model,
    Name, NodeId, Operation, Part, Payload, PermissionUpdate, Placement, PutConditions, Range, Ranges, ReadOptions,
    Request, RequestId, RowList, SegmentId, SlotWord, Spec, UploadId, Version,
};

/// Placeholder target of calls without a segment.
const NOTHING: Target = Target {
    id: SegmentId::from_bits(0),
    row: None,
    content: Content::Values,
    length: 0,
    model: Model::Null,
    history_len: 0,
    replicated: false,
};
/// Keys of the maps: more than the slots of all buckets, so that some are full.
const KEYS: u64 = 60;

impl Simulator {
    /// Maximum number of temporary segments.
    pub(crate) const TEMPORARY_MAX: usize = 3;
    /// Size of the temporary tables; no plain temporary segment has it.
    const TEMP_TABLE_WORDS: u64 = 20;

    pub(crate) fn ask(&mut self, node: usize, index: usize) {
        let waits = &self.nodes[node].clients[index];
        // A killed client leaves its next event in the queue; its successor has its own.
        if self.report.operations >= self.plan.operations as u64 || waits.asked.is_some() || waits.lingering.is_some() {
            return;
        }
        let (kind, target) = self.choose(node, index);
        let timeout_us = match kind {
            // A watcher without a notification makes other calls.
            Kind::AwaitAnyRow(_) => 60 + self.random.below(20_000) as u32,
            _ if self.random.one_in(40) => 60,
            _ => 200_000,
        };
        self.ask_for(node, index, kind, target, timeout_us);
        self.inject_fault(node, index);
    }

    /// Chooses a call: under a lock, the next call of its critical section.
    fn choose(&mut self, node: usize, index: usize) -> (Kind, Target) {
        let client = &self.nodes[node].clients[index];
        let (seen, entry) = (client.seen, client.entry);
        let watch = client.watch.filter(|watch| !self.is_gone(watch.target.id));
        if let Some(held) = client.held {
            // Renewals are more frequent than the calls of a critical section, so that some keep a lock for long.
            let kind = if self.random.one_in(3) { Kind::Renew } else { self.choose_held(&held) };
            return (kind, held.target);
        }
        if let Some(upload) = client.upload {
            let condition = self.random.one_in(3).then(|| seen.filter(|&(key, _)| key == upload.target.key()));
            let version = condition.flatten().map(|(_, version)| version);
            let is_complete = upload.next_part() == 0;
            return (if is_complete { Kind::CommitUpload(version) } else { Kind::UploadPart }, upload.target);
        }
        if self.random.one_in(12) {
            return self.choose_name();
        }
        if let Some(entry) = entry.filter(|entry| !self.is_gone(entry.target.id))
            && self.random.one_in(3)
        {
            return (Kind::ChangeEntry(EntryChangeKind::Replace, entry.key), entry.target);
        }
        if let Some(watch) = watch
            && self.random.one_in(6)
        {
            return (Kind::AwaitAnyRow(watch.number), watch.target);
        }
        let target = match self.random.below(24) {
            0..=1 => self.segments.targets[0],
            2..=3 => match self.segments.temporary[self.random.below(Self::TEMPORARY_MAX as u64) as usize] {
                Some(target) => target,
                None => self.segments.targets[1],
            },
            _ => self.segments.targets[1 + self.random.below(self.segments.targets.len() as u64 - 1) as usize],
        };
        let first_row = u64::from(target.content == Content::Bucket);
        let target = match target.row {
            Some(_) => target.with_row(first_row + self.random.below(Target::ROWS - first_row)),
            None => target,
        };
        if target.row.is_some() && watch.is_none() && self.random.one_in(8) {
            return (Kind::AwaitAnyRow(0), target);
        }
        let seen = seen.filter(|&(key, _)| key == target.key()).map(|(_, version)| version);
        match target.content {
            Content::Counter if target.row.is_some() && self.random.one_in(6) => {
                return (Kind::Await(seen.unwrap_or(0)), target);
            }
            Content::Counter if self.random.one_in(6) => return (self.choose_lock(false, &target), target),
            Content::Counter => return (Kind::Add, target),
            Content::Bucket => return (self.choose_entry_call(&target, seen), target),
            Content::Values => {}
        }
        let near = |random: &mut crate::Random, back: u64| {
            seen.map(|version| version.saturating_sub(random.below(back + 1))).unwrap_or_else(|| random.below(9))
        };
        let closed = self
            .checks
            .permissions
            .now(target.id)
            .is_some_and(|now| now.mode != MODE_OPEN && now.owner == user_of(index));
        let kind = match self.random.below(40) {
            _ if closed && self.random.one_in(6) => Kind::Permit(MODE_OPEN),
            0..=2 => {
                let shared = self.random.one_in(4);
                self.choose_lock(shared, &target)
            }
            3..=9 if target.model == Model::Version => Kind::PutIf(seen.unwrap_or(0)),
            3..=9 => Kind::Put,
            10..=11 => Kind::PutMany,
            12..=13 => Kind::PutIf(near(&mut self.random, 0)),
            14..=15 => Kind::GetMany,
            16..=18 => Kind::GetAt(near(&mut self.random, u64::from(target.history_len) + 1)),
            19..=21 => Kind::GetAsking(self.random_model()),
            _ if Self::is_large(&target) && self.random.one_in(8) => Kind::UploadPart,
            22 => Kind::Await(near(&mut self.random, 2)),
            23 => Kind::Stat,
            24 if self.plan.changes_permissions => Kind::Permit(MODES[self.random.below(MODES.len() as u64) as usize]),
            _ => Kind::Get,
        };
        (kind, target)
    }

    /// Returns true if a put of the whole segment may be sent in parts.
    fn is_large(target: &Target) -> bool {
        let is_long = target.length > Node::COMMIT_AT_ONCE_MAX as usize;
        is_long && target.row.is_none() && target.history_len == 0
    }

    /// Chooses a call of a bucket of a map.
    fn choose_entry_call(&mut self, target: &Target, seen: Option<u64>) -> Kind {
        let (buckets, row) = (Target::ROWS - 1, target.row.unwrap_or(1));
        let key = Target::key_of_bucket(row - 1, self.random.below(KEYS / buckets));
        match self.random.below(24) {
            0 => {
                let shared = self.random.one_in(4);
                self.choose_lock(shared, target)
            }
            1 => Kind::Await(seen.unwrap_or(0)),
            2..=3 if self.requests.is_multiple_of(2) => Kind::Sweep,
            2..=6 => Kind::GetBucket,
            7..=12 => Kind::ChangeEntry(EntryChangeKind::Write, key),
            13..=15 => Kind::ChangeEntry(EntryChangeKind::Insert, key),
            16..=19 => Kind::ChangeEntry(EntryChangeKind::Touch, key),
            _ => Kind::ChangeEntry(EntryChangeKind::Remove, key),
        }
    }

    /// Chooses the lock of the target: in a table mostly that of one row.
    fn choose_lock(&self, shared: bool, target: &Target) -> Kind {
        // Without a random number of its own, so that the runs of plain segments stay as they were.
        Kind::Lock { shared, of_row: target.row.is_some() && !self.requests.is_multiple_of(4) }
    }

    fn choose_held(&mut self, held: &HeldLock) -> Kind {
        match held {
            HeldLock { over: true, .. } => Kind::Unlock,
            HeldLock { target: Target { content: Content::Counter, .. }, .. } => Kind::AddHeld,
            HeldLock { target: Target { content: Content::Bucket, .. }, .. } => Kind::Unlock,
            HeldLock { version: None, .. } => Kind::GetHeld,
            HeldLock { shared: true, .. } => Kind::Unlock,
            _ => Kind::PutHeld,
        }
    }

    fn choose_name(&mut self) -> (Kind, Target) {
        let temp = self.random.below(Self::TEMPORARY_MAX as u64) as usize;
        match self.random.below(7) {
            0 => match self.segments.temporary[temp] {
                Some(target) => (Kind::Release(temp), target),
                None => (Kind::Make(temp), NOTHING),
            },
            1..=2 if self.segments.temporary[temp].is_none() => (Kind::Make(temp), NOTHING),
            1..=3 => (Kind::Open(temp), NOTHING),
            4 => (Kind::List(1 + self.random.below(self.plan.nodes as u64) as u16), NOTHING),
            _ => match self.segments.gone.last() {
                Some(&target) => (Kind::GetGone, target),
                None => (Kind::List(1), NOTHING),
            },
        }
    }

    pub(crate) fn random_model(&mut self) -> Model {
        let micros = 1 + self.random.below(3000) as u32;
        match self.random.below(7) {
            0 => Model::Null,
            1 => Model::Read,
            2 => Model::Write,
            3 => Model::Version,
            4 => Model::Delta(self.random.below(5) as u32),
            5 => Model::Temporal(micros),
            _ => Model::Strict,
        }
    }

    /// Submits a call of a client.
    pub(crate) fn ask_for(&mut self, node: usize, index: usize, kind: Kind, target: Target, timeout_us: u32) {
        self.report.operations += 1;
        self.requests += 1;
        self.asked_us = self.now_us;
        let puts = matches!(kind, Kind::Put | Kind::PutIf(_) | Kind::PutMany | Kind::PutHeld);
        let upload = self.upload_of(node, index, kind, target);
        let mark = match kind {
            Kind::CommitUpload(_) => upload.map(|upload| upload.mark),
            _ => puts.then(|| self.next_mark()),
        };
        let (newest, pairing) = (self.newest(&target), self.pairing(target.id));
        let many = matches!(kind, Kind::PutMany | Kind::GetMany);
        let part = upload.filter(|_| kind == Kind::UploadPart);
        let expected = match kind {
            Kind::ChangeEntry(EntryChangeKind::Replace, _) => self.nodes[node].clients[index].entry.take(),
            _ => None,
        };
        let content = self.next_content(kind, expected);
        let text = self.encode_input(kind, target, content);
        let length = match (kind, part) {
            (Kind::ChangeEntry(..), _) => text.len(),
            (_, Some(upload)) => upload.next_part(),
            _ => target.length,
        };
        let range = ArenaRange { slot: u32::from(many), bytes: length as u32 };
        let held = self.nodes[node].clients[index].held;
        let heard = self.nodes[node].heard;
        let (began_us, request) = (self.now_us, self.requests);
        let client = &mut self.nodes[node].clients[index];
        client.arena[..text.len()].copy_from_slice(&text);
        if let Some(mark) = mark {
            client.arena[range.offset() as usize..][..target.length].copy_from_slice(&bytes_of(mark, target.length));
        }
        if let Some(upload) = part {
            // The value of a part begins in the middle of the value of the put.
            let value = bytes_of(upload.mark, target.length);
            client.arena[range.offset() as usize..][..length].copy_from_slice(&value[upload.done..][..length]);
        }
        let asked =
            PendingCall { kind, request, began_us, target, mark, content, expected, range, newest, heard, pairing };
        client.asked = Some(asked);
        let channel = ddss_core::ChannelId { client: client.id, index: 0 };
        let mut operation = match (kind, upload) {
            (Kind::UploadPart | Kind::CommitUpload(_), Some(upload)) => Self::upload_operation(kind, &upload, range),
            _ if asked.asks_for_rows() => {
                let (list, row) = (asked.row_list(), target.row.unwrap_or(0));
                client.arena[..RowList::NUMBER_BYTES].copy_from_slice(&row.to_le_bytes());
                let range = ArenaRange { slot: 0, bytes: list.bytes() as u32 };
                Operation::GetRows { segment: target.id, range, list, requested_model: None }
            }
            _ => self.operation((kind, target), range, held, expected, &text),
        };
        let long = self.plan.engine_path.is_long(self.report.seed, request);
        if let (Operation::Put { from, conditions, .. }, Some(mark)) = (&mut operation, mark)
            && *conditions == PutConditions::default()
            && let Some(inline) = Payload::inline(&bytes_of(mark, target.length))
        {
            // As the client library does.
            *from = inline;
        }
        // Some waits park and return their slot.
        let parks = operation.can_park() && request.is_multiple_of(2);
        let wanted = Request { timeout_us, parks, ..Request::new(RequestId(request), operation) };
        let deadline_us = self.now_us + u64::from(timeout_us);
        self.network.at(deadline_us, Event::GiveUp { node, client: index, request });
        let entry = Request::decode(&wanted.encode()).expect("a good request");
        assert_eq!(entry, wanted, "a request survives the ring");
        let now = self.now(node);
        self.nodes[node].engine.set_slow_path(long);
        if !long && self.perform_inline(node, channel, &wanted.encode()) {
            return;
        }
        self.nodes[node].engine.request(now, channel, &entry, &text);
        self.perform_request(node, !long);
    }

    /// Returns the content that the change of an entry writes. Expiries are in the far future, and different ones, or over.
    fn next_content(&mut self, kind: Kind, expected: Option<SeenEntry>) -> EntryContent {
        const FAR_MS: u64 = 1 << 40;
        match kind {
            // The clock of each node has passed the first milliseconds.
            Kind::ChangeEntry(EntryChangeKind::Touch, _) if self.requests.is_multiple_of(2) && self.now_us > 2000 => {
                (0, MapChecker::EXPIRED_MS)
            }
            Kind::ChangeEntry(EntryChangeKind::Touch, _) => (0, FAR_MS + self.next_mark()),
            // An update keeps the expiry.
            Kind::ChangeEntry(..) => (self.next_mark(), expected.map_or(0, |entry| entry.content.1)),
            _ => (0, 0),
        }
    }

    fn next_mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// Returns the large put that a call belongs to, and begins one with its first part.
    fn upload_of(&mut self, node: usize, index: usize, kind: Kind, target: Target) -> Option<Upload> {
        if kind == Kind::UploadPart && self.nodes[node].clients[index].upload.is_none() {
            let mark = self.next_mark();
            self.nodes[node].clients[index].upload = Some(Upload { target, id: UploadId(0), done: 0, mark });
        }
        self.nodes[node].clients[index].upload
    }

    fn operation(
        &mut self,
        (kind, target): (Kind, Target),
        range: ArenaRange,
        held: Option<HeldLock>,
        expected: Option<SeenEntry>,
        text: &[u8],
    ) -> Operation {
        let (segment, offset) = (target.id, target.offset());
        let token = held.map(|held| held.token);
        let short = ArenaRange { slot: 0, bytes: text.len() as u32 };
        let get = |options: ReadOptions| {
            let inline = range.bytes <= 32 && options.requested_model.is_none();
            Operation::Get { segment, offset: target.offset(), into: range, inline, options }
        };
        let put =
            |conditions: PutConditions| Operation::Put { segment, offset, from: Payload::Arena(range), conditions };
        let list = ArenaRange { slot: 0, bytes: (ARENA_SLOT_BYTES + target.length) as u32 };
        let ranges = (text.len() / Ranges::ENTRY_BYTES) as u8;
        let held_version = held.and_then(|held| held.version).filter(|_| target.model == Model::Version);
        match kind {
            Kind::Get | Kind::GetGone | Kind::GetBucket => get(ReadOptions::default()),
            Kind::GetAsking(model) => get(ReadOptions { requested_model: Some(model), version: None }),
            Kind::GetHeld => get(ReadOptions { requested_model: Some(Model::Strict), version: None }),
            Kind::GetAt(version) => get(ReadOptions { requested_model: None, version: Some(Version(version)) }),
            Kind::GetMany => Operation::GetMany { segment, list, ranges, options: ReadOptions::default() },
            Kind::Put => put(PutConditions::default()),
            Kind::PutIf(version) => put(PutConditions { version: Some(Version(version)), ..PutConditions::default() }),
            Kind::PutHeld => {
                put(PutConditions { version: held_version.map(Version), token, ..PutConditions::default() })
            }
            Kind::ChangeEntry(kind, _) => {
                let expected = expected.map_or(0, |entry| entry.digest());
                let change = EntryChange { expected, ..Self::entry_change(kind) };
                put(PutConditions { entry: Some(change), ..PutConditions::default() })
            }
            Kind::PutMany => Operation::PutMany { segment, list, ranges, conditions: PutConditions::default() },
            Kind::UploadPart | Kind::CommitUpload(_) => unreachable!("a part belongs to a large put"),
            Kind::Add => Operation::Atomic { segment, offset, change: AtomicOp::Add(1), token: None },
            Kind::AddHeld => Operation::Atomic { segment, offset, change: AtomicOp::Add(1), token },
            Kind::Lock { shared, of_row } => {
                let (lease_us, row_offset) = (LEASE_US, of_row.then_some(offset));
                Operation::Lock { segment, lock_request: LockRequest { shared, no_wait: false, lease_us, row_offset } }
            }
            Kind::Unlock => Operation::Unlock { segment, token: token.unwrap_or_default() },
            Kind::Renew => Operation::Renew { segment, token: token.unwrap_or_default(), lease_us: LEASE_US },
            Kind::Await(above) => Operation::Await { segment, offset, above: Version(above) },
            Kind::AwaitAnyRow(above) => Operation::Await { segment, offset: ANY_ROW, above: Version(above) },
            Kind::Sweep => Operation::Sweep { segment, first: 0, buckets: u64::MAX },
            Kind::Stat => Operation::Stat { segment, page: ArenaRange { slot: 0, bytes: Listing::PAGE_BYTES as u32 } },
            Kind::Permit(mode) => {
                Operation::Permit { segment, update: PermissionUpdate { mode: Some(mode), owner: None } }
            }
            Kind::List(node) => Operation::List { node: NodeId(node), text: short },
            Kind::Make(_) => Operation::Allocate { spec_and_name: short },
            Kind::Open(_) => Operation::Open { name: short },
            Kind::Release(_) => Operation::Release { segment },
        }
    }

    fn upload_operation(kind: Kind, upload: &Upload, from: ArenaRange) -> Operation {
        let &Upload { target: Target { id: segment, length, .. }, id: upload, done, .. } = upload;
        match kind {
            Kind::CommitUpload(version) => {
                let conditions = PutConditions { version: version.map(Version), ..PutConditions::default() };
                Operation::CommitUpload { segment, offset: 0, upload, conditions }
            }
            _ => {
                let part = Part { upload, at: done as u32, total: length as u32 };
                Operation::UploadPart { segment, part, from }
            }
        }
    }

    /// Returns the input of an operation in the arena.
    fn encode_input(&mut self, kind: Kind, target: Target, (value, expiry_ms): EntryContent) -> Vec<u8> {
        match kind {
            Kind::GetMany | Kind::PutMany => {
                // Several ranges that cover the whole segment in order.
                let words = target.length as u64 / 8;
                let mut cuts: Vec<u64> = (0..self.random.below(3)).map(|_| self.random.below(words + 1) * 8).collect();
                cuts.extend([0, target.length as u64]);
                cuts.sort_unstable();
                if target.row.is_some() {
                    // An empty range behind the last byte belongs to the next row.
                    cuts.dedup();
                }
                let range =
                    |pair: &[u64]| Range { offset: target.offset() + pair[0], bytes: (pair[1] - pair[0]) as u32 };
                Ranges::new(cuts.windows(2).map(range)).expect("few and small").encode().to_vec()
            }
            Kind::ChangeEntry(kind, key) => {
                let payload = [SlotWord::new(key, expiry_ms).bytes(), key.to_le_bytes(), value.to_le_bytes()].concat();
                payload[..Self::entry_change(kind).payload_bytes() as usize].to_vec()
            }
            Kind::List(_) => ListQuery::new("segment-", "").expect("a good query").encode().to_vec(),
            Kind::Open(temp) => format!("temp-{temp}").into_bytes(),
            Kind::Make(temp) => {
                let spec = self.random_spec();
                Self::allocation(&spec, &format!("temp-{temp}"))
            }
            _ => Vec::new(),
        }
    }

    fn entry_change(kind: EntryChangeKind) -> EntryChange {
        let BucketLayout { key_bytes, value_bytes, .. } = Target::bucket_layout();
        EntryChange { kind, key_bytes: key_bytes as u16, value_bytes: value_bytes as u32, expected: 0 }
    }

    fn random_spec(&mut self) -> Spec {
        let words = [1, 5, 40, 700, Self::TEMP_TABLE_WORDS][self.random.below(5) as usize];
        let node = NodeId(1 + self.random.below(self.plan.nodes as u64) as u16);
        let header_locations = [Placement::Local, Placement::Node(node), Placement::RoundRobin, Placement::Hash];
        Spec { placement: header_locations[self.random.below(4) as usize], ..Self::temp_spec(words) }
    }

    /// Returns the specification of a temporary segment, which a client can derive from its size.
    pub(crate) fn temp_spec(words: u64) -> Spec {
        if words == Self::TEMP_TABLE_WORDS {
            return Spec { mode: MODE_OPEN, ..Spec::table(Target::ROWS, 40) };
        }
        let (model, history) = match words {
            1 => (Model::Strict, 0),
            5 => (Model::Write, 1),
            40 => (Model::Delta(2), 0),
            _ => (Model::Strict, 2),
        };
        Spec { model, history, mode: MODE_OPEN, ..Spec::new(words * 8) }
    }

    /// Encodes a specification and a name as in the arena.
    pub(crate) fn allocation(spec: &Spec, name: &str) -> Vec<u8> {
        let name = Name::new(name).expect("a good name");
        [&spec.encode()[..], name.as_str().as_bytes()].concat()
    }

    /// Mark of a segment without a put.
    pub(crate) const FRESH: u64 = History::FRESH;
}
