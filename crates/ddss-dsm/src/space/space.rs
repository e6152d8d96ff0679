//! A space, and the calls of a rank that the engine answers.

use super::directory::Record;
use super::options::SpaceOptions;
use crate::check::{ReadLog, Trace, TracedRegion};
use crate::checkpoint::{Checkpoints, CompleteCheckpoint, Reason};
use crate::error::SpaceError;
use crate::fault::DescribePage;
use crate::report;
use crate::sys::{Frames, Refused};
use crate::transport::{Call, Command, OWN_INDICES, OwnEnd, RankMemory, Reply, Service, ServiceConfig};
use ddss::Client;
use ddss_dsm_core::{
    Access, Failure, Homes, PageId, PageRange, Rank, Request, SETTINGS_BYTES, SettingsError, Statistics,
};
use ddss_group::{
    Context, GroupState, Incarnation, JoinError, JoinOptions, Member, Membership, Mesh, NOTE_BYTES, Wake,
};
use ddss_runtime::{IdleConfig, ProgressThread};
use ddss_verbs::IwarpConfig;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Release of the messages between ranks.
const RELEASE: u8 = 3;
/// Time in which rank 0 ends a space that this rank has given up.
const GIVE_UP_MAX: Duration = Duration::from_secs(1);
/// Bytes of the longest message of the fabric: a packed page fits.
const MESSAGE_BYTES: usize = 16 << 10;

/// Memory of pages that several processes share, its *ranks*.
///
/// A rank sees what others wrote before they released a lock that it acquires, or before a barrier at which both were. Without
/// such an order a read returns old or new bytes.
///
/// Its bytes are those of its [regions](crate::Region). Dropping a space without [`leave`](Self::leave) is a death: the others fail with the rank's number.
pub struct Space {
    rank: Rank,
    ranks: u16,
    bytes: u64,
    timeout: Duration,
    commands: Sender<Command>,
    wake: Arc<Wake>,
    frames: Arc<Frames>,
    thread: ProgressThread,
    pub(crate) checkpoints: Checkpoints,
    directory: GroupState,
    /// Rank whose loss has ended the space.
    lost: OnceLock<Rank>,
    /// Reason of this rank for the end of the space.
    own_end: Arc<OnceLock<OwnEnd>>,
    tracing: Option<Tracing>,
    /// Regions that this rank has opened, for the messages of page faults.
    regions: Arc<Mutex<Vec<Record>>>,
}

/// Trace of a rank, and its reads that are not in it yet.
#[derive(Debug)]
struct Tracing {
    trace: Arc<Trace>,
    reads: ReadLog,
}

