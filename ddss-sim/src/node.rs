//! One simulated node: its engine, its memory, and its clients.

use crate::history::History;
use crate::random::Random;
use ddss_core::engine::{Engine, EngineConfig, Source};
use ddss_core::limits::{ARENA_SLOT_BYTES, STAGING_BYTES};
use ddss_core::{ClientId, Header, NodeId, Payload, Timestamp, Version};
use std::collections::BTreeMap;

/// Bytes of one client's arena.
pub(crate) const ARENA_BYTES: usize = 4 * ARENA_SLOT_BYTES;
/// Bytes of one node's pool.
pub(crate) const POOL_BYTES: usize = 1 << 20;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Get,
    Put,
    /// Adds one to the word of a counter.
    Add,
    /// Takes the lock, and then gets, puts and lets go under it.
    Lock,
    GetHeld,
    PutHeld,
    Unlock,
}

/// A lock that a client holds, and the version that it saw under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Section {
    pub(crate) segment: usize,
    pub(crate) token: ddss_core::LockToken,
    pub(crate) version: u64,
    pub(crate) until_us: u64,
}

/// What one client is in the middle of.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    pub(crate) request: u64,
    pub(crate) began_us: u64,
    pub(crate) segment: usize,
    pub(crate) mark: Option<u64>,
    pub(crate) range: ddss_core::ArenaRange,
}

/// One simulated client: one operation at a time.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) arena: Vec<u8>,
    pub(crate) asked: Option<Asked>,
    /// The request past its deadline that may still use the arena: the client waits for its second end.
    pub(crate) lingering: Option<u64>,
    pub(crate) section: Option<Section>,
}

/// One simulated node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) pool: Vec<u8>,
    pub(crate) staging: BTreeMap<NodeId, Vec<u8>>,
    pub(crate) clients: Vec<Client>,
    /// How far this node's wall clock is from the truth.
    pub(crate) skew_us: u64,
}

impl Node {
    pub(crate) fn new(id: NodeId, peers: &[NodeId], clients: usize, random: &mut Random) -> Self {
        let config = EngineConfig { node: id, pool_bytes: POOL_BYTES as u64, peers: peers.to_vec() };
        let mut engine = Engine::new(&config);
        let clients = (0..clients as u32).map(|index| Client::new(ClientId { index, generation: 1 })).collect();
        for client in &clients {
            let client: &Client = client;
            engine.attach(client.id, crate::world::USER, ARENA_BYTES as u64);
        }
        let skew_us = random.below(2_000_000);
        Self { engine, pool: vec![0; POOL_BYTES], staging: BTreeMap::new(), clients, skew_us }
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

    pub(crate) fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.pool[at as usize + i]))
    }

    fn set_word(&mut self, at: u64, value: u64) {
        self.pool[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
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
        let data = (at + Header::DATA_OFFSET) as usize;
        self.pool[data..data + header.bytes as usize].fill(0);
        self.set_word(at + Header::STATE_OFFSET, header.state);
        self.set_word(at + Header::TIMESTAMP_OFFSET, header.timestamp);
        self.set_word(at + Header::SEGMENT_OFFSET, header.segment);
        self.set_word(at + Header::BYTES_OFFSET, header.bytes);
        self.set_word(at + Header::LOCKED_OFFSET, header.locked);
    }

    pub(crate) fn mark(&mut self, at: u64, locked: bool) {
        self.set_word(at + Header::LOCKED_OFFSET, locked.into());
    }

    pub(crate) fn erase(&mut self, at: u64) {
        self.set_word(at + Header::SEGMENT_OFFSET, 0);
    }

    pub(crate) fn commit(&mut self, at: u64, offset: u64, bytes: &[u8], version: Version, timestamp: Timestamp) {
        let data = (at + Header::DATA_OFFSET + offset) as usize;
        self.pool[data..data + bytes.len()].copy_from_slice(bytes);
        self.set_word(at + Header::TIMESTAMP_OFFSET, timestamp.0);
        self.set_word(at + Header::STATE_OFFSET, Header::committed(version));
    }

    /// The bytes of a commit, wherever they are.
    pub(crate) fn source(&mut self, source: &Source, length: u32) -> Vec<u8> {
        match source {
            Source::Client(client, payload) => self.payload(*client, payload),
            Source::Staged { node, at } => {
                let start = *at as usize;
                self.staging_of(*node)[start..start + length as usize].to_vec()
            }
            Source::Word(word) => word.to_le_bytes().to_vec(),
            Source::Kept(kept) => {
                let mut bytes = Vec::new();
                self.engine.take_kept(*kept, |kept| bytes.extend_from_slice(kept));
                bytes
            }
        }
    }
}

impl Client {
    pub(crate) fn new(id: ClientId) -> Self {
        Self { id, arena: vec![0; ARENA_BYTES], asked: None, lingering: None, section: None }
    }
}

/// The bytes that a put with that mark writes.
pub(crate) fn bytes_of(mark: u64, length: usize) -> Vec<u8> {
    mark.to_le_bytes().into_iter().cycle().take(length).collect()
}

/// The mark of bytes that one put wrote; `None` if they are a mix.
pub(crate) fn mark_of(bytes: &[u8]) -> Option<u64> {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(std::array::from_fn(|i| word[i])));
    let first = words.next().unwrap_or(History::FRESH);
    words.all(|word| word == first).then_some(first)
}
