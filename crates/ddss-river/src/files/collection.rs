//! Collections: loading and reading.

use super::catalogue::{Catalogue, PartRow};
use super::client::{FileClientState, READ_SLOTS, Shared, User};
use super::options::{FilesOptions, GROUP, server_of};
use super::port::{Endpoint, Port};
use super::split::{PartLimits, fill, split};
use super::wire::{CHUNK_BYTES, WRITE_WINDOW, chunks_of};
use crate::error::QueueError;
use crate::state::SlotMemory;
use ddss::Client;
use ddss_group::{Wake, inspect};
use ddss_river_core::limits::GENERATION_MAX;
use ddss_river_core::{Mirror, ReadOrder};
use ddss_runtime::{IdleConfig, ProgressThread};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of a loader for file servers beyond the first two.
const SERVERS_WAIT_MAX: Duration = Duration::from_secs(2);

/// A collection, as its catalogue describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CollectionInfo {
    /// Parts.
    pub parts: u32,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Numbers of the file servers that have a part.
    pub servers: Vec<u64>,
}

impl CollectionInfo {
    fn of(parts: &[PartRow]) -> Self {
        let mut servers: Vec<u64> = parts.iter().flat_map(|part| part.servers).collect();
        servers.sort_unstable();
        servers.dedup();
        let bytes = parts.iter().map(|part| part.bytes).sum();
        Self { parts: parts.len() as u32, bytes, servers }
    }
}

/// The name of a collection, and its description if it has one.
type Listed = (String, Result<CollectionInfo, QueueError>);

/// A damaged or missing part at a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Number of the part.
    pub part: u32,
    /// Number of the file server.
    pub server: u64,
    /// First chunk that it does not have. `None` if the server does not answer.
    pub chunk: Option<u32>,
}

/// A process that loads and reads collections. It does one thing at a time.
pub struct Files {
    pub(super) client: Client,
    options: FilesOptions,
    pub(super) shared: Arc<Shared>,
    outbox: SlotMemory,
    /// Stopped when the value is dropped.
    _thread: ProgressThread,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    /// Joins the file servers of the cluster.
    ///
    /// # Errors
    /// The group cannot be joined, or the error of a system call.
    pub fn join(client: &Client, options: FilesOptions) -> Result<Self, QueueError> {
        let member = options.join(client, 0)?;
        let wake = Arc::new(Wake::new()?);
        let shared = Arc::new(Shared::new(wake.clone()));
        let outbox = Port::slots("ddss-river-send", WRITE_WINDOW)?;
        let (user, slots, lease) = (User(shared.clone()), outbox.clone(), options.endpoint.lease);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let thread = ProgressThread::start("ddss-files", None, IdleConfig::for_cores(cores), move || {
            Ok::<_, io::Error>(Endpoint::new(Port::new(member, wake, lease, 0, (slots, READ_SLOTS))?, user))
        })?;
        Ok(Self { client: client.clone(), options, shared, outbox, _thread: thread })
    }

    /// Describes a collection.
    ///
    /// # Errors
    /// There is none of this name, or a call failed.
    pub fn inspect(&self, name: &str) -> Result<CollectionInfo, QueueError> {
        Ok(CollectionInfo::of(&Catalogue::read(&self.client, name)?))
    }

    /// Returns the collections of the cluster, each with its description or the reason why it has none: it is loaded at the
    /// moment, its loading was interrupted, or its catalogue cannot be read.
    ///
    /// # Errors
    /// The names cannot be listed.
    pub fn list(client: &Client) -> Result<Vec<Listed>, QueueError> {
        let described = |name: String| {
            let parts = Catalogue::read(client, &name);
            (name, parts.map(|parts| CollectionInfo::of(&parts)))
        };
        Ok(Catalogue::names(client)?.into_iter().map(described).collect())
    }