impl Space {
    /// Joins a space by name, and makes it if it does not exist. Waits until all ranks are there.
    pub(crate) fn start(client: &Client, name: &str, options: SpaceOptions) -> Result<Self, SpaceError> {
        let mut wire = IwarpConfig::default();
        wire.message_bytes_max = MESSAGE_BYTES;
        let (fabric, join) = options.endpoint.bind(wire, options.ranks).map_err(SpaceError::Join)?;
        let message_bytes = Mesh::message_bytes_max(&fabric) - 1;
        let settings = options.config(Rank::ZERO, message_bytes);
        settings.check()?;
        let membership =
            join_group(client, name, join, options.rank, &settings.encode_settings()).map_err(|error| match error {
                JoinError::OtherSettings { theirs, .. } => explain(&theirs, &settings),
                JoinError::Row(row) => SpaceError::OtherRelease { space: name.to_owned(), row },
                other => SpaceError::Join(other),
            })?;
        let directory = membership.group_state();
        let rank = Rank::new(membership.ours().member.0.into()).ok_or(SpaceError::Ended)?;
        let wake = Arc::new(Wake::new().map_err(SpaceError::System)?);
        let (commands, receiver) = channel();
        let engine = options.config(rank, message_bytes);
        let trace =
            options.trace.as_deref().map(|folder| Trace::create(folder, rank.index() as u16, (name, options.ranks)));
        let trace = trace.transpose().map_err(SpaceError::Trace)?.map(Arc::new);
        let memory = RankMemory::create(&engine, options.view_address()).map_err(SpaceError::Memory)?;
        let (frames, regions) = (memory.frames(), Arc::<Mutex<Vec<Record>>>::default());
        let faults = options.faults((rank, &frames, &wake), describe_page(regions.clone()))?;
        let homes = memory.home_frames().map_err(SpaceError::Memory)?;
        let checkpoints = Checkpoints::new(client, name, rank.index() as u16, homes, options.endpoint.timeout);
        let (lost, own_end) = (OnceLock::new(), Arc::new(OnceLock::new()));
        let config = ServiceConfig {
            engine,
            memory,
            context: Context { name: *b"DDSS pages", release: RELEASE },
            lease: options.endpoint.lease,
            membership,
            fabric: Box::new(fabric),
            commands: receiver,
            wake: wake.clone(),
            trace: trace.clone(),
            own_end: own_end.clone(),
            faults,
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let thread =
            ProgressThread::start("ddss-dsm", None, IdleConfig::for_cores(cores), move || Service::new(config))?;
        let bytes = options.bytes.next_multiple_of(SpaceOptions::PAGE_BYTES.into());
        let (ranks, timeout) = (options.ranks, options.endpoint.timeout);
        let tracing = trace.map(|trace| Tracing { trace, reads: ReadLog::default() });
        let space = Self {
            rank,
            ranks,
            bytes,
            timeout,
            commands,
            wake,
            frames,
            thread,
            checkpoints,
            directory,
            lost,
            own_end,
            tracing,
            regions,
        };
        match space.call(Call::Ready) {
            Err(SpaceError::TimedOut(waited, _)) => Err(SpaceError::Missing { ranks, waited }),
            ended => ended.map(|_| space),
        }
    }

    /// Returns this rank's number.
    #[must_use]
    pub fn rank(&self) -> u16 {
        self.rank.index() as u16
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u16 {
        self.ranks
    }

    /// Returns the bytes of the space: whole pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a space has at least one page")]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Waits until all ranks are at the barrier. What any rank wrote before it, all see after it.
    ///
    /// # Errors
    /// A rank is lost, or late.
    pub fn barrier(&mut self) -> Result<(), SpaceError> {
        self.call(Call::Engine(Request::Barrier(0))).map(drop)
    }

    /// Acquires a lock. The section ends when the value is dropped.
    ///
    /// # Errors
    /// A rank is lost, or holds the lock for too long.
    pub fn lock(&mut self, lock: u32) -> Result<Section<'_>, SpaceError> {
        self.begin_section(Self::check_index("lock", lock)?)
    }

    /// Acquires a lock, which [`release`](Self::release) releases: for sections that overlap. [`lock`](Self::lock) releases by itself.
    ///
    /// # Errors
    /// A rank is lost, holds the lock for too long, or this rank has it already.
    pub fn acquire(&mut self, lock: u32) -> Result<(), SpaceError> {
        self.call(Call::Engine(Request::Lock(Self::check_index("lock", lock)?))).map(drop)
    }

    /// Releases a lock that [`acquire`](Self::acquire) has acquired.
    ///
    /// # Errors
    /// A rank is lost, or this rank has not acquired the lock.
    pub fn release(&mut self, lock: u32) -> Result<(), SpaceError> {
        self.call(Call::Engine(Request::Unlock(Self::check_index("lock", lock)?))).map(drop)
    }

    /// Adds one to a semaphore. A rank that waits for it sees what this rank wrote before.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn post(&mut self, semaphore: u32) -> Result<(), SpaceError> {
        self.post_own(Self::check_index("semaphore", semaphore)?)
    }

    /// Waits until a semaphore is positive, and takes one off.
    ///
    /// # Errors
    /// A rank is lost, or nobody posts in time.
    pub fn wait(&mut self, semaphore: u32) -> Result<(), SpaceError> {
        let semaphore = Self::check_index("semaphore", semaphore)?;
        self.call(Call::Engine(Request::Wait(semaphore))).map(drop)
    }

