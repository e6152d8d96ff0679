//! A file server.

use super::catalogue::PARTS_MAX;
use super::disk::{Asked, Disk, Job, Outcome};
use super::options::{FilesOptions, GROUP};
use super::port::{Endpoint, Handler, Order, Port};
use super::store::Store;
use super::wire::{FileMessage, WRITE_WINDOW};
use crate::error::QueueError;
use ddss::Client;
use ddss_group::{Member, Wake};
use ddss_river_core::codec::{Message, decode, encode};
use ddss_river_core::{ChunkReply, ChunkRequest, ChunkServer, ReaderId};
use ddss_runtime::{IdleConfig, ProgressThread};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Slots from which chunks are sent.
const SEND_SLOTS: u16 = 8;
/// Chunks that the disk has to read, at most: the one that it reads, and the next one. Readers that come meanwhile may lag more.
const READS_MAX: u32 = 2;
/// Jobs of one member that the disk has not done, at most: a member drops all parts of a collection at the same time.
const JOBS_MAX: u32 = PARTS_MAX + 2 * WRITE_WINDOW as u32;
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
        let member = options.join(client, number)?;
        let wake = Arc::new(Wake::new()?);
        let outbox = Port::slots("ddss-river-send", SEND_SLOTS)?;
        let (lease, is_fenced) = (options.endpoint.lease, Arc::new(AtomicBool::new(false)));
        let fenced = is_fenced.clone();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let thread = ProgressThread::start("ddss-files", None, IdleConfig::for_cores(cores), move || {
            let disk = Disk::start(store, outbox.clone(), wake.clone())?;
            let port = Port::new(member, wake, lease, number, (outbox, WRITE_WINDOW))?;
            let server = Server {
                disk,
                engine: ChunkServer::default(),
                readers: BTreeMap::new(),
                jobs: BTreeMap::new(),
                reads: 0,
                is_busy: [false; SEND_SLOTS as usize],
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

    /// Returns the reason if it serves nobody any more: [`QueueError::Fenced`], or [`QueueError::Stopped`] after a panic. Start it
    /// again.
    #[must_use]
    pub fn failure(&self) -> Option<QueueError> {
        let queue = || GROUP.to_owned();
        if !self.thread.is_running() {
            return Some(QueueError::Stopped { queue: queue() });
        }
        self.is_fenced.load(Ordering::Relaxed).then(|| QueueError::Fenced { queue: queue() })
    }
}

struct Server {
    disk: Disk,
    engine: ChunkServer,
    /// Readers of each member, by the engine's numbers.
    readers: BTreeMap<Member, Vec<ReaderId>>,
    /// Jobs of each member that the disk has not done.
    jobs: BTreeMap<Member, u32>,
    /// Chunks that the disk has to read.
    reads: u32,
    /// Slots that the disk fills, or whose bytes must not change yet.
    is_busy: [bool; SEND_SLOTS as usize],
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

    /// Hands a job of a connected member to the disk. Returns false if the member has too many.
    fn ask(&mut self, port: &Port, member: Member, what: Job) -> bool {
        let jobs = self.jobs.entry(member).or_default();
        *jobs += 1;
        let is_bounded = *jobs <= JOBS_MAX;
        if is_bounded {
            self.disk.ask(Asked { member, life: port.life(member), what });
        }
        is_bounded
    }

    /// Reports the end of a job to the member that asked for it.
    fn report(&mut self, port: &mut Port, Asked { member, life, what }: Asked<Outcome>) {
        let is_here = port.is_up(member) && port.life(member) == life;
        if let Outcome::Read { slot, .. } = what {
            self.reads -= 1;
            self.is_busy[usize::from(slot)] = false;
        } else if let Some(jobs) = self.jobs.get_mut(&member).filter(|_| is_here) {
            *jobs -= 1;
        }
        // The slots of a successor are not those of the process that asked.
        if !is_here {
            return;
        }
        match what {
            Outcome::Read { slot, request, found } => self.send(port, member, slot, request, found),
            Outcome::Stored { generation, chunk, is_done } => {
                port.send(member, &FileMessage::Stored { generation, chunk, is_done });
            }
            Outcome::Committed { generation, is_done } => {
                port.send(member, &FileMessage::Committed { generation, is_done });
            }
            Outcome::Done => {}
        }
    }

    /// Sends a chunk that the disk has read.
    fn send(&mut self, port: &mut Port, member: Member, slot: u16, request: ChunkRequest, found: Option<(u32, u32)>) {
        let ChunkRequest { part, generation, chunk, .. } = request;
        let reader = ReaderId(request.reader.0 % READERS_OF_MEMBER);
        if let Some((length, _)) = found {
            port.order(member, Order::Chunk { from: slot, into: request.slot, length });
            self.is_busy[usize::from(slot)] = true;
        }
        // Without the chunk the other mirror is asked.
        let (generation, checksum) = found.map_or((None, 0), |(_, checksum)| (Some(generation), checksum));
        let mut bytes = Vec::new();
        let reply = ChunkReply { reader, part, generation, chunk, slot: request.slot, checksum };
        encode(&Message::ChunkReply(reply), &mut bytes);
        port.send(member, &FileMessage::Chunks(&bytes));
    }

    /// Hands the disk the requests of the readers that lag most. Returns their number.
    fn read(&mut self, port: &Port) -> usize {
        let mut count = 0;
        while self.reads < READS_MAX
            && let Some(slot) = self.is_busy.iter().position(|is_busy| !is_busy)
            && let Some(request) = self.engine.take()
        {
            let member = Member((request.reader.0 / READERS_OF_MEMBER) as u16);
            self.is_busy[slot] = true;
            self.reads += 1;
            count += 1;
            let what = Job::Read { slot: slot as u16, request };
            self.disk.ask(Asked { member, life: port.life(member), what });
        }
        count
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
            FileMessage::Store { generation, chunk, slot, length, checksum } => {
                let Some(bytes) = port.chunk(from, slot, length) else { return false };
                self.ask(port, from, Job::Store { generation, chunk, bytes, checksum })
            }
            FileMessage::Commit { generation, bytes } => self.ask(port, from, Job::Commit { generation, bytes }),
            FileMessage::Abort { generation } => self.ask(port, from, Job::Abort { generation }),
            _ => false,
        }
    }

    fn on_end(&mut self, port: &mut Port, member: Member) {
        for reader in self.readers.remove(&member).unwrap_or_default() {
            self.engine.disconnect(reader);
        }
        self.jobs.remove(&member);
        self.disk.ask(Asked { member, life: port.life(member), what: Job::Forget });
    }

    fn on_sent(&mut self, slot: u16) {
        if let Some(is_busy) = self.is_busy.get_mut(usize::from(slot)) {
            *is_busy = false;
        }
    }

    fn on_fenced(&mut self) {
        self.is_fenced.store(true, Ordering::Relaxed);
    }

    fn work(&mut self, port: &mut Port) -> usize {
        let mut count = 0;
        while let Some(outcome) = self.disk.next() {
            self.report(port, outcome);
            count += 1;
        }
        count + self.read(port)
    }

    fn has_work(&self) -> bool {
        self.disk.has_outcomes()
    }
}