    /// Loads a new collection from a reader: in parts, each on two file servers. Nobody sees it before it is complete.
    ///
    /// # Errors
    /// The name is taken, there are less than two file servers, one of them fails, or the reader does.
    pub fn load(&mut self, name: &str, from: &mut impl Read) -> Result<CollectionInfo, QueueError> {
        self.meet_servers()?;
        let catalogue = Catalogue::create(&self.client, name, self.options.copies)?;
        let mut begun = Vec::new();
        let loaded = self.load_parts(&catalogue, from, &mut begun);
        self.shared.call(|state| state.writing = None);
        match loaded {
            Ok(parts) => Ok(CollectionInfo::of(&parts)),
            Err(error) => {
                // Nobody reads parts whose collection is gone.
                if catalogue.remove() {
                    self.shared.call(|state| {
                        begun.into_iter().for_each(|(generation, servers)| state.abort(generation, servers));
                    });
                }
                Err(error)
            }
        }
    }

    /// Waits for two file servers, and a while for the others: parts lie on all that live.
    fn meet_servers(&self) -> Result<(), QueueError> {
        self.two_servers()?;
        let group = inspect(&self.client, GROUP)?;
        let living: Vec<u64> =
            group.iter().flat_map(|group| &group.members).filter_map(|member| server_of(&member.note)).collect();
        let are_here =
            |state: &mut FileClientState| living.iter().all(|server| state.servers.contains_key(server)).then_some(());
        // One that is stopped does not come.
        let _ = self.shared.wait(Instant::now() + SERVERS_WAIT_MAX, are_here);
        Ok(())
    }

    /// Returns the file servers that are here, once there are two.
    fn two_servers(&self) -> Result<Vec<u64>, QueueError> {
        self.wait("two file servers did not come", |state| {
            (state.servers.len() >= 2).then(|| state.servers.keys().copied().collect())
        })
    }

    fn load_parts(
        &self,
        catalogue: &Catalogue,
        from: &mut impl Read,
        begun: &mut Vec<(u64, [u64; 2])>,
    ) -> Result<Vec<PartRow>, QueueError> {
        // Collections of one part do not all lie on the same two servers.
        let (first, mut parts) = (random() as usize, Vec::new());
        let is_complete = split(from, PartLimits::COLLECTION, |number, from, bytes_max| {
            let servers = self.two_servers()?;
            let server = |ahead: usize| servers[first.wrapping_add(number as usize + ahead) % servers.len()];
            let (pair, generation) = ([server(0), server(1)], random() % GENERATION_MAX);
            begun.push((generation, pair));
            let part = self.load_part(generation, pair, from, bytes_max)?;
            if part.bytes == 0 && number > 0 {
                // The one before was the last.
                self.shared.call(|state| state.abort(generation, pair));
            } else {
                catalogue.add(number, &part)?;
                parts.push(part);
            }
            Ok(part.bytes)
        })?;
        if !is_complete {
            let (collection, bytes_max) = (catalogue.name().to_owned(), PartLimits::COLLECTION.bytes_max());
            return Err(QueueError::CollectionTooLong { collection, bytes_max });
        }
        catalogue.complete(parts.len() as u32)?;
        Ok(parts)
    }

    /// Loads a part on two servers, up to the end of the reader or so many bytes.
    pub(super) fn load_part(
        &self,
        generation: u64,
        servers: [u64; 2],
        from: &mut impl Read,
        bytes_max: u64,
    ) -> Result<PartRow, QueueError> {
        let lost = |server| QueueError::ServerLost { server };
        self.shared.call(|state| state.write(generation, servers)).map_err(lost)?;
        let (mut bytes, mut buffer) = (0_u64, vec![0; CHUNK_BYTES as usize]);
        while bytes < bytes_max {
            let length = fill(from, &mut buffer)?;
            if length == 0 {
                break;
            }
            let slot = self.written("a file server did not store a chunk", |state| state.free_slot(WRITE_WINDOW))?;
            self.outbox.write(slot, &buffer[..length]);
            let (chunk, checksum) = ((bytes / u64::from(CHUNK_BYTES)) as u32, crc32c::crc32c(&buffer[..length]));
            self.shared.call(|state| state.store(chunk, slot, length as u32, checksum));
            bytes += length as u64;
            if length < buffer.len() {
                break;
            }
        }
        self.written("a file server did not store a chunk", |state| state.is_stored().then_some(()))?;
        self.shared.call(|state| state.commit(bytes));
        self.written("a file server did not complete a part", |state| state.is_committed().then_some(()))?;
        Ok(PartRow { bytes, generation, servers })
    }

