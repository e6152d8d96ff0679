//! A simulated node: its engine, its memory, and its clients.

use crate::load::calls::{ARENA_BYTES, Client, Target};
use crate::load::scenario::Scenario;
use crate::oracle::History;
use crate::oracle::permission_oracle::user_of;
use crate::random::Random;
use ddss_core::limits::STAGING_BYTES;
use ddss_core::{
    ArenaRange, ClientId, Header, LockToken, MapLayout, NodeId, Payload, Record, RecordPlace, SegmentId, Shard,
    TableLayout, Timestamp, Version, area_of, offset_of,
};
use ddss_engine::{CommitSource, Engine, EngineConfig, MessageBody, RangeSet};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a node's area: its largest pool.
const AREA_BYTES: usize = 1 << 20;

/// A simulated node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pool_bytes: u64,
    reads_overlap: bool,
    /// Contents of each area, which is created at its first use.
    areas: BTreeMap<usize, Vec<u8>>,
    pub(crate) staging: BTreeMap<NodeId, Vec<u8>>,
    pub(crate) clients: Vec<Client>,
    /// Offset of this node's wall clock; `uptime_us` is the offset of its monotonic clock.
    pub(crate) skew_us: u64,
    pub(crate) uptime_us: u64,
    /// Generation of its daemon; events of earlier generations are ignored.
    pub(crate) life: u64,
    /// True after the first lease of its daemon.
    pub(crate) has_lease: bool,
    /// True after a crash, until the restart.
    pub(crate) dead: bool,
    /// End of its pause.
    pub(crate) paused_until_us: u64,
    /// Newest timestamp that its clients have seen in this generation.
    pub(crate) heard: u64,
    /// Large commits that are being written, in order.
    pub(crate) commits: VecDeque<LargeCommit>,
    /// Reservations of memory for their undo logs that have not ended.
    pub(crate) undo_reserved: usize,
}

/// A large commit, with its undo log.
#[derive(Debug)]
pub(crate) struct LargeCommit {
    pub(crate) segment: SegmentId,
    pub(crate) at: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) from: u64,
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    /// Its memory was reserved before.
    pub(crate) has_undo: bool,
    /// Bytes that were replaced.
    pub(crate) old: Vec<u8>,
}

impl Node {
    /// Bytes of the largest value that is committed in one step.
    pub(crate) const COMMIT_AT_ONCE_MAX: u32 = 64;
    /// Time between two passes over a map.
    const SWEEP_PAUSE_US: u64 = 20_000;

    pub(crate) fn new(id: NodeId, peers: &[NodeId], plan: &Scenario, reads_overlap: bool, random: &mut Random) -> Self {
        let pool_bytes = plan.pool_bytes as u64;
        let clients = (0..plan.clients as u32).map(|index| Client::new(ClientId { index, generation: 1 })).collect();
        let mut node = Self {
            engine: Self::engine(id, peers, (pool_bytes, reads_overlap), random),
            pool_bytes,
            reads_overlap,
            areas: BTreeMap::new(),
            staging: BTreeMap::new(),
            clients,
            skew_us: random.below(2_000_000),
            uptime_us: random.below(2_000_000),
            life: 0,
            has_lease: false,
            dead: false,
            paused_until_us: 0,
            heard: 0,
            commits: VecDeque::new(),
            undo_reserved: 0,
        };
        node.attach_all();
        node
    }

    fn engine(id: NodeId, peers: &[NodeId], (pool_bytes, reads_overlap): (u64, bool), random: &mut Random) -> Engine {
        let first_generation = random.word() as u32;
        let mut engine = Engine::new(&EngineConfig {
            node: id,
            shard: Shard::ONLY,
            pool_bytes,
            peers: peers.to_vec(),
            first_generation,
            reads_overlap,
        });
        engine.enable_replication();
        engine.set_replication_limits(1024, 50_000);
        engine.set_commit_at_once_max(Self::COMMIT_AT_ONCE_MAX);
        engine.set_sweep_pause(Self::SWEEP_PAUSE_US);
        engine
    }

    fn attach_all(&mut self) {
        for client in &self.clients {
            self.engine.attach(client.id, user_of(client.id.index as usize), ARENA_BYTES as u64);
        }
    }

    /// Starts a new daemon and new clients, with or without the old memory.
    pub(crate) fn restart(&mut self, id: NodeId, peers: &[NodeId], forgets: bool, random: &mut Random) {
        self.engine = Self::engine(id, peers, (self.pool_bytes, self.reads_overlap), random);
        for commit in std::mem::take(&mut self.commits) {
            self.undo_commit(&commit);
        }
        self.undo_reserved = 0;
        if forgets {
            self.areas.clear();
        }
        self.staging.clear();
        for client in &mut self.clients {
            *client = Client::new(ClientId { generation: client.id.generation + 1, ..client.id });
        }
        self.attach_all();
        self.life += 1;
        self.has_lease = false;
        self.dead = false;
    }

