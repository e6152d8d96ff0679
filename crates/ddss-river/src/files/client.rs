//! The service of a reader or writer: what its thread and the caller share.

use super::catalogue::PartRow;
use super::port::{Handler, Order, Port};
use super::wire::{FileMessage, chunks_of, length_of};
use ddss_group::{Member, Wake};
use ddss_river_core::codec::{Message, decode, encode};
use ddss_river_core::{
    ConfigError, Mirror, PartId, PartReader, ReadOrder, ReaderAction, ReaderConfig, ReaderEvent, ReaderId,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests of a reader at one mirror.
const READ_WINDOW: u16 = 4;
/// Longest time between two looks of a caller that waits: at what a mirror owes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Slots into which both mirrors write the chunks of a reader.
pub(super) const READ_SLOTS: u16 = 2 * READ_WINDOW;

/// Reading of a part.
pub(super) struct Reading {
    engine: PartReader,
    part: PartRow,
    /// Member with each mirror.
    mirrors: [Option<Member>; 2],
    /// Chunks that arrived, with their slots, until the caller takes them.
    ready: BTreeMap<u32, (u16, Vec<u8>)>,
    /// Chunk that no mirror has.
    pub(super) failed: Option<u32>,
}

/// Writing of a part.
#[derive(Debug)]
pub(super) struct Writing {
    generation: u64,
    targets: [Member; 2],
    /// Their numbers.
    servers: [u64; 2],
    /// Chunks in flight, with their slots and the servers that have stored them.
    stored: BTreeMap<u32, (u16, [bool; 2])>,
    committed: [bool; 2],
    /// Number of the server that could not write, or is lost. Nothing more is sent: another process may have its place.
    pub(super) failed: Option<u64>,
}

/// State that the caller and the thread share.
#[derive(Default)]
pub(super) struct FileClientState {
    /// Members that are file servers, by their numbers.
    pub(super) servers: BTreeMap<u64, Member>,
    pub(super) reading: Option<Reading>,
    pub(super) writing: Option<Writing>,
    orders: VecDeque<(Member, Order)>,
    pub(super) is_fenced: bool,
    /// Number of the reader: one for each part that is read.
    reader: u32,
}

/// State, its lock, and the wake-up of both sides.
pub(super) struct Shared {
    state: Mutex<FileClientState>,
    changed: Condvar,
    wake: Arc<Wake>,
}

impl Shared {
    pub(super) fn new(wake: Arc<Wake>) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, FileClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state for the caller, and wakes the thread.
    pub(super) fn call<T>(&self, call: impl FnOnce(&mut FileClientState) -> T) -> T {
        let result = call(&mut self.lock());
        self.wake.wake();
        result
    }

    /// Waits until an attempt has a result. `None` at the deadline.
    pub(super) fn wait<T>(
        &self,
        deadline: Instant,
        mut attempt: impl FnMut(&mut FileClientState) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(result) = attempt(&mut state) {
                drop(state);
                self.wake.wake();
                return Some(result);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left.min(LOOK_EVERY)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Changes the state for the thread, and wakes the caller.
    fn serve<T>(&self, call: impl FnOnce(&mut FileClientState) -> T) -> T {
        let result = call(&mut self.lock());
        self.changed.notify_all();
        result
    }
}

impl FileClientState {
    /// Begins to read a part. It goes on with the mirrors that come, or with one of them only.
    pub(super) fn read(
        &mut self,
        number: u32,
        part: PartRow,
        order: ReadOrder,
        only: Option<Mirror>,
    ) -> Result<(), ConfigError> {
        self.reader = self.reader.wrapping_add(1) & 0xffff;
        let config = ReaderConfig {
            reader: ReaderId(self.reader),
            part: PartId(number),
            generation: part.generation,
            chunks: chunks_of(part.bytes),
            window: READ_WINDOW,
            order,
        };
        let mut engine = PartReader::new(config)?;
        if let Some(mirror) = only {
            engine.handle(ReaderEvent::Dead(mirror.other()), &mut Vec::new());
        }
        self.reading = Some(Reading { engine, part, mirrors: [None; 2], ready: BTreeMap::new(), failed: None });
        let servers: Vec<_> = self.servers.iter().map(|(server, member)| (*server, *member)).collect();
        servers.into_iter().for_each(|(server, member)| self.connect(server, member));
        Ok(())
    }

    /// Returns the chunk that a reader waits for in vain: its number, the servers of the part that are not connected, and the one
    /// that could not deliver it.
    pub(super) fn awaited(&self, next: u32) -> (u32, Vec<u64>, Option<u64>) {
        let Some(reading) = &self.reading else { return (next, Vec::new(), None) };
        let server = |mirror: Mirror| reading.part.servers[mirror as usize];
        let absent = Mirror::BOTH.into_iter().filter(|mirror| reading.mirrors[*mirror as usize].is_none()).map(server);
        let (chunk, damaged) = match reading.engine.awaited() {
            Some((chunk, only)) => (chunk, Some(server(only.other()))),
            None => (next, None),
        };
        (chunk, absent.collect(), damaged)
    }

    /// Asks the other mirror for a chunk, or any one, that one owes for too long, and for all else that it owes: its disk may hang. It is
    /// asked again once it answers.
    pub(super) fn pass_over(&mut self, chunk: Option<u32>) {
        let Some(reading) = &mut self.reading else { return };
        let mut actions = Vec::new();
        if let Some(mirror) = reading.engine.replaceable(chunk) {
            reading.engine.handle(ReaderEvent::Lost(mirror), &mut actions);
        }
        self.execute(actions);
    }

    /// Takes a chunk that has arrived, this one or any one, with its number.
    pub(super) fn take(&mut self, chunk: Option<u32>) -> Option<(u32, Vec<u8>)> {
        let reading = self.reading.as_mut()?;
        let chunk = chunk.or_else(|| reading.ready.keys().next().copied())?;
        let (slot, bytes) = reading.ready.remove(&chunk)?;
        let mut actions = Vec::new();
        if !reading.engine.has_ended() {
            reading.engine.release(slot, &mut actions);
        }
        self.execute(actions);
        Some((chunk, bytes))
    }

    fn connect(&mut self, server: u64, member: Member) {
        let Some(reading) = &mut self.reading else { return };
        let mut actions = Vec::new();
        for mirror in Mirror::BOTH {
            if reading.part.servers[mirror as usize] == server {
                // Chunks that another member with this number was asked for are asked again.
                if reading.mirrors[mirror as usize].replace(member).is_some_and(|other| other != member) {
                    reading.engine.handle(ReaderEvent::Lost(mirror), &mut actions);
                }
                reading.engine.handle(ReaderEvent::Connected(mirror), &mut actions);
            }
        }
        self.execute(actions);
    }

    fn disconnect(&mut self, member: Member) {
        self.servers.retain(|_, other| *other != member);
        self.orders.retain(|(to, _)| *to != member);
        if let Some(writing) = &mut self.writing
            && let Some(target) = writing.targets.iter().position(|target| *target == member)
        {
            writing.failed = Some(writing.servers[target]);
        }
        let Some(reading) = &mut self.reading else { return };
        let mut actions = Vec::new();
        for mirror in Mirror::BOTH {
            if reading.mirrors[mirror as usize] == Some(member) {
                reading.mirrors[mirror as usize] = None;
                reading.engine.handle(ReaderEvent::Lost(mirror), &mut actions);
            }
        }
        self.execute(actions);
    }

    fn execute(&mut self, actions: Vec<ReaderAction>) {
        let Some(reading) = &mut self.reading else { return };
        for action in actions {
            match action {
                ReaderAction::Ask { at, request } => {
                    let mut bytes = Vec::new();
                    encode(&Message::ChunkRequest(request), &mut bytes);
                    let message = Order::Message(FileMessage::Chunks(&bytes).encode());
                    self.orders.extend(reading.mirrors[at as usize].map(|member| (member, message)));
                }
                ReaderAction::Failed { chunk, .. } => reading.failed = Some(chunk),
                // The bytes are in `ready` already.
                ReaderAction::Deliver { .. } | ReaderAction::Ended => {}
            }
        }
    }

    /// Handles messages of a mirror. `received` copies a chunk. Returns false if no server sends them.
    fn take_replies(&mut self, from: Member, mut bytes: &[u8], received: impl Fn(u16, u32) -> Option<Vec<u8>>) -> bool {
        while !bytes.is_empty() {
            let Ok((Message::ChunkReply(reply), rest)) = decode(bytes) else { return false };
            bytes = rest;
            // A reply for an earlier part.
            let Some(reading) = &mut self.reading else { continue };
            let mirror = Mirror::BOTH.into_iter().find(|mirror| reading.mirrors[*mirror as usize] == Some(from));
            let Some(mirror) = mirror else { continue };
            let length = length_of(reply.chunk, reading.part.bytes);
            let Some(chunk) = received(reply.slot, length) else { return false };
            let is_intact = crc32c::crc32c(&chunk) == reply.checksum;
            let mut actions = Vec::new();
            // It may have been passed over.
            reading.engine.handle(ReaderEvent::Connected(mirror), &mut actions);
            reading.engine.handle(ReaderEvent::Reply { from: mirror, reply, is_intact }, &mut actions);
            let delivered = actions.iter().any(|action| matches!(action, ReaderAction::Deliver { .. }));
            if delivered {
                reading.ready.insert(reply.chunk, (reply.slot, chunk));
            }
            self.execute(actions);
        }
        true
    }

    /// Begins to write a part on two servers. Returns the number of one that is gone.
    pub(super) fn write(&mut self, generation: u64, servers: [u64; 2]) -> Result<(), u64> {
        let [first, second] = servers.map(|server| self.servers.get(&server).copied().ok_or(server));
        let targets = [first?, second?];
        self.writing = Some(Writing {
            generation,
            targets,
            servers,
            stored: BTreeMap::new(),
            committed: [false; 2],
            failed: None,
        });
        Ok(())
    }

    /// Drops a part that was begun, as far as its servers are here.
    pub(super) fn abort(&mut self, generation: u64, servers: [u64; 2]) {
        let message = FileMessage::Abort { generation };
        let members = servers.iter().filter_map(|server| self.servers.get(server));
        self.orders.extend(members.map(|member| (*member, Order::Message(message.encode()))));
    }

    /// Returns a slot of so many for the next chunk.
    pub(super) fn free_slot(&self, slots: u16) -> Option<u16> {
        let writing = self.writing.as_ref()?;
        (0..slots).find(|slot| !writing.stored.values().any(|(used, _)| used == slot))
    }

    /// Sends a chunk, which the caller has written into a slot.
    pub(super) fn store(&mut self, chunk: u32, slot: u16, length: u32, checksum: u32) {
        let Some(writing) = self.writing.as_mut().filter(|writing| writing.failed.is_none()) else { return };
        writing.stored.insert(chunk, (slot, [false; 2]));
        let message = FileMessage::Store { generation: writing.generation, chunk, slot, length, checksum };
        for member in writing.targets {
            self.orders.push_back((member, Order::Chunk { from: slot, into: slot, length }));
            self.orders.push_back((member, Order::Message(message.encode())));
        }
    }

    /// Asks both servers to complete the part.
    pub(super) fn commit(&mut self, bytes: u64) {
        let Some(writing) = self.writing.as_mut().filter(|writing| writing.failed.is_none()) else { return };
        let message = FileMessage::Commit { generation: writing.generation, bytes };
        self.orders.extend(writing.targets.map(|member| (member, Order::Message(message.encode()))));
    }

    /// Returns true if both servers have stored all chunks.
    pub(super) fn is_stored(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.stored.is_empty())
    }

    /// Returns true if both servers have completed the part.
    pub(super) fn is_committed(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.committed == [true; 2])
    }

    fn acknowledge(&mut self, from: Member, generation: u64, chunk: Option<u32>, is_done: bool) {
        let Some(writing) = self.writing.as_mut().filter(|writing| writing.generation == generation) else { return };
        let Some(target) = writing.targets.iter().position(|target| *target == from) else { return };
        if !is_done {
            writing.failed = Some(writing.servers[target]);
            return;
        }
        let Some(chunk) = chunk else {
            writing.committed[target] = true;
            return;
        };
        if let Some((_, stored)) = writing.stored.get_mut(&chunk) {
            stored[target] = true;
            if *stored == [true; 2] {
                writing.stored.remove(&chunk);
            }
        }
    }
}

/// Handler of a reader or writer.
pub(super) struct User(pub(super) Arc<Shared>);

impl Handler for User {
    fn on_open(&mut self, _: &mut Port, member: Member, server: u64) {
        self.0.serve(|state| {
            state.servers.insert(server, member);
            state.connect(server, member);
        });
    }

    fn on_message(&mut self, port: &mut Port, from: Member, message: FileMessage<'_>) -> bool {
        match message {
            FileMessage::Chunks(bytes) => {
                let received = |slot, length| port.chunk(from, slot, length).map(|chunk| chunk.copy());
                self.0.serve(|state| state.take_replies(from, bytes, received))
            }
            FileMessage::Stored { generation, chunk, is_done } => {
                self.0.serve(|state| state.acknowledge(from, generation, Some(chunk), is_done));
                true
            }
            FileMessage::Committed { generation, is_done } => {
                self.0.serve(|state| state.acknowledge(from, generation, None, is_done));
                true
            }
            _ => false,
        }
    }

    fn on_end(&mut self, _: &mut Port, member: Member) {
        self.0.serve(|state| state.disconnect(member));
    }

    fn on_sent(&mut self, _: u16) {}

    fn on_fenced(&mut self) {
        self.0.serve(|state| state.is_fenced = true);
    }

    fn work(&mut self, port: &mut Port) -> usize {
        let orders = std::mem::take(&mut self.0.lock().orders);
        let count = orders.len();
        orders.into_iter().for_each(|(member, order)| port.order(member, order));
        count
    }

    fn has_work(&self) -> bool {
        !self.0.lock().orders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the process that takes the place of a lost server would get the rest of a part, and be expelled for it.
    #[test]
    fn nothing_is_sent_to_a_lost_server() {
        let mut state = FileClientState::default();
        state.servers.extend([(1, Member(4)), (2, Member(5))]);
        state.write(7, [1, 2]).unwrap();
        state.store(0, 0, 9, 0);
        assert_eq!(state.orders.len(), 4, "a chunk and a message for each");
        state.disconnect(Member(5));
        state.store(1, 1, 9, 0);
        state.commit(18);
        assert!(state.orders.iter().all(|(member, _)| *member == Member(4)), "{:?}", state.orders);
        assert_eq!(state.writing.as_ref().and_then(|writing| writing.failed), Some(2));
        state.abort(7, [1, 2]);
        assert_eq!(state.orders.back().map(|(member, _)| *member), Some(Member(4)));
    }
}