    /// Reads a collection, from its first byte to its last one.
    ///
    /// # Errors
    /// There is none of this name, or a call failed.
    pub fn read(&mut self, name: &str) -> Result<CollectionReader<'_>, QueueError> {
        let parts = Catalogue::read(&self.client, name)?;
        Ok(CollectionReader::new(self, name, 0, parts))
    }

    /// Begins to read a collection in the order in which its chunks come.
    ///
    /// # Errors
    /// There is none of this name, or a call failed.
    pub fn read_unordered(&mut self, name: &str) -> Result<UnorderedReader<'_>, QueueError> {
        let parts = Catalogue::read(&self.client, name)?;
        Ok(UnorderedReader(self.parts(name, 0, parts, ReadOrder::Any)))
    }

    fn parts(&self, name: &str, first: u32, parts: Vec<PartRow>, order: ReadOrder) -> Parts<'_> {
        Parts { files: self, name: name.to_owned(), first, parts, part: 0, taken: 0, order }
    }

    /// Reads each chunk of a collection at both of its servers. Returns what is damaged or missing: a server that does not come, or
    /// the first such chunk of a part at a server.
    ///
    /// # Errors
    /// There is no such collection, or a call failed.
    pub fn verify(&mut self, name: &str) -> Result<Vec<Damage>, QueueError> {
        let parts = Catalogue::read(&self.client, name)?;
        let (mut damages, mut absent) = (Vec::new(), Vec::new());
        for (number, part) in (0..).zip(parts) {
            for mirror in Mirror::BOTH {
                let server = part.servers[mirror as usize];
                let damage = |chunk| Damage { part: number, server, chunk };
                // One that did not come once is not waited for again.
                if absent.contains(&server) {
                    damages.push(damage(None));
                    continue;
                }
                let came = self.wait("", |state| state.servers.contains_key(&server).then_some(()));
                match came.and_then(|()| self.verify_part(number, part, mirror)) {
                    Ok(None) => {}
                    Ok(Some(chunk)) => damages.push(damage(Some(chunk))),
                    Err(QueueError::TimedOut { .. }) => {
                        absent.push(server);
                        damages.push(damage(None));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.shared.call(|state| state.reading = None);
        Ok(damages)
    }

    /// Reads a part at one server. Returns the first chunk that it does not have.
    fn verify_part(&self, number: u32, part: PartRow, mirror: Mirror) -> Result<Option<u32>, QueueError> {
        self.shared.call(|state| state.read(number, part, ReadOrder::Rising, Some(mirror)))?;
        for chunk in 0..chunks_of(part.bytes) {
            let taken = self.wait("a file server does not answer", |state| match state.take(Some(chunk)) {
                Some(_) => Some(None),
                None => state.reading.as_ref()?.failed.map(Some),
            })?;
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    }

    /// Waits for a chunk of the part that is read, this one or any one, or for one that no mirror has. A mirror that owes it for longer
    /// than a lost server would be waited for is passed over.
    fn wait_for_chunk(&self, chunk: Option<u32>) -> Result<Result<(u32, Vec<u8>), u32>, QueueError> {
        let patience = self.options.endpoint.lease + Duration::from_secs(1);
        let mut pass_over_at = Instant::now() + patience;
        self.wait("no mirror of a part came", |state| {
            if let Some(taken) = state.take(chunk) {
                return Some(Ok(taken));
            }
            if Instant::now() >= pass_over_at {
                pass_over_at += patience;
                state.pass_over(chunk);
            }
            state.reading.as_ref()?.failed.map(Err)
        })
    }

    pub(super) fn wait<T>(
        &self,
        what: &'static str,
        mut attempt: impl FnMut(&mut FileClientState) -> Option<T>,
    ) -> Result<T, QueueError> {
        let fenced = || QueueError::Fenced { queue: GROUP.to_owned() };
        let timeout = self.options.endpoint.timeout;
        let attempt =
            |state: &mut FileClientState| if state.is_fenced { Some(Err(fenced())) } else { attempt(state).map(Ok) };
        let result = self.shared.wait(Instant::now() + timeout, attempt);
        result.unwrap_or_else(|| Err(QueueError::TimedOut { queue: GROUP.to_owned(), what, waited: timeout }))
    }

    /// Waits for a step of the part that is written.
    fn written<T>(&self, what: &'static str, attempt: impl Fn(&FileClientState) -> Option<T>) -> Result<T, QueueError> {
        self.wait(what, |state| match state.writing.as_ref().and_then(|writing| writing.failed) {
            Some(server) => Some(Err(QueueError::ServerLost { server })),
            None => attempt(state).map(Ok),
        })?
    }
}

/// The parts of a collection that are read, and the chunks that were taken.
#[derive(Debug)]
struct Parts<'f> {
    files: &'f Files,
    name: String,
    /// Number of the first part.
    first: u32,
    parts: Vec<PartRow>,
    part: usize,
    /// Chunks of the part that were taken.
    taken: u32,
    order: ReadOrder,
}

impl Parts<'_> {
    /// Returns the next chunk, with the position of its first byte. `None` at the end.
    fn next_chunk(&mut self) -> Result<Option<CollectionChunk>, QueueError> {
        loop {
            let Some(part) = self.parts.get(self.part).copied() else { return Ok(None) };
            if self.taken == chunks_of(part.bytes) {
                (self.part, self.taken) = (self.part + 1, 0);
                continue;
            }
            let (number, next) = (self.first + self.part as u32, self.taken);
            if next == 0 {
                self.files.shared.call(|state| state.read(number, part, self.order, None))?;
            }
            let taken = self.files.wait_for_chunk((self.order == ReadOrder::Rising).then_some(next));
            let taken = taken.map_err(|error| self.name_chunk(error, number, next))?;
            let lost = |chunk| QueueError::ChunkLost {
                collection: self.name.clone(),
                part: number,
                chunk,
                servers: part.servers,
            };
            let (chunk, bytes) = taken.map_err(lost)?;
            self.taken += 1;
            let before: u64 = self.parts[..self.part].iter().map(|part| part.bytes).sum();
            return Ok(Some(CollectionChunk { position: before + u64::from(chunk) * u64::from(CHUNK_BYTES), bytes }));
        }
    }

    /// Names the chunk that did not come in time.
    fn name_chunk(&self, error: QueueError, part: u32, next: u32) -> QueueError {
        let QueueError::TimedOut { waited, .. } = error else { return error };
        let (chunk, absent, damaged) = self.files.shared.call(|state| state.awaited(next));
        QueueError::ChunkAway { collection: self.name.clone(), part, chunk, absent, damaged, waited }
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        self.files.shared.call(|state| state.reading = None);
    }
}

/// A chunk of a collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectionChunk {
    /// Position of its first byte in the collection.
    pub position: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reader of the chunks of a collection as they come: one mirror of a part is read from the front, the other from the back, until they
/// meet. A slow mirror costs its share and no more.
#[derive(Debug)]
pub struct UnorderedReader<'f>(Parts<'f>);

impl UnorderedReader<'_> {
    /// Returns the next chunk that has come. `None` at the end.
    ///
    /// # Errors
    /// No mirror of a part came in time, or both have a chunk that is damaged or missing: the error names it.
    pub fn next_chunk(&mut self) -> Result<Option<CollectionChunk>, QueueError> {
        self.0.next_chunk()
    }
}

/// Reader of a collection: each chunk from the mirror that has it first, in order. While one mirror of a part lives, the reading
/// goes on.
#[derive(Debug)]
pub struct CollectionReader<'f> {
    parts: Parts<'f>,
    buffer: io::Cursor<Vec<u8>>,
}

impl<'f> CollectionReader<'f> {
    pub(super) fn new(files: &'f Files, name: &str, first: u32, parts: Vec<PartRow>) -> Self {
        Self { parts: files.parts(name, first, parts, ReadOrder::Rising), buffer: io::Cursor::new(Vec::new()) }
    }

    /// Returns the next chunk. `None` at the end.
    ///
    /// # Errors
    /// No mirror of a part came in time, or both have a chunk that is damaged or missing: the error names it.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, QueueError> {
        Ok(self.parts.next_chunk()?.map(|chunk| chunk.bytes))
    }
}

impl Read for CollectionReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.buffer.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            match self.next_chunk().map_err(io::Error::other)? {
                Some(chunk) => self.buffer = io::Cursor::new(chunk),
                None => return Ok(0),
            }
        }
    }
}

/// Returns a random number.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