    /// Adds to a counter of the space, and returns its value before. It orders as a lock does.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn add(&mut self, counter: u32, delta: u64) -> Result<u64, SpaceError> {
        self.add_own(Self::check_index("counter", counter)?, delta)
    }

    /// Returns the counters of this rank.
    ///
    /// # Errors
    /// The service thread has ended.
    pub fn statistics(&self) -> Result<Statistics, SpaceError> {
        match self.call(Call::Statistics)? {
            Reply::Statistics(counters) => Ok(*counters),
            Reply::Value(_) => Err(SpaceError::Ended),
        }
    }

    /// Waits until all ranks leave.
    pub(crate) fn await_leave(&self) -> Result<(), SpaceError> {
        self.call(Call::AwaitLeave).map(drop)
    }

    /// Ends this rank, which has waited for the others.
    pub(crate) fn end(self) -> Result<(), SpaceError> {
        self.call(Call::Leave)?;
        self.thread.stop()?;
        self.tracing.map_or(Ok(()), |tracing| tracing.trace.end()).map_err(SpaceError::Trace)
    }

    /// Returns the frames, which this space has for itself: they tell it from others of this process.
    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Notes that the application reads a range, if races are looked for.
    pub(crate) fn note_read(&self, bytes: &Range<u64>) {
        if let Some(tracing) = &self.tracing {
            tracing.reads.add(bytes.clone());
        }
    }

    /// Notes a region that this rank has opened.
    pub(crate) fn note_region(&self, record: &Record) -> Result<(), SpaceError> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if !regions.contains(record) {
            regions.push(*record);
        }
        drop(regions);
        let Some(tracing) = &self.tracing else { return Ok(()) };
        let (offset, name, (elements, bytes)) = (record.offset(), record.name(), record.elements());
        tracing.trace.write_region(&TracedRegion { offset, elements, bytes, name }).map_err(SpaceError::Trace)
    }

    /// Opens the pages of a range.
    pub(crate) fn open(&self, bytes: &Range<u64>, access: Access) -> Result<(), SpaceError> {
        if self.frames.are_open(bytes, access) {
            return Ok(());
        }
        self.call(Call::Engine(Request::Touch { pages: pages(bytes), access })).map(drop)
    }

    /// Returns the error of a view. Pages that were open a moment ago are closed when the space ends: the service thread knows why.
    pub(crate) fn explain(&self, refused: Refused) -> SpaceError {
        if refused == Refused::Closed {
            return self.call(Call::Ready).err().unwrap_or(SpaceError::Ended);
        }
        refused.into()
    }

    pub(crate) fn lock_directory(&mut self) -> Result<Section<'_>, SpaceError> {
        self.begin_section(OWN_INDICES)
    }

    /// Waits until the writes of this rank are at their homes.
    pub(crate) fn place(&mut self) -> Result<(), SpaceError> {
        self.call(Call::Engine(Request::Place)).map(drop)
    }

    /// Meets all ranks at a barrier that is not the application's. The others may take a whole timeout for what they do before.
    pub(crate) fn meet(&mut self) -> Result<(), SpaceError> {
        self.call_within(Call::Engine(Request::Barrier(OWN_INDICES)), 2 * self.timeout).map(drop)
    }

    /// Adds one to any semaphore.
    pub(crate) fn post_own(&mut self, semaphore: u32) -> Result<(), SpaceError> {
        self.call(Call::Engine(Request::Post(semaphore))).map(drop)
    }

    /// Waits for any semaphore as long as in [`meet`](Self::meet).
    pub(crate) fn wait_own(&mut self, semaphore: u32) -> Result<(), SpaceError> {
        self.call_within(Call::Engine(Request::Wait(semaphore)), 2 * self.timeout).map(drop)
    }

    /// Adds to any counter, and returns its value before.
    pub(crate) fn add_own(&mut self, counter: u32, delta: u64) -> Result<u64, SpaceError> {
        match self.call(Call::Engine(Request::Add { counter, delta }))? {
            Reply::Value(before) => Ok(before),
            Reply::Statistics(_) => Err(SpaceError::Ended),
        }
    }

    /// Names a checkpoint that all ranks have written.
    pub(crate) fn write_root(&self, entry: CompleteCheckpoint) -> Result<(), Reason> {
        self.checkpoints.write_root(self.ranks, entry, &self.directory)
    }

    /// Returns the random number of rank 0's process, which names this life of the space.
    pub(crate) fn life(&self) -> Result<u32, SpaceError> {
        match self.call(Call::Run(Rank::ZERO))? {
            Reply::Value(run) => Ok(run as u32),
            Reply::Statistics(_) => Err(SpaceError::Ended),
        }
    }

    /// Publishes the record of a region, so that `ddss dsm top` can name it.
    pub(crate) fn publish_region(&self, index: usize, record: &Record) {
        self.directory.publish_row(index as u16, zerocopy::transmute!(*record));
    }

    /// Assigns the homes of a range, and waits until all ranks have done so.
    pub(crate) fn assign_homes(&mut self, bytes: Range<u64>, homes: Homes) -> Result<(), SpaceError> {
        self.call(Call::AssignHomes { pages: pages(&bytes), homes })?;
        self.call(Call::Engine(Request::Barrier(OWN_INDICES))).map(drop)
    }

    fn begin_section(&mut self, lock: u32) -> Result<Section<'_>, SpaceError> {
        self.call(Call::Engine(Request::Lock(lock)))?;
        Ok(Section { space: self, lock, is_open: true })
    }

    fn check_index(what: &'static str, index: u32) -> Result<u32, SpaceError> {
        if index < OWN_INDICES { Ok(index) } else { Err(Failure::OutOfRange(what, index.into()).into()) }
    }

    fn call(&self, call: Call) -> Result<Reply, SpaceError> {
        self.call_within(call, self.timeout)
    }

    fn call_within(&self, call: Call, timeout: Duration) -> Result<Reply, SpaceError> {
        let synchronises = !matches!(call, Call::Engine(Request::Touch { .. }) | Call::Statistics);
        if let Some(reads) = self.tracing.as_ref().filter(|_| synchronises).map(|tracing| tracing.reads.take())
            && !reads.is_empty()
        {
            // Before the call that ends their interval.
            self.send(Call::Reads(reads))?;
        }
        match self.send(call)?.recv_timeout(timeout) {
            Ok(result) => result.map_err(|failure| self.error_of(failure)),
            Err(RecvTimeoutError::Timeout) => {
                // The call may still close pages: no view is made from now on.
                self.frames.end();
                Err(self.give_up(timeout))
            }
            Err(RecvTimeoutError::Disconnected) => Err(SpaceError::Ended),
        }
    }

    /// Ends the space, for all ranks. Returns the error of a call that has waited for so long.
    fn give_up(&self, waited: Duration) -> SpaceError {
        // Rank 0 names the missing ranks. Without its answer this rank gives up alone.
        for _ in 0..2 {
            let Ok(reply) = self.send(Call::Engine(Request::GiveUp)) else { break };
            match reply.recv_timeout(GIVE_UP_MAX) {
                Ok(Err(failure @ Failure::GaveUp { .. })) => return SpaceError::TimedOut(waited, failure),
                Ok(Err(failure)) => return self.error_of(failure),
                Ok(Ok(_)) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        SpaceError::Ended
    }

    /// Returns the error of a failure, with what the engine does not know.
    fn error_of(&self, failure: Failure) -> SpaceError {
        match failure {
            Failure::Lost(rank) if rank == self.rank => match self.own_end.get() {
                Some(OwnEnd::Unreadable(row)) => SpaceError::Join(JoinError::Row(*row)),
                Some(OwnEnd::Untraced(reason)) => SpaceError::Trace((*reason).into()),
                None => SpaceError::PlaceLost,
            },
            Failure::Lost(rank) => Failure::Lost(*self.lost.get_or_init(|| self.first_lost(rank))).into(),
            other => other.into(),
        }
    }

    /// Returns the rank whose loss has ended the space. A rank that is gone may have ended for the loss of another one, before it
    /// could tell this rank: its last word is in the directory. This rank leaves the same there, before it ends.
    fn first_lost(&self, noticed: Rank) -> Rank {
        let run = self.send(Call::Run(noticed)).ok().and_then(|reply| reply.recv_timeout(self.timeout).ok());
        let first = match run {
            Some(Ok(Reply::Value(run))) => {
                let whom = Incarnation { member: Member(noticed.index() as u16), run: run as u32 };
                // Without a daemon it stays with what this rank has noticed.
                self.directory.last_word(whom).ok().flatten().and_then(|member| Rank::new(member.0.into()))
            }
            _ => None,
        };
        let lost = first.unwrap_or(noticed);
        let _ = self.directory.leave_word(Member(lost.index() as u16));
        lost
    }

    fn send(&self, call: Call) -> Result<Receiver<Result<Reply, Failure>>, SpaceError> {
        let (reply, result) = channel();
        self.commands.send(Command { call, reply }).map_err(|_| SpaceError::Ended)?;
        self.wake.wake();
        Ok(result)
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("rank", &self.rank).field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

/// Section under a lock. It gives the calls of the space; dropping it releases the lock.
#[derive(Debug)]
pub struct Section<'a> {
    space: &'a mut Space,
    lock: u32,
    is_open: bool,
}

impl Section<'_> {
    /// Releases the lock. Completes when the writes of the section are on their way, in order before the next holder's reads.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn unlock(mut self) -> Result<(), SpaceError> {
        self.is_open = false;
        self.space.call(Call::Engine(Request::Unlock(self.lock))).map(drop)
    }
}

