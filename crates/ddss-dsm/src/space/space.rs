//! Joining, the calls of a rank, and leaving.

use super::options::SpaceOptions;
use crate::error::SpaceError;
use crate::transport::{Call, Command, Reply, Service, ServiceConfig};
use ddss::Client;
use ddss_auth::Context;
use ddss_dsm_core::{Failure, Rank, Request, SETTINGS_BYTES, SettingsError};
use ddss_group::{JoinError, JoinOptions, Membership, Mesh, NOTE_BYTES};
use ddss_runtime::{IdleConfig, ProgressThread};
use ddss_verbs::{Fabric, Iwarp, IwarpConfig};
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Release of the messages between ranks.
const RELEASE: u8 = 1;
/// Bytes of the longest message of the fabric: a packed page fits.
const MESSAGE_BYTES: usize = 16 << 10;
/// Lease of a rank's place: one that is stopped for longer is lost.
const LEASE: Duration = Duration::from_secs(10);

/// Memory of pages that several processes share, its *ranks*.
///
/// A rank sees what others wrote before they released a lock that it acquires, or before a barrier at which both were. Without
/// such an order a read returns old or new bytes.
///
/// Calls copy. Dropping a space without [`leave`](Self::leave) is a death: the others fail with the rank's number.
pub struct Space {
    rank: Rank,
    ranks: u16,
    bytes: u64,
    timeout: Duration,
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: ProgressThread,
}

impl Space {
    /// Joins a space by name, and makes it if it does not exist. Waits until all ranks are there.
    ///
    /// ```no_run
    /// use ddss_dsm::{Space, SpaceOptions};
    /// let client = ddss::Client::connect()?;
    /// let mut space = Space::join(&client, "solver", SpaceOptions::new(2, 1 << 20))?;
    /// let at = 8 * u64::from(space.rank());
    /// space.write(at, &7_u64.to_le_bytes())?;
    /// space.barrier()?;
    /// let mut both = [0; 16];
    /// space.read(0, &mut both)?;
    /// space.leave()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The directory cannot be joined, the settings differ, or ranks are missing at the deadline.
    pub fn join(client: &Client, name: &str, options: SpaceOptions) -> Result<Self, SpaceError> {
        let mut wire = IwarpConfig::default();
        wire.message_bytes_max = MESSAGE_BYTES;
        let mut fabric = Iwarp::new(wire).map_err(SpaceError::System)?;
        let address = fabric.listen(SocketAddr::new(options.listen, 0)).map_err(SpaceError::System)?;
        let message_bytes = Mesh::message_bytes_max(&fabric) - 1;
        let settings = options.config(Rank::ZERO, message_bytes);
        settings.check()?;
        let membership =
            join_group(client, name, &options, address, &settings.encode_settings()).map_err(|error| match error {
                JoinError::OtherSettings { theirs, .. } => explain(&theirs, &settings),
                other => SpaceError::Join(other),
            })?;
        let rank = Rank::new(membership.ours().member.0.into()).ok_or(SpaceError::Ended)?;
        let wake = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| SpaceError::System(e.into()))?,
        );
        let (commands, receiver) = channel();
        let config = ServiceConfig {
            engine: options.config(rank, message_bytes),
            context: Context { name: *b"DDSS pages", release: RELEASE },
            lease: LEASE,
            membership,
            fabric: Box::new(fabric),
            commands: receiver,
            wake: wake.clone(),
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let thread =
            ProgressThread::start("ddss-dsm", None, IdleConfig::for_cores(cores), move || Service::new(config))?;
        let bytes = options.bytes.next_multiple_of(SpaceOptions::PAGE_BYTES.into());
        let space = Self { rank, ranks: options.ranks, bytes, timeout: options.timeout, commands, wake, thread };
        match space.call(Call::Ready) {
            Err(SpaceError::TimedOut(waited)) => Err(SpaceError::Missing { ranks: options.ranks, waited }),
            other => other.map(|_| space),
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

    /// Copies bytes of the space.
    ///
    /// # Errors
    /// The range is outside, or the space has ended.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), SpaceError> {
        self.check(offset, into.len())?;
        if let Reply::Bytes(bytes) = self.call(Call::Read { offset, bytes: into.len() })? {
            into.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Writes bytes of the space. Others see them after an order: a lock, a barrier.
    ///
    /// # Errors
    /// The range is outside, or the space has ended.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), SpaceError> {
        self.check(offset, bytes.len())?;
        self.call(Call::Write { offset, bytes: bytes.to_vec() }).map(drop)
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
        self.call(Call::Engine(Request::Lock(lock)))?;
        Ok(Section { space: self, lock, is_open: true })
    }

    /// Adds to a counter of the space, and returns its value before. It orders as a lock does.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn add(&mut self, counter: u32, delta: u64) -> Result<u64, SpaceError> {
        match self.call(Call::Engine(Request::Add { counter, delta }))? {
            Reply::Value(before) => Ok(before),
            Reply::Bytes(_) => Err(SpaceError::Ended),
        }
    }

    /// Leaves the space together with all other ranks.
    ///
    /// # Errors
    /// A rank is lost, or does not leave in time.
    pub fn leave(self) -> Result<(), SpaceError> {
        // At the first barrier a rank may have to read the logs of others, at the second one none does.
        self.call(Call::AwaitLeave)?;
        self.call(Call::AwaitLeave)?;
        self.call(Call::Leave)?;
        Ok(self.thread.stop()?)
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), SpaceError> {
        let end = u128::from(offset) + bytes as u128;
        if end > u128::from(self.bytes) {
            return Err(SpaceError::OutOfRange { offset, end, bytes: self.bytes });
        }
        Ok(())
    }

    fn call(&self, call: Call) -> Result<Reply, SpaceError> {
        match self.start(call)?.recv_timeout(self.timeout) {
            Ok(result) => Ok(result?),
            Err(RecvTimeoutError::Timeout) => {
                self.start(Call::GiveUp)?;
                Err(SpaceError::TimedOut(self.timeout))
            }
            Err(RecvTimeoutError::Disconnected) => Err(SpaceError::Ended),
        }
    }

    fn start(&self, call: Call) -> Result<Receiver<Result<Reply, Failure>>, SpaceError> {
        let (reply, result) = channel();
        self.commands.send(Command { call, reply }).map_err(|_| SpaceError::Ended)?;
        // A full counter is as readable as a fresh one.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
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

fn join_group(
    client: &Client,
    name: &str,
    options: &SpaceOptions,
    address: SocketAddr,
    ours: &[u8; SETTINGS_BYTES],
) -> Result<Membership, JoinError> {
    let mut settings = [0; NOTE_BYTES];
    settings[..SETTINGS_BYTES].copy_from_slice(ours);
    let mut join = JoinOptions::new(options.ranks, address).settings(settings).lease(LEASE);
    if let Some(rank) = options.rank {
        join = join.number(rank);
    }
    Membership::join(client, &format!("dsm/{name}"), &join)
}

/// Names the first setting that differs.
fn explain(theirs: &[u8; NOTE_BYTES], ours: &ddss_dsm_core::Config) -> SpaceError {
    let mut settings = [0; SETTINGS_BYTES];
    settings.copy_from_slice(&theirs[..SETTINGS_BYTES]);
    // If no setting differs, bytes do that this release does not know.
    ours.compare_settings(&settings).err().unwrap_or(SettingsError::Format).into()
}
