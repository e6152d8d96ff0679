//! A file server.

use super::options::FilesOptions;
use super::port::{Endpoint, Handler, Order, Port};
use super::store::{NewPart, Store, StoredPart};
use super::wire::{FileMessage, WRITE_WINDOW};
use crate::error::QueueError;
use ddss::Client;
use ddss_group::{Member, Wake};
use ddss_river_core::codec::{Message, decode, encode};
use ddss_river_core::{ChunkReply, ChunkRequest, ChunkServer, ReaderId};
use ddss_runtime::{IdleConfig, ProgressThread};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Slots from which chunks are sent.
const SEND_SLOTS: u16 = 8;
/// Parts that are open for reading.
const OPEN_MAX: usize = 64;
/// Parts that one member writes at the same time.
const WRITES_MAX: usize = 4;
/// Readers of one member: the engine's number of a reader has the member in its upper half.
const READERS_OF_MEMBER: u32 = 1 << 16;

/// A file server: it stores parts of collections in a directory, and serves the reader that lags behind first. Dropping it
/// leaves in order.
#[derive(Debug)]
pub struct FileServer {
    number: u64,
    is_fenced: Arc<AtomicBool>,
    /// Stopped when the server is dropped.
    thread: ProgressThread,
}

impl FileServer {
    /// Starts a server over a directory, which is created if it does not exist. A server that is started again over it has the
    /// same parts.
    ///
    /// # Errors
    /// The directory cannot be used, the group cannot be joined, or the error of a system call.
    pub fn start(client: &Client, directory: &Path, options: FilesOptions) -> Result<Self, QueueError> {
        let (store, number) = Store::open(directory)?;
        let member = options.join(client)?;
        let wake = Arc::new(Wake::new()?);
        let outbox = Port::slots("ddss-river-send", SEND_SLOTS)?;
        let (lease, is_fenced) = (options.endpoint.lease, Arc::new(AtomicBool::new(false)));
        let fenced = is_fenced.clone();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let thread = ProgressThread::start("ddss-files", None, IdleConfig::for_cores(cores), move || {
            let port = Port::new(member, wake, lease, number, (outbox, WRITE_WINDOW))?;
            let server = Server {
                store,
                engine: ChunkServer::default(),
                readers: BTreeMap::new(),
                parts: BTreeMap::new(),
                writes: BTreeMap::new(),
                written: BTreeSet::new(),
                is_sending: [false; SEND_SLOTS as usize],
                is_fenced: fenced,
            };
            Ok::<_, std::io::Error>(Endpoint::new(port, server))
        })?;
        Ok(Self { number, is_fenced, thread })
    }

    /// Returns the number of the server, which its directory keeps.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if it serves nobody any more: the process was stopped for longer than its lease. Start it again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_fenced.load(Ordering::Relaxed) || !self.thread.is_running()
    }
}

struct Server {
    store: Store,
    engine: ChunkServer,
    /// Readers of each member, by the engine's numbers.
    readers: BTreeMap<Member, Vec<ReaderId>>,
    /// Parts that are open for reading. `None`: this server has no such part.
    parts: BTreeMap<u64, StoredPart>,
    writes: BTreeMap<(Member, u64), NewPart>,
    /// Complete parts, each with the member that has written it and may drop it while it is here.
    written: BTreeSet<(Member, u64)>,
    /// Slots whose bytes must not change yet.
    is_sending: [bool; SEND_SLOTS as usize],
    is_fenced: Arc<AtomicBool>,
}

impl Server {
    fn add_request(&mut self, from: Member, request: ChunkRequest) -> bool {
        if request.reader.0 >= READERS_OF_MEMBER {
            return false;
        }
        let reader = ReaderId(u32::from(from.0) * READERS_OF_MEMBER + request.reader.0);
        let known = self.readers.entry(from).or_default();
        if !known.contains(&reader) {
            // A user reads one part after the other.
            known.drain(..).for_each(|earlier| self.engine.disconnect(earlier));
            if !self.engine.connect(reader) {
                return false;
            }
            known.push(reader);
        }
        self.engine.add(ChunkRequest { reader, ..request }).is_ok()
    }

    fn read(&mut self, generation: u64, chunk: u32) -> std::io::Result<(Vec<u8>, u32)> {
        if !self.parts.contains_key(&generation) {
            let part = self.store.part(generation)?;
            if self.parts.len() == OPEN_MAX {
                self.parts.pop_first();
            }
            self.parts.insert(generation, part);
        }
        self.parts[&generation].read(chunk)
    }