impl Deref for Section<'_> {
    type Target = Space;

    fn deref(&self) -> &Space {
        self.space
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // A space that has ended says so at the next call.
            let _ = self.space.call(Call::Engine(Request::Unlock(self.lock)));
        }
    }
}

/// Returns what names the elements in a page.
fn describe_page(regions: Arc<Mutex<Vec<Record>>>) -> DescribePage {
    Box::new(move |page| {
        let regions = regions.lock().unwrap_or_else(PoisonError::into_inner);
        let found = regions.iter().find_map(|region| Some((region.name(), region.elements_in(page)?)));
        found.map_or_else(|| format!("page {}", page.0), |(name, elements)| format!("{name}[{elements:?}]"))
    })
}

/// Returns the pages that have bytes of a range.
fn pages(bytes: &Range<u64>) -> PageRange {
    let page_bytes = u64::from(SpaceOptions::PAGE_BYTES);
    let (first, end) = (bytes.start / page_bytes, bytes.end.div_ceil(page_bytes));
    // The ranges of regions are inside the space.
    PageRange { first: PageId(first as u32), pages: (end - first) as u32 }
}

fn join_group(
    client: &Client,
    name: &str,
    join: JoinOptions,
    rank: Option<u16>,
    ours: &[u8; SETTINGS_BYTES],
) -> Result<Membership, JoinError> {
    let mut settings = [0; NOTE_BYTES];
    settings[..SETTINGS_BYTES].copy_from_slice(ours);
    let mut join = join.settings(settings).extra_rows(report::ROWS);
    if let Some(rank) = rank {
        join = join.number(rank);
    }
    let join = |copies| Membership::join(client, &format!("dsm/{name}"), &join.copies(copies));
    // As its checkpoints, the directory survives a node. One that belongs to no cluster keeps one copy.
    match join(2) {
        Err(JoinError::Client(error)) if error.kind() == ddss::ErrorKind::Unsupported => join(1),
        Err(JoinError::OneCopy { .. }) => join(1),
        ended => ended,
    }
}

/// Names the first setting that differs.
fn explain(theirs: &[u8; NOTE_BYTES], ours: &ddss_dsm_core::Config) -> SpaceError {
    let mut settings = [0; SETTINGS_BYTES];
    settings.copy_from_slice(&theirs[..SETTINGS_BYTES]);
    // If no setting differs, bytes do that this release does not know.
    ours.compare_settings(&settings).err().unwrap_or(SettingsError::Format).into()
}