    pub(crate) fn staging_of(&mut self, peer: NodeId) -> &mut Vec<u8> {
        self.staging.entry(peer).or_insert_with(|| vec![0; STAGING_BYTES])
    }

    pub(crate) fn client(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(id.index as usize).filter(|client| client.id == id)
    }

    pub(crate) fn payload(&mut self, client: ClientId, payload: &Payload) -> Vec<u8> {
        match (payload, self.client(client)) {
            (Payload::Inline { bytes, length }, _) => bytes[..usize::from(*length)].to_vec(),
            (Payload::Arena(range), Some(client)) => {
                let start = range.offset() as usize;
                client.arena[start..start + range.bytes as usize].to_vec()
            }
            (Payload::Arena(range), None) => vec![0; range.bytes as usize],
        }
    }

    /// Reads the memory of this node; unwritten memory is zero.
    pub(crate) fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let start = offset_of(at) as usize;
        self.areas.get(&area_of(at)).map_or_else(|| vec![0; count], |area| area[start..start + count].to_vec())
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let area = self.areas.entry(area_of(at)).or_insert_with(|| vec![0; AREA_BYTES]);
        area[offset_of(at) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Copies a segment to another place.
    pub(crate) fn relocate(&mut self, from: u64, to: u64, count: usize) {
        let bytes = self.bytes(from, count);
        self.write(to, &bytes);
    }

    pub(crate) fn clear(&mut self, at: u64, count: usize) {
        self.write(at, &vec![0; count]);
    }

    /// Zeroes all memory outside the used segments.
    pub(crate) fn clear_free(&mut self, used: &[Record]) {
        let held: Vec<(u64, Vec<u8>)> = used
            .iter()
            .map(|record| {
                let bytes = record.spec.pool_bytes();
                (record.at, self.bytes(record.at, bytes as usize))
            })
            .collect();
        self.areas.clear();
        for (at, bytes) in held {
            self.write(at, &bytes);
        }
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        let start = offset_of(at) as usize;
        self.areas.get(&area_of(at)).map_or(0, |area| u64::from_le_bytes(std::array::from_fn(|i| area[start + i])))
    }

    fn set_word(&mut self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    pub(crate) fn header(&self, at: u64) -> Header {
        Header {
            state: self.word(at + Header::STATE_OFFSET),
            timestamp: self.word(at + Header::TIMESTAMP_OFFSET),
            segment: self.word(at + Header::SEGMENT_OFFSET),
            bytes: self.word(at + Header::BYTES_OFFSET),
            locked: self.word(at + Header::LOCKED_OFFSET),
        }
    }

    pub(crate) fn format(&mut self, at: u64, header: &Header) {
        self.set_word(at + Header::STATE_OFFSET, header.state);
        self.set_word(at + Header::TIMESTAMP_OFFSET, header.timestamp);
        self.set_word(at + Header::SEGMENT_OFFSET, header.segment);
        self.set_word(at + Header::BYTES_OFFSET, header.bytes);
        self.set_word(at + Header::LOCKED_OFFSET, header.locked);
    }

    /// Writes the description of a map into a new table, as its first client does.
    pub(crate) fn describe_map(&mut self, at: u64) {
        let layout = Target::bucket_layout();
        let words = [MapLayout::MAGIC, layout.key_bytes as u64, layout.value_bytes as u64, layout.slots as u64];
        let table = TableLayout::new(layout.row_bytes() as u32).expect("a table has rows");
        let row = table.record(0).of_segment(at).data;
        words.iter().zip(0..).for_each(|(&word, index)| self.set_word(row + 8 * index, word));
    }

    pub(crate) fn mark(&mut self, at: u64, holder: LockToken) {
        self.set_word(at + Header::LOCKED_OFFSET, holder.0);
    }

    pub(crate) fn erase(&mut self, at: u64) {
        self.set_word(at + Header::SEGMENT_OFFSET, 0);
    }

    /// Concatenates the bytes of some ranges; `at` is the address of the segment's data.
    pub(crate) fn gather(&self, at: u64, parts: &RangeSet) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(parts.bytes() as usize);
        for range in &self.engine.ranges(parts) {
            bytes.extend(self.bytes(at + range.offset, range.bytes as usize));
        }
        bytes
    }

    /// Returns the state word and the timestamp at a place.
    pub(crate) fn record(&self, at: u64) -> (u64, Timestamp) {
        (self.word(at + Header::STATE_OFFSET), Timestamp(self.word(at + Header::TIMESTAMP_OFFSET)))
    }

    /// Executes the first half of a commit, which a concurrent reader can see.
    pub(crate) fn begin_commit(&mut self, place: RecordPlace, parts: &RangeSet, bytes: &[u8], marked: Option<Version>) {
        if let Some(version) = marked {
            self.set_word(place.header + Header::STATE_OFFSET, Header::writing(Version(version.0 - 1)));
        }
        let mut left = &bytes[..bytes.len() / 2];
        for range in &self.engine.ranges(parts) {
            let (now, later) = left.split_at(left.len().min(range.bytes as usize));
            self.write(place.data + range.offset, now);
            left = later;
        }
    }

    pub(crate) fn commit(
        &mut self,
        place: RecordPlace,
        parts: &RangeSet,
        bytes: &[u8],
        version: Version,
        timestamp: Timestamp,
    ) {
        let mut left = bytes;
        for range in &self.engine.ranges(parts) {
            let (now, later) = left.split_at(range.bytes as usize);
            self.write(place.data + range.offset, now);
            left = later;
        }
        self.stamp(place.header, version, timestamp);
    }

    /// Writes the next slice of the first large commit. Returns its segment at the end.
    pub(crate) fn step_commit(&mut self, slice: usize) -> Option<SegmentId> {
        let mut commit = self.commits.pop_front()?;
        if commit.old.is_empty() {
            self.set_word(commit.at + Header::STATE_OFFSET, Header::writing(Version(commit.version.0 - 1)));
        }
        let (done, to) = (commit.old.len(), commit.at + Header::DATA_OFFSET + commit.offset);
        let slice = slice.min(commit.bytes - done);
        commit.old.extend(self.bytes(to + done as u64, slice));
        let new = self.bytes(commit.from + done as u64, slice);
        self.write(to + done as u64, &new);
        if commit.old.len() < commit.bytes {
            self.commits.push_front(commit);
            return None;
        }
        self.stamp(commit.at, commit.version, commit.timestamp);
        if commit.has_undo {
            self.release_undo();
        }
        Some(commit.segment)
    }

    /// Ends a reservation of memory for an undo log.
    pub(crate) fn release_undo(&mut self) {
        self.undo_reserved = self.undo_reserved.checked_sub(1).expect("each reservation ends once");
    }

    /// Restores what an unfinished commit of the last daemon had replaced.
    fn undo_commit(&mut self, commit: &LargeCommit) {
        if !commit.old.is_empty() {
            self.write(commit.at + Header::DATA_OFFSET + commit.offset, &commit.old);
            self.set_word(commit.at + Header::STATE_OFFSET, Header::committed(Version(commit.version.0 - 1)));
        }
    }

    pub(crate) fn stamp(&mut self, at: u64, version: Version, timestamp: Timestamp) {
        self.set_word(at + Header::TIMESTAMP_OFFSET, timestamp.0);
        self.set_word(at + Header::STATE_OFFSET, Header::committed(version));
    }

    pub(crate) fn keep(&mut self, at: u64, to: u64, header: &Header) {
        let data = self.bytes(at + Header::DATA_OFFSET, header.bytes as usize);
        self.write(to + Header::DATA_OFFSET, &data);
        self.format(to, header);
    }

    /// Writes into a client's arena, if the client still exists.
    pub(crate) fn write_arena(&mut self, client: ClientId, into: ArenaRange, bytes: &[u8]) {
        if let Some(client) = self.client(client) {
            client.arena[into.offset() as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Returns the bytes of a commit.
    pub(crate) fn source(&mut self, source: &CommitSource, length: u32) -> Vec<u8> {
        match source {
            CommitSource::Client(client, payload) => self.payload(*client, payload),
            CommitSource::Staged { node, at } => {
                let start = *at as usize;
                self.staging_of(*node)[start..start + length as usize].to_vec()
            }
            CommitSource::Word(word) => word.to_le_bytes().to_vec(),
            CommitSource::Pool(at) => self.bytes(*at, length as usize),
            CommitSource::Buffer(kept) => {
                let mut bytes = Vec::new();
                self.engine.consume_buffer(*kept, |kept| bytes.extend_from_slice(kept));
                bytes
            }
        }
    }

    /// Returns the first bytes of a commit that follows.
    pub(crate) fn head(&mut self, source: &CommitSource, length: u32) -> Vec<u8> {
        let mut bytes = match source {
            CommitSource::Buffer(kept) => self.engine.buffer(*kept).to_vec(),
            other => self.source(other, length),
        };
        bytes.truncate(length as usize);
        bytes
    }

    /// Returns the body of a message.
    pub(crate) fn tail(&mut self, tail: &MessageBody) -> Vec<u8> {
        match tail {
            MessageBody::None => Vec::new(),
            MessageBody::Client(client, payload) => self.payload(*client, payload),
            MessageBody::Buffer(kept) => self.engine.buffer(*kept).to_vec(),
            MessageBody::Pool(at, parts) => self.gather(*at, parts),
        }
    }
}

/// Returns the bytes that a put with this mark writes.
pub(crate) fn bytes_of(mark: u64, length: usize) -> Vec<u8> {
    mark.to_le_bytes().into_iter().cycle().take(length).collect()
}

/// Returns the mark of the put that wrote these bytes, or `None` if they are torn.
pub(crate) fn mark_of(bytes: &[u8]) -> Option<u64> {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(std::array::from_fn(|i| word[i])));
    let first = words.next().unwrap_or(History::FRESH);
    words.all(|word| word == first).then_some(first)
}