    /// Reads a chunk and sends it.
    fn serve(&mut self, port: &mut Port, slot: u16, request: ChunkRequest) {
        let member = Member((request.reader.0 / READERS_OF_MEMBER) as u16);
        let ChunkRequest { part, generation, chunk, .. } = request;
        let reader = ReaderId(request.reader.0 % READERS_OF_MEMBER);
        let read = self.read(generation, chunk);
        let (generation, checksum) = match &read {
            Ok((bytes, checksum)) => {
                port.fill(slot, bytes);
                port.order(member, Order::Chunk { from: slot, into: request.slot, length: bytes.len() as u32 });
                self.is_sending[usize::from(slot)] = true;
                (Some(generation), *checksum)
            }
            // The other mirror is asked.
            Err(_) => (None, 0),
        };
        let mut bytes = Vec::new();
        let reply = ChunkReply { reader, part, generation, chunk, slot: request.slot, checksum };
        encode(&Message::ChunkReply(reply), &mut bytes);
        port.send(member, &FileMessage::Chunks(&bytes));
    }

    fn store_chunk(&mut self, port: &Port, from: Member, message: FileMessage<'_>) -> Option<bool> {
        let FileMessage::Store { generation, chunk, slot, length, checksum } = message else { return None };
        let bytes = port.received(from, slot, length)?;
        let key = (from, generation);
        if crc32c::crc32c(&bytes) != checksum {
            self.drop_write(key);
            return Some(false);
        }
        if !self.writes.contains_key(&key) {
            let others = self.writes.range((from, 0)..=(from, u64::MAX)).count();
            let new = if others < WRITES_MAX { self.store.create(generation).ok() } else { None };
            let Some(new) = new else { return Some(false) };
            self.writes.insert(key, new);
        }
        let written = self.writes.get_mut(&key)?.write(chunk, &bytes, checksum);
        if written.is_err() {
            self.drop_write(key);
        }
        Some(written.is_ok())
    }

    fn commit(&mut self, from: Member, generation: u64, bytes: u64) -> bool {
        // A part without bytes has no chunks.
        let part = self.writes.remove(&(from, generation)).map_or_else(|| self.store.create(generation), Ok);
        let Ok(part) = part else { return false };
        let committed = self.store.commit(&part, bytes);
        if committed.is_err() {
            self.store.discard(&part);
        } else {
            self.written.insert((from, generation));
        }
        committed.is_ok()
    }

    fn drop_write(&mut self, key: (Member, u64)) {
        if let Some(part) = self.writes.remove(&key) {
            self.store.discard(&part);
        }
    }

    /// Drops a part of a collection whose loading failed.
    fn abort(&mut self, from: Member, generation: u64) {
        self.drop_write((from, generation));
        if self.written.remove(&(from, generation)) {
            self.parts.remove(&generation);
            self.store.remove(generation);
        }
    }
}

impl Handler for Server {
    fn on_open(&mut self, _: &mut Port, _: Member, _: u64) {}

    fn on_message(&mut self, port: &mut Port, from: Member, message: FileMessage<'_>) -> bool {
        match message {
            FileMessage::Chunks(mut bytes) => {
                while !bytes.is_empty() {
                    let Ok((Message::ChunkRequest(request), rest)) = decode(bytes) else { return false };
                    if !self.add_request(from, request) {
                        return false;
                    }
                    bytes = rest;
                }
                true
            }
            FileMessage::Store { generation, chunk, .. } => {
                let Some(is_done) = self.store_chunk(port, from, message) else { return false };
                port.send(from, &FileMessage::Stored { generation, chunk, is_done });
                true
            }
            FileMessage::Commit { generation, bytes } => {
                let is_done = self.commit(from, generation, bytes);
                port.send(from, &FileMessage::Committed { generation, is_done });
                true
            }
            FileMessage::Abort { generation } => {
                self.abort(from, generation);
                true
            }
            _ => false,
        }
    }

    fn on_end(&mut self, _: &mut Port, member: Member) {
        for reader in self.readers.remove(&member).unwrap_or_default() {
            self.engine.disconnect(reader);
        }
        let keys: Vec<_> = self.writes.range((member, 0)..=(member, u64::MAX)).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.drop_write(key));
        self.written.retain(|(writer, _)| *writer != member);
    }

    fn on_sent(&mut self, slot: u16) {
        if let Some(is_sending) = self.is_sending.get_mut(usize::from(slot)) {
            *is_sending = false;
        }
    }

    fn on_fenced(&mut self) {
        self.is_fenced.store(true, Ordering::Relaxed);
    }

    /// Serves one chunk: readers that come meanwhile may lag more than those that wait.
    fn work(&mut self, port: &mut Port) -> usize {
        let Some(slot) = self.is_sending.iter().position(|is_sending| !is_sending) else { return 0 };
        let Some(request) = self.engine.take() else { return 0 };
        self.serve(port, slot as u16, request);
        1
    }

    fn has_work(&self) -> bool {
        false
    }
}
