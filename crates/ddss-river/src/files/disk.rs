//! The thread of a file server that reads and writes its files.
//!
//! A call to a disk may take longer than a member may be silent: the service thread, which answers the members, makes none.
//! The thread executes the jobs in their order.

use super::port::Chunk;
use super::store::{NewPart, Store, StoredPart};
use crate::state::SlotMemory;
use ddss_group::{Member, Wake};
use ddss_river_core::ChunkRequest;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Parts that are open for reading.
const OPEN_MAX: usize = 64;
/// Parts that one member writes at the same time.
const WRITES_MAX: usize = 4;

/// Work for the disk.
#[derive(Debug)]
pub(super) enum Job {
    /// Reads a chunk into a slot from which it is sent.
    Read { slot: u16, request: ChunkRequest },
    /// Writes a chunk, which is in a slot of its writer until the reply.
    Store { generation: u64, chunk: u32, bytes: Chunk, checksum: u32 },
    /// Completes a part.
    Commit { generation: u64, bytes: u64 },
    /// Drops a part of a collection whose loading failed.
    Abort { generation: u64 },
    /// Forgets a member, which has ended.
    Forget,
}

/// Result of a job.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The bytes in the slot, and their checksum when they were written. `None` if this server does not have the chunk.
    Read {
        slot: u16,
        request: ChunkRequest,
        found: Option<(u32, u32)>,
    },
    Stored {
        generation: u64,
        chunk: u32,
        is_done: bool,
    },
    Committed {
        generation: u64,
        is_done: bool,
    },
    /// No member waits for it.
    Done,
}

/// A job or its result, and the process that asked for it.
#[derive(Debug)]
pub(super) struct Asked<T> {
    pub(super) member: Member,
    /// Number of its connection: another process may have the place by now.
    pub(super) life: u32,
    pub(super) what: T,
}

type Outcomes = Mutex<VecDeque<Asked<Outcome>>>;

/// The thread, and the jobs on their way to and from it. Dropping it waits for the jobs.
#[derive(Debug)]
pub(super) struct Disk {
    jobs: Option<Sender<Asked<Job>>>,
    outcomes: Arc<Outcomes>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// Starts the thread over the files of a server. It reads chunks into the slots, and wakes the service thread.
    pub(super) fn start(store: Store, slots: SlotMemory, wake: Arc<Wake>) -> io::Result<Self> {
        let (jobs, receiver) = channel();
        let outcomes = Arc::new(Outcomes::default());
        let worker = Worker {
            store,
            slots,
            parts: BTreeMap::new(),
            writes: BTreeMap::new(),
            written: BTreeSet::new(),
            outcomes: outcomes.clone(),
            wake,
        };
        let thread = std::thread::Builder::new().name("ddss-disk".to_owned()).spawn(move || worker.run(&receiver))?;
        Ok(Self { jobs: Some(jobs), outcomes, thread: Some(thread) })
    }

    /// Hands a job over. The caller bounds the jobs of a member.
    pub(super) fn ask(&self, job: Asked<Job>) {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        assert!(sent, "the disk's thread runs");
    }

    /// Returns the next result.
    pub(super) fn next(&self) -> Option<Asked<Outcome>> {
        // Without its thread the server answers nothing: it must not look as if it served.
        assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "the disk's thread runs");
        lock(&self.outcomes).pop_front()
    }

    pub(super) fn has_outcomes(&self) -> bool {
        !lock(&self.outcomes).is_empty()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

fn lock(outcomes: &Outcomes) -> MutexGuard<'_, VecDeque<Asked<Outcome>>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files of a server, and their writers.
struct Worker {
    store: Store,
    slots: SlotMemory,
    /// Parts that are open for reading.
    parts: BTreeMap<u64, StoredPart>,
    writes: BTreeMap<(Member, u64), NewPart>,
    /// Complete parts, each with the member that has written it and may drop it while it is here.
    written: BTreeSet<(Member, u64)>,
    outcomes: Arc<Outcomes>,
    wake: Arc<Wake>,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Asked<Job>>) {
        for Asked { member, life, what } in jobs {
            let what = self.execute(member, what);
            lock(&self.outcomes).push_back(Asked { member, life, what });
            self.wake.wake();
        }
    }

    fn execute(&mut self, member: Member, job: Job) -> Outcome {
        match job {
            Job::Read { slot, request } => {
                let found = self.read(slot, request.generation, request.chunk).ok();
                return Outcome::Read { slot, request, found };
            }
            Job::Store { generation, chunk, bytes, checksum } => {
                let is_done = self.store_chunk((member, generation), chunk, &bytes, checksum);
                return Outcome::Stored { generation, chunk, is_done };
            }
            Job::Commit { generation, bytes } => {
                return Outcome::Committed { generation, is_done: self.commit(member, generation, bytes) };
            }
            Job::Abort { generation } => self.abort(member, generation),
            Job::Forget => self.forget(member),
        }
        Outcome::Done
    }

    /// Reads a chunk into a slot. Returns its length and its checksum.
    fn read(&mut self, slot: u16, generation: u64, chunk: u32) -> io::Result<(u32, u32)> {
        // The files of an open part may have been deleted or replaced.
        if self.parts.get(&generation).is_none_or(|part| !self.store.is_current(generation, part)) {
            self.parts.remove(&generation);
            let part = self.store.part(generation)?;
            if self.parts.len() == OPEN_MAX {
                self.parts.pop_first();
            }
            self.parts.insert(generation, part);
        }
        let (bytes, checksum) = self.parts[&generation].read(chunk)?;
        self.slots.write(slot, &bytes);
        Ok((bytes.len() as u32, checksum))
    }

    fn store_chunk(&mut self, key: (Member, u64), chunk: u32, bytes: &Chunk, checksum: u32) -> bool {
        let bytes = bytes.copy();
        if crc32c::crc32c(&bytes) != checksum {
            self.drop_write(key);
            return false;
        }
        if !self.writes.contains_key(&key) {
            let others = self.writes.range((key.0, 0)..=(key.0, u64::MAX)).count();
            let new = if others < WRITES_MAX { self.store.create(key.1).ok() } else { None };
            let Some(new) = new else { return false };
            self.writes.insert(key, new);
        }
        let written = self.writes.get_mut(&key).is_some_and(|part| part.write(chunk, &bytes, checksum).is_ok());
        if !written {
            self.drop_write(key);
        }
        written
    }

    fn commit(&mut self, member: Member, generation: u64, bytes: u64) -> bool {
        // A part without bytes has no chunks.
        let part = self.writes.remove(&(member, generation)).map_or_else(|| self.store.create(generation), Ok);
        let Ok(part) = part else { return false };
        let committed = self.store.commit(&part, bytes);
        if committed.is_err() {
            self.store.discard(&part);
            self.store.remove(generation);
        } else {
            self.written.insert((member, generation));
        }
        committed.is_ok()
    }

    fn drop_write(&mut self, key: (Member, u64)) {
        if let Some(part) = self.writes.remove(&key) {
            self.store.discard(&part);
        }
    }

    fn abort(&mut self, member: Member, generation: u64) {
        self.drop_write((member, generation));
        if self.written.remove(&(member, generation)) {
            self.parts.remove(&generation);
            self.store.remove(generation);
        }
    }

    fn forget(&mut self, member: Member) {
        let keys: Vec<_> = self.writes.range((member, 0)..=(member, u64::MAX)).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.drop_write(key));
        self.written.retain(|(writer, _)| *writer != member);
    }
}
